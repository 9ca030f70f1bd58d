from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from quotebot.observability.logs import redact
from quotebot.settings import ConfigurationError, Settings, load_settings
from quotebot.settings_reference import first_file, groups, reference, shown


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty folder, without the caller's environment."""
    starts = ("QUOTEBOT_", "SLACK_", "SALESFORCE_", "CREDENTIALS_")
    for name in [name for name in os.environ if name.startswith(starts)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def written(source: str, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set quote_valid_days in one source."""
    match source:
        case "environment":
            monkeypatch.setenv("QUOTEBOT_QUOTE_VALID_DAYS", str(days))
        case ".env":
            Path(".env").write_text(f"QUOTEBOT_QUOTE_VALID_DAYS={days}\n")
        case "secrets folder secrets":
            Path("secrets").mkdir()
            Path("secrets/quotebot_quote_valid_days").write_text(str(days))
            monkeypatch.setenv("QUOTEBOT_SECRETS_DIR", "secrets")
        case "quotebot.toml":
            Path("quotebot.toml").write_text(f"quote_valid_days = {days}\n")
        case "etc.toml":
            Path("etc.toml").write_text(f"quote_valid_days = {days}\n")
            monkeypatch.setenv("QUOTEBOT_CONFIG", "etc.toml")


ATTENDED = ("command line", "environment", ".env", "quotebot.toml", "default")  # from the current folder
INSTALLED = ("command line", "environment", "secrets folder secrets", "etc.toml", "default")  # from where the environment says


def by_name(given: dict[str, str] | None = None) -> dict[str, Any]:
    return {each.name: each for each in shown(load_settings(given), given)}


@pytest.mark.parametrize(("sources", "strongest"), [(each, name) for each in (ATTENDED, INSTALLED) for name in each])
def test_a_setting_comes_from_the_strongest_source_that_has_it_and_says_which(
    monkeypatch: pytest.MonkeyPatch, sources: tuple[str, ...], strongest: str
) -> None:
    for days, source in enumerate(sources, start=1):
        if sources.index(source) >= sources.index(strongest):
            written(source, days, monkeypatch)
    found = by_name({"quote_valid_days": "1"} if strongest == "command line" else None)["quote_valid_days"]
    assert found.origin == strongest
    assert found.value == (30 if strongest == "default" else 1 + sources.index(strongest))
    assert found.default == 30


def test_a_table_comes_whole_from_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("quotebot.toml").write_text('[approvers]\ncfo = ["U0CFO"]\n[retry."crm.create"]\nretries = 3\n')
    monkeypatch.setenv("QUOTEBOT_APPROVERS", '{"vp_sales": ["U0VP"]}')
    found = load_settings()
    assert found.approvers == {"vp_sales": ("U0VP",)}
    assert found.retry["crm.create"].given() == {"retries": 3}


def test_the_file_may_lie_elsewhere_and_then_has_to_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUOTEBOT_CONFIG", str(tmp_path / "etc.toml"))
    with pytest.raises(ConfigurationError, match="QUOTEBOT_CONFIG names no file"):
        load_settings()
    (tmp_path / "etc.toml").write_text('seller_name = "Acme Ltd"\n')
    assert load_settings().seller_name == "Acme Ltd"


def test_a_folder_of_secrets_that_is_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUOTEBOT_SECRETS_DIR", "nowhere")
    with pytest.raises(ConfigurationError, match="the folder of secrets is missing: nowhere"):
        load_settings()


def test_credentials_of_systemd_are_a_secrets_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "SLACK_BOT_TOKEN").write_text("xoxb-planted")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    token = load_settings().slack_bot_token
    assert token is not None
    assert token.get_secret_value() == "xoxb-planted"


def test_everything_that_is_wrong_or_missing_is_named_at_once_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("quotebot.toml").write_text('quote_valid_day = 3\ntime_zone = "Europe/Bonn"\nsalesforce_client_id = "planted"\n')
    Path(".env").write_text("QUOTEBOT_OPERATORS=U0OPS\n")
    monkeypatch.setenv("QUOTEBOT_DRAIN_SECONDS", "61")
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xapp-planted")
    with pytest.raises(ConfigurationError) as refused:
        load_settings({"lease_second": "1"}, for_slack=True)
    lines = [line.removeprefix("- ") for line in str(refused.value).splitlines()[1:-1]]
    expected = {
        "lease_second": "did you mean lease_seconds?",
        "quote_valid_day": "quotebot.toml has it, and there is no such setting; did you mean quote_valid_days?",
        "QUOTEBOT_TIME_ZONE": "(from quotebot.toml)",
        "QUOTEBOT_OPERATORS": "write lists and tables as JSON (from .env)",
        "QUOTEBOT_DRAIN_SECONDS": "(from environment)",
        "the configuration": "SALESFORCE_INSTANCE_URL, SALESFORCE_CLIENT_SECRET missing",
        "SLACK_BOT_TOKEN is not a xoxb-... token": "api.slack.com/apps",
        "SLACK_APP_TOKEN is missing": "App-Level Tokens",
    }
    assert [line.partition(": ")[0] for line in lines if line.partition(": ")[0] not in expected] == []
    assert [start for start, words in expected.items() if not any(line.startswith(start) and words in line for line in lines)] == []
    assert "planted" not in str(refused.value)


def test_a_file_that_is_not_toml_is_named_with_the_line() -> None:
    Path("quotebot.toml").write_text("seller_name = \n")
    with pytest.raises(ConfigurationError, match=r"quotebot\.toml is not TOML: .*line 1"):
        load_settings()


def test_the_first_file_uncommented_says_what_holds_without_it(tmp_path: Path) -> None:
    lines = [line.removeprefix("# ") for line in first_file().splitlines() if re.match(r"# [a-z_]+ = (?!\"\.\.\.\")", line)]
    Path("quotebot.toml").write_text("\n".join(lines))
    assert len(lines) >= 15
    assert load_settings() == Settings(_env_file=None)


def test_every_setting_is_described_in_one_group() -> None:
    names = [name for group in groups().values() for name in group]
    assert sorted(names) == sorted(Settings.model_fields)
    assert [name for name in names if not Settings.model_fields[name].description] == []


def test_the_reference_page_is_the_one_the_settings_give(checkout: Path) -> None:
    page = (checkout / "docs" / "configuration.md").read_text("utf-8")
    assert page == reference(), "write it again: quotebot config reference > docs/configuration.md"


def test_what_is_said_of_a_missing_token_is_not_taken_for_a_secret() -> None:
    for field in Settings.model_fields.values():
        assert field.description is not None
        assert redact(field.description) == field.description
