"""Tests of settings files from another user, with real processes: no token is sent."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from quotebot.settings_sources import untrusted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.quotebot.cli.conftest import Run

TOKENS: Final = {"SLACK_BOT_TOKEN": "xoxb-planted-bot", "SLACK_APP_TOKEN": "xapp-planted-app"}
NOBODY: Final = 65534


class Thief:
    """A server that records the authorization of every request."""

    def __init__(self, address: str, taken: list[str]) -> None:
        self.address, self.taken = address, taken


@pytest.fixture
def thief() -> Iterator[Thief]:
    taken: list[str] = []

    class Asked(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ok": true}')

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield Thief(f"http://127.0.0.1:{server.server_address[1]}/api/", taken)
        server.shutdown()
        serving.join()


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Return the environment of an installation: its settings file and its folder of secrets."""
    folder = tmp_path / "etc"
    (folder / "secrets").mkdir(parents=True)
    for name, token in TOKENS.items():
        (folder / "secrets" / name).write_text(token)
        (folder / "secrets" / name).chmod(0o600)
    (folder / "quotebot.toml").write_text("health_port = 0\n")
    return {"QUOTEBOT_CONFIG": str(folder / "quotebot.toml"), "QUOTEBOT_SECRETS_DIR": str(folder / "secrets")}


def plant(folder: Path, address: str, mode: int) -> Path:
    path = folder / ".env"
    path.write_text(f"SLACK_API_URL={address}\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_an_env_file_where_an_operator_stands_gets_no_token(
    quotebot: Run, tmp_path: Path, thief: Thief, installed: dict[str, str], mode: int
) -> None:
    plant(tmp_path, thief.address, mode)
    (tmp_path / "quotebot.toml").write_text(f'slack_api_url = "{thief.address}"\n')
    shown = quotebot("config", "show", "--json", environment=installed)
    told = json.loads(shown.stdout)
    assert {Path(each["path"]).name for each in told["ignored"]} == {".env", "quotebot.toml"}
    assert all("QUOTEBOT_CONFIG and QUOTEBOT_SECRETS_DIR" in each["reason"] for each in told["ignored"])
    assert {each["value"] for each in told["settings"] if each["name"] == "slack_api_url"} == {"https://slack.com/api/"}
    assert quotebot("config", "show", environment=installed).stderr.count("is ignored") == 2
    quotebot("doctor", "--only", "secrets", environment=installed)
    assert thief.taken == []


@pytest.mark.parametrize("tail", ["\\@a.slack.com/api/", "\\.slack.com/api/", "#.slack.com/api/", "?@a.slack.com/api/"])
def test_no_spelling_of_an_address_makes_another_host_slacks(quotebot: Run, tmp_path: Path, thief: Thief, tail: str) -> None:
    """The parser that checks an address reads a different host in it than the one that connects."""
    (tmp_path / ".env").write_text(f"SLACK_API_URL='{thief.address.removesuffix('/api/')}{tail}'\n")
    (tmp_path / ".env").chmod(0o600)
    done = quotebot("doctor", "--only", "slack", environment=TOKENS)
    assert (done.returncode, thief.taken) == (78, [])


@pytest.mark.parametrize("source", [".env", "quotebot.toml", "secrets"])
def test_no_file_sends_the_tokens_to_a_host_that_is_not_slacks(quotebot: Run, tmp_path: Path, thief: Thief, source: str) -> None:
    environment = dict(TOKENS)
    if source == ".env":
        plant(tmp_path, thief.address, 0o600)
    elif source == "quotebot.toml":
        (tmp_path / source).write_text(f'slack_api_url = "{thief.address}"\n')
    else:
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "SLACK_API_URL").write_text(thief.address)
        environment["QUOTEBOT_SECRETS_DIR"] = str(tmp_path / "kept")
    done = quotebot("doctor", "--only", "slack", environment=environment)
    assert done.returncode == 78
    assert "not Slack's" in done.stdout + done.stderr
    assert "--set slack_api_url=" in done.stdout + done.stderr
    assert thief.taken == []


def test_another_host_is_taken_from_the_environment_and_the_command_line(quotebot: Run, thief: Thief) -> None:
    quotebot("doctor", "--only", "slack", environment={**TOKENS, "SLACK_API_URL": thief.address})
    assert thief.taken
    thief.taken.clear()
    quotebot("doctor", "--only", "slack", "--set", f"slack_api_url={thief.address}", environment=TOKENS)
    assert thief.taken


@pytest.mark.parametrize("host", ["slack.com", "slack-gov.com", "acme.enterprise.slack.com"])
def test_a_file_may_name_slacks_own_hosts(quotebot: Run, tmp_path: Path, host: str) -> None:
    plant(tmp_path, f"https://{host}/api/", 0o600)
    assert f"https://{host}/api/" in quotebot("config", "show").stdout


