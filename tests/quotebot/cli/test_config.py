from __future__ import annotations

import json
import re
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.quotebot.cli.conftest import Run


def test_config_show_hides_secrets_and_says_where_they_came_from(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-planted")
    for arguments in (("--json",), ()):
        done = command("config", "show", *arguments, "--set", "seller_name=Acme")
        assert done.returncode == 0
        assert "planted" not in done.stdout
        assert "Acme" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("slack_bot_token"))
    assert row.split() == ["slack_bot_token", "[redacted]", "environment", "-"]


def test_config_show_refuses_what_is_no_assignment(command: Run) -> None:
    assert command("config", "show", "--set", "seller_name").returncode == 78


@pytest.mark.parametrize("command_name", ["run", "doctor", "config show"])
@pytest.mark.parametrize("name", ["slack_bot_token", "salesforce_private_key", "llm_api_key", "sentry_dsn"])
def test_a_secret_on_the_command_line_is_refused(command: Run, command_name: str, name: str) -> None:
    done = command(*command_name.split(), "--set", f"{name}=xoxb-planted")
    assert done.returncode == 78
    assert f"{name}: a secret is not taken from the command line" in done.stdout + done.stderr
    assert "planted" not in done.stdout + done.stderr


def test_a_start_names_a_misspelt_assignment_beside_every_missing_token(command: Run) -> None:
    done = command("run", "--set", "time_zon=UTC")
    assert done.returncode == 78
    assert "did you mean time_zone?" in done.stderr
    assert done.stderr.count("is missing: ") == 2


def test_the_steps_that_init_prints_leave_doctor_no_trouble_with_the_settings(
    command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = command("init", "new").stdout
    for variable in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir("new")
    tokens = re.findall(r"^   (SLACK_\w+_TOKEN=.*)$", told, re.MULTILINE)
    Path(".env").write_text("\n".join(tokens).replace("...", "1-2-3"))
    Path(".env").chmod(0o600)
    (approvers,) = re.findall(r"(approvers = \{.*\})", told)
    with Path("quotebot.toml").open("a") as file:
        file.write(f"{approvers}\n")
    done = command("doctor", "--offline", "--json", "--only", "settings", "--only", "secrets", "--only", "people")
    checks = {each["id"]: each for each in json.loads(done.stdout)["checks"]}
    assert {name: each["state"] for name, each in checks.items()} == {
        "settings.readable": "ok",
        "settings.variables": "ok",
        "settings.tokens": "ok",
        "secrets.private": "ok",
        "people.approvers": "warning",  # of the roles above the one that is named
    }
    assert "sales_manager" not in checks["people.approvers"]["found"]


def test_init_writes_a_private_file_without_settings_and_never_overwrites_it(command: Run) -> None:
    first = command("init", "new")
    path = Path("new/quotebot.toml")
    assert (first.returncode, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)
    assert tomllib.loads(path.read_text()) == {}
    manifest = re.search(r"paste this file: (.*)", first.stdout)
    assert manifest is not None
    assert "socket_mode_enabled" in Path(manifest[1]).read_text()
    path.write_text("# mine\n")
    again = command("init", "new")
    assert (again.returncode, path.read_text()) == (65, "# mine\n")
    assert "was not changed" in again.stderr
