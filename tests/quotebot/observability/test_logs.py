from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from quotebot.observability.logs import REDACTED, redact

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRETS = [
    "xoxb-1234-5678-abcDEF",
    "xoxp-1234-abc",
    "xoxe.xoxp-1-abc"[5:],
    "xapp-1-A0123-456-abcdef",
    "Bearer abc.def-ghi",
    "sk-abcdefgh12345678",
    "00D5g000004abcd!AQEAQ.x_y",
    "https://hooks.slack.com/commands/T0HOME/123/secret",
    "https://hooks.slack.com/actions/T0HOME/123/secret",
    "http://127.0.0.1:8765/hooks/commands/T0QUOTE/ABC/0123abcd",
]
PROGRAM = """
import logging, sys, structlog
from quotebot.observability.logs import configure_logs

configure_logs(json_lines=sys.argv[1] == "json", secrets=("planted-value", ""), facts={"replica": "east"})
log = structlog.get_logger("test")


class Strange:
    def __repr__(self):
        return "Strange(planted-value)"


log.info("said.xoxb-1-planted", url="https://hooks.slack.com/commands/T/1/planted")
log.info("nested", many=["xapp-1-planted"], deep={"a": {"b": "x planted-value y"}})
log.info("strange", thing=Strange(), key={"xoxb-1-planted": 1})
log.info("kept", count=7, nothing=None, text="unremarkable")
logging.getLogger("library").warning("token %s", "xoxb-1-planted")
try:
    raise RuntimeError("Bearer planted and planted-value")
except RuntimeError:
    log.exception("failed")
    logging.getLogger("library").exception("failed too")
"""


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_is_not_shown(secret: str) -> None:
    shown = redact(f"before {secret} after")
    assert secret not in shown
    assert shown.startswith(f"before {REDACTED}")
    assert shown.endswith(" after")


@pytest.mark.parametrize(
    "text", ["Q-2026-0042 v1", "https://slack.com/api/chat.postMessage", "c-7f91abcd", "ask-me-anything-now", ""]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_known_secret_is_hidden_whatever_it_looks_like() -> None:
    assert redact("the word swordfish", ("swordfish",)) == f"the word {REDACTED}"


@pytest.mark.parametrize("spelled", [str, repr, json.dumps, lambda key: json.dumps(repr(key)), lambda key: quote(key, safe="")])
def test_a_key_of_many_lines_is_hidden_however_it_is_quoted(spelled: Callable[[str], str]) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nplantedplantedplanted+/=\n-----END PRIVATE KEY-----\n"
    shown = redact(f"failed with {spelled(key)} at the end", (key,))
    assert "planted" not in shown
    assert "MIIEvQ" not in shown


def test_an_address_with_a_password_is_hidden() -> None:
    assert "hunter2" not in redact("cannot reach https://user:hunter2@proxy.example:8080/x")
    assert "hunter2" not in redact(f"Authorization: {base64.b64encode(b'hunter2-planted').decode()}", ("hunter2-planted",))
    assert base64.b64encode(b"hunter2-planted").decode() not in redact(
        base64.b64encode(b"hunter2-planted").decode(), ("hunter2-planted",)
    )


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_log_line_shows_a_secret_wherever_it_hides(checkout: Path, form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, form], cwd=checkout, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == ""
    assert "planted" not in done.stderr.replace(PROGRAM, "")
    assert done.stderr.count(REDACTED) >= 8
    assert "RuntimeError" in done.stderr
    assert "unremarkable" in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if form == "json"]
    assert {line["replica"] for line in lines} <= {"east"}
    assert "Warning" not in done.stderr


def test_redaction_takes_linear_time_on_addresses_that_begin_again_and_again() -> None:
    text = "http://" * 40_000
    started = time.process_time()
    assert redact(text) == text
    assert redact(f"{text}/hooks/secret") == REDACTED
    assert time.process_time() - started < 1.0  # 280 KB took 70 s