@pytest.mark.parametrize(
    "address", ["https://slack.com.example.org/api/", "https://notslack.com/", "https://slack.com@example.org/"]
)
def test_a_host_that_looks_like_slacks_is_not_slacks(quotebot: Run, tmp_path: Path, address: str) -> None:
    plant(tmp_path, address, 0o600)
    assert quotebot("config", "show").returncode == 78


@pytest.mark.parametrize("name", [".env", "quotebot.toml", "kept/SLACK_BOT_TOKEN"])
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused_with_its_mode_and_the_fix(
    quotebot: Run, tmp_path: Path, name: str, mode: int
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("# nothing\n")
    path.chmod(mode)
    environment = {"QUOTEBOT_SECRETS_DIR": str(path.parent)} if path.parent != tmp_path else {}
    done = quotebot("config", "show", environment=environment)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"(mode {mode:o})" in done.stderr
    assert "chmod go-w" in done.stderr
    assert path.name in done.stderr


def test_a_file_in_a_folder_that_others_may_write_is_refused_unless_that_is_sticky(quotebot: Run, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "quotebot.toml").write_text("quote_valid_days = 3\n")
    named = {"QUOTEBOT_CONFIG": str(folder / "quotebot.toml")}
    folder.chmod(0o777)
    done = quotebot("config", "show", environment=named)
    assert (done.returncode, f"chmod go-w {folder}" in done.stderr) == (78, True)
    folder.chmod(0o1777)
    assert quotebot("config", "show", environment=named).returncode == 0


def test_a_file_below_a_folder_that_others_may_rename_is_refused(quotebot: Run, tmp_path: Path) -> None:
    folder = tmp_path / "open" / "own"
    folder.mkdir(parents=True)
    (folder / "quotebot.toml").write_text("quote_valid_days = 3\n")
    named = {"QUOTEBOT_CONFIG": str(folder / "quotebot.toml")}
    assert quotebot("config", "show", environment=named).returncode == 0
    folder.parent.chmod(0o777)
    done = quotebot("config", "show", environment=named)
    assert (done.returncode, f"{folder.parent} can be changed by other users" in done.stderr) == (78, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_file_behind_a_link_of_another_user_is_refused_at_any_hop(tmp_path: Path) -> None:
    target, theirs, link, folder = (tmp_path / name for name in ("target", "theirs", "link", "folder"))
    target.write_text("")
    theirs.symlink_to(target)
    link.symlink_to(theirs)
    folder.symlink_to(tmp_path)
    assert untrusted(link) is None
    assert untrusted(folder / "target") is None
    os.chown(theirs, NOBODY, NOBODY, follow_symlinks=False)
    assert f"{theirs} belongs to" in (untrusted(link) or "")
    os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)
    assert f"{folder} belongs to" in (untrusted(folder / "target") or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_or_a_link_of_another_user_is_refused_by_name(quotebot: Run, tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("QUOTEBOT_QUOTE_VALID_DAYS=3\n")
    path.chmod(0o600)
    os.chown(path, NOBODY, NOBODY)
    done = quotebot("config", "show")
    assert (done.returncode, "neither to you nor to root" in done.stderr) == (78, True)
    os.chown(path, 0, 0)
    assert quotebot("config", "show").returncode == 0
    link = tmp_path / "link.toml"
    link.symlink_to(tmp_path / "etc.toml")
    (tmp_path / "etc.toml").write_text("")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert quotebot("config", "show", environment={"QUOTEBOT_CONFIG": str(link)}).returncode == 78


def test_a_link_to_a_file_that_others_may_write_is_not_trusted(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("")
    link.symlink_to(target)
    assert untrusted(link) is None
    target.chmod(0o622)
    assert "mode 622" in (untrusted(link) or "")
    assert untrusted(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLACK_API_URL", "http://slack.com/api/"),
        ("QUOTEBOT_LLM_BASE_URL", "http://llm.example/v1"),
        ("QUOTEBOT_LLM_BASE_URL", "https://user:hunter2@llm.example/v1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318"),
        ("SENTRY_DSN", "http://hunter2@sentry.example/1"),
    ],
)
def test_an_address_in_clear_text_or_with_a_password_is_refused(quotebot: Run, name: str, value: str) -> None:
    done = quotebot("config", "show", environment={name: value, "QUOTEBOT_LLM_MODEL": "m"})
    assert done.returncode == 78
    assert name in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_plain_http_is_for_this_machine(quotebot: Run, host: str) -> None:
    given = {"QUOTEBOT_LLM_BASE_URL": f"http://{host}/v1", "QUOTEBOT_LLM_MODEL": "m", "SENTRY_DSN": f"http://key@{host}/1"}
    assert quotebot("config", "show", environment=given).returncode == 0
