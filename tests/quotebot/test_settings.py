from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.policies import policies
from quotebot.settings import ConfigurationError, Settings, load_settings, slack_tokens

BOT, APP = "xoxb-planted-bot", "xapp-planted-app"
CRM = {
    "SALESFORCE_INSTANCE_URL": "https://acme.my.salesforce.com",
    "SALESFORCE_CLIENT_ID": "client",
    "SALESFORCE_CLIENT_SECRET": "planted-secret",
}
SECRETS = {"SLACK_BOT_TOKEN": BOT, "SLACK_APP_TOKEN": APP, **CRM}


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **values)


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test without the caller's environment and in a folder without a .env."""
    for name in (*SECRETS, "SLACK_API_URL", "QUOTEBOT_APPROVERS", "QUOTEBOT_DATA_DIR", "QUOTEBOT_RETRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_defaults_start_nothing_and_name_both_tokens() -> None:
    with pytest.raises(ConfigurationError) as missing:
        slack_tokens(load_settings())
    assert str(missing.value).count("is missing") == 2


def test_tokens_of_the_right_kind_are_handed_out() -> None:
    assert slack_tokens(settings(**SECRETS)) == (BOT, APP)


@pytest.mark.parametrize("name", ["SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"])
@pytest.mark.parametrize("value", ["", "xoxp-planted", " xoxb-planted", "XOXB-planted"])
def test_any_other_token_is_refused_without_being_shown(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        slack_tokens(settings(**{**SECRETS, name: value}))
    assert name in str(refused.value)
    assert "planted" not in str(refused.value)


def test_secrets_never_print() -> None:
    shown = repr(settings(**SECRETS)) + str(settings(**SECRETS)) + settings(**SECRETS).model_dump_json()
    assert "planted" not in shown


def test_a_file_gives_what_the_environment_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text(f'SLACK_BOT_TOKEN={BOT}\nSLACK_APP_TOKEN=xapp-from-file\nQUOTEBOT_APPROVERS={{"cfo": ["U0CFO"]}}\n')
    monkeypatch.setenv("SLACK_APP_TOKEN", APP)
    found = load_settings()
    assert slack_tokens(found) == (BOT, APP)
    assert found.approvers == {"cfo": ("U0CFO",)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ack_budget_seconds", 0.05),
        ("ack_budget_seconds", 2.6),
        ("quote_valid_days", 0),
        ("stale_draft_days", 0),
        ("time_zone", "Europe/Bonn"),
        ("time_zone", "../zone"),
        ("time_zone", "Europe"),
        ("lease_seconds", 29),
        ("settle_delay_seconds", -1),
        ("drain_seconds", 61),
        ("SLACK_API_URL", "ftp://slack.com/api/"),
        ("approvers", {"cfo": "U0CFO"}),
    ],
)
def test_values_out_of_bounds_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        settings(**{name: value})


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"LLM_BASE_URL": "https://planted.example/v1"}, "QUOTEBOT_LLM_MODEL"),
        ({"LLM_MODEL": "planted-1"}, "QUOTEBOT_LLM_BASE_URL"),
        ({"LLM_API_KEY": "sk-planted"}, "QUOTEBOT_LLM_BASE_URL, QUOTEBOT_LLM_MODEL"),
    ],
)
def test_half_a_model_s_configuration_is_a_mistake_that_is_named_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], missing: str
) -> None:
    for name, value in {**given, "TIME_ZONE": "Nowhere"}.items():
        monkeypatch.setenv(f"QUOTEBOT_{name}", value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value).count(f"the language model is configured in part: {missing} missing") == 1
    assert "QUOTEBOT_TIME_ZONE" in str(refused.value)
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize("missing", CRM)
def test_half_a_salesforce_configuration_is_a_mistake_and_its_secret_stays_hidden(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name, value in CRM.items():
        if name != missing:
            monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert f"Salesforce is configured in part: {missing} missing" in str(refused.value)
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"), [("SALESFORCE_INSTANCE_URL", "http://acme.example"), ("SALESFORCE_CA_FILE", "none.pem")]
)
def test_what_salesforce_could_not_be_reached_with_safely_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValidationError, match=name):
        settings(**{**CRM, name: value})


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValidationError):
        settings().quote_valid_days = 5  # type: ignore[misc] # the checker knows it already


def test_a_response_url_may_name_slack_or_the_host_the_bot_talks_to() -> None:
    assert settings().response_url_hosts == {"hooks.slack.com", "slack.com"}
    assert "127.0.0.1:8765" in settings(SLACK_API_URL="http://127.0.0.1:8765/api/").response_url_hosts


def test_the_ledger_lies_in_the_data_folder() -> None:
    assert settings(data_dir=Path("/srv/quotebot")).ledger_path == Path("/srv/quotebot/ledger.db")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("mysql://quotebot@127.0.0.1/quotebot", "it must begin with postgresql://"),
        ("postgresql://quotebot:planted@127.0.0.1/quotebot", "must not hold a password"),
        ("postgresql://127.0.0.1/quotebot?password=planted", "must not hold a password"),
        ("postgresql://127.0.0.1/quotebot?sslkey=key.pem&sslpassword=planted", "must not hold a password"),
        ("postgresql://127.0.0.1?application_name=@planted.example/quotebot", "write @, # and blanks as %40, %23 and %20"),
        ("postgresql://bot?application_name=:planted@127.0.0.1/quotebot", "write @, # and blanks as %40, %23 and %20"),
        ("postgresql://127.0.0.1#@planted.example/quotebot", "write @, # and blanks as %40, %23 and %20"),
        ("postgresql://127.0.0.1\t/quotebot", "write @, # and blanks as %40, %23 and %20"),
        ("postgresql://%2Ftmp%2Cdb.example/quotebot", "sslmode=verify-full is needed"),
        ("postgresql://db.example/quotebot?sslmode=verify-full&ssl=true", "leave ssl and requiressl out"),
        ("postgresql://db.example/quotebot?sslmode=verify-full&requiressl=1", "leave ssl and requiressl out"),
        ("postgresql://quotebot@db.example/quotebot", "db.example is not this machine"),
        ("postgresql://quotebot@db.example/quotebot?sslmode=require", "sslmode=verify-full is needed"),
        ("postgresql://127.0.0.1:5432,db.example:5433/quotebot", "db.example is not this machine"),
        ("postgresql:///quotebot?host=db.example", "db.example is not this machine"),
        ("postgresql:///quotebot", "it names no server"),
        ("postgresql://localhost/quotebot?hostaddr=192.0.2.1", "192.0.2.1 is not this machine"),
    ],
)
def test_unsafe_address_of_a_database_is_refused_without_its_password(address: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(problem)) as refused:
        Settings(_env_file=None, ledger_url=address)
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://quotebot@/quotebot?host=%2Fvar%2Frun%2Fpostgresql",
        "postgresql://quotebot@[::1]:5432/quotebot",
        "postgres://localhost/quotebot",
        "postgresql://%2Fvar%2Frun%2Fpostgresql/quotebot?host=::1",
        "postgresql://quotebot@a.example,b.example:5433/quotebot?sslmode=verify-full&sslrootcert=system",
    ],
)
def test_database_of_this_machine_or_behind_verified_tls_is_taken(address: str) -> None:
    assert Settings(_env_file=None, ledger_url=address, ledger_password="planted").secrets == ("planted",)


def test_overrides_of_the_retry_matrix_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUOTEBOT_RETRY", '{"crm.create": {"retries": 8, "cap_seconds": 120, "jitter": "none"}, "default": {}}')
    found = load_settings().retry
    assert found["crm.create"].given() == {"retries": 8, "cap_seconds": 120, "jitter": "none"}
    assert found["default"].given() == {}
    assert policies(found)["crm.create"].retries == 8


def test_overrides_are_read_from_a_file_too_and_there_are_none_by_default() -> None:
    assert load_settings().retry == {}
    Path(".env").write_text('QUOTEBOT_RETRY={"slack.post": {"concurrency": 1}}\n')
    assert load_settings().retry["slack.post"].concurrency == 1


def test_every_bad_retry_override_is_named_at_once_with_all_other_bad_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "QUOTEBOT_RETRY",
        '{"crm.creat": {"retries": 1}, "crm.update": {"retries": 21, "semantics": "pure"}, "slack.post": {"base_seconds": 40}}',
    )
    monkeypatch.setenv("QUOTEBOT_DRAIN_SECONDS", "61")
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    lines = str(refused.value).splitlines()
    assert (lines[0], lines[-1]) == ("The configuration cannot be used:", "Nothing was started.")
    assert sorted(line.removeprefix("- ").partition(": ")[0] for line in lines[1:-1]) == [
        "QUOTEBOT_DRAIN_SECONDS",
        "QUOTEBOT_RETRY.crm.creat",
        "QUOTEBOT_RETRY.crm.update.retries",
        "QUOTEBOT_RETRY.crm.update.semantics",
        "QUOTEBOT_RETRY.slack.post.cap_seconds",
    ]
    assert "did you mean crm.create?" in str(refused.value)


@pytest.mark.parametrize("value", ["[]", "3", '"crm.create"', "{", "retries=8"])
def test_overrides_that_are_no_table_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("QUOTEBOT_RETRY", value)
    with pytest.raises(ConfigurationError, match="- QUOTEBOT_RETRY: "):
        load_settings()
