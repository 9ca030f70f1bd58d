"""Tests of external text on the operator's terminal: it cannot control the terminal, leak a secret or name a customer."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.failures import UNPRINTABLE, AdapterError, Failure, vendor_line
from adapters.salesforce.errors import SalesforceRefusal, Target, refused
from quotebot.cli.printable import printable, safe_streams
from tests.quotebot.cli.conftest import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

HOSTILE: Final = "Rule\x1b]0;owned\x07 says\x1b[2J\x9b31m no\u202e gnp.exe\u2028second\rline\x7f \U000e0041 [/red] bell\x07"
RAW: Final = ("\x1b", "\x9b", "\u202e", "\u2028", "\x7f", "\x07", "\U000e0041")
CUSTOMER: Final = "Very Confidential Customer"
PATCHED: Final = """
import sys
import quotebot.store.quotes as quotes
import quotebot.cli.quote_work as work

def fails(*given, **named):
    customer = "Very Confidential" + " Customer"
    raise RuntimeError("inside xoxb-1-planted " + {secret!r})

{target} = fails
sys.argv = ["quotebot", *sys.argv[1:]]
from quotebot.__main__ import main
main()
"""


def on_a_terminal(folder: Path, checkout: Path, *arguments: str) -> str:
    """Run one command with a pseudo-terminal as its input and output; return every byte it showed."""
    ours, theirs = pty.openpty()
    environment = clean_environment(
        folder, PYTHONPATH=str(checkout), TERM="xterm-256color", COLUMNS="200", PYTHONIOENCODING="utf-8"
    )
    command = [sys.executable, "-P", "-m", "quotebot", *arguments]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = bytearray()
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the last writer has closed it
            break
        if not part:
            break
        shown += part
    process.wait(60)
    os.close(ours)
    return shown.decode("utf-8")


@pytest.fixture
def hostile(dead: Path) -> Path:
    """Return a ledger in which a dead letter's reason is the text of a hostile org."""
    with closing(sqlite3.connect(dead)) as ledger, ledger:
        changed = ledger.execute("UPDATE effects SET last_error = ? WHERE state = 'failed'", (HOSTILE,)).rowcount
        assert changed
        ledger.execute("UPDATE attempts SET error = ? WHERE error IS NOT NULL", (HOSTILE,))
    return dead


def failed_effect(ledger: Path) -> tuple[str, str, str]:
    with closing(sqlite3.connect(ledger)) as opened:
        row = opened.execute(
            "SELECT e.id, e.correlation_id, o.aggregate_id FROM effects e JOIN operations o ON o.id = e.operation_id "
            "WHERE e.state = 'failed' LIMIT 1"
        ).fetchone()
    return str(row[0]), str(row[1]), str(row[2])


@pytest.mark.parametrize(
    "command", ["dead list", "dead show {id}", "trace {ref}", "why {quote}", "ops list", "ops show {ref}", "doctor --offline"]
)
def test_hostile_reason_does_not_steer_the_terminal(hostile: Path, checkout: Path, tmp_path: Path, command: str) -> None:
    effect, reference, quote = failed_effect(hostile)
    shown = on_a_terminal(tmp_path, checkout, *command.format(id=effect, ref=reference, quote=quote).split())
    assert [mark for mark in RAW if mark in shown] == []
    assert "Traceback" not in shown
    if command.startswith("dead"):
        assert "\\u001b]0;owned" in shown


def test_json_holds_the_same_text_escaped(hostile: Path, quotebot: Run) -> None:
    done = quotebot("dead", "list", "--json")
    assert [mark for mark in RAW if mark in done.stdout] == []
    assert HOSTILE in {letter["last_error"] for letter in json.loads(done.stdout)["dead_letters"]}


def test_hostile_message_is_one_short_line_where_it_is_classified() -> None:
    content = [{"errorCode": "FIELD_CUSTOM_VALIDATION_EXCEPTION", "message": HOSTILE * 50, "fields": ["Name\x1b[2J" * 90] * 9}]
    error = refused(SalesforceRefusal.read(400, content), Target("write the quote", "Quote", "Q-1", writes=True))
    assert UNPRINTABLE.search(str(error)) is None
    assert "\n" not in str(error)
    assert len(str(error)) < 1_000
    assert UNPRINTABLE.search(str(AdapterError(Failure.INTERNAL, "x", HOSTILE))) is None


@given(st.text())
def test_printable_text_holds_nothing_that_steers_and_reads_back(text: str) -> None:
    shown = printable(text)
    assert UNPRINTABLE.search(shown) is None
    assert UNPRINTABLE.search(vendor_line(text, 50)) is None
    assert len(vendor_line(text, 50)) <= 50
    quoted = json.dumps(text, ensure_ascii=False)
    assert json.loads(printable(quoted)) == text


def test_streams_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with safe_streams():
        sys.stdout.write(HOSTILE)
        sys.stderr.writelines([HOSTILE])
    assert (sys.stdout, sys.stderr) == before
    printed = capsys.readouterr()
    assert [mark for mark in RAW if mark in printed.out + printed.err] == []


@pytest.mark.parametrize("target", ["quotes.insert", "work.reserve"])
@pytest.mark.parametrize("secret", ["xoxb-9-planted", "pem"])
def test_failing_command_prints_neither_variables_nor_secrets(
    dead: Path, checkout: Path, tmp_path: Path, target: str, secret: str
) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nplantedplantedplantedplanted\n-----END PRIVATE KEY-----\n"
    environment = clean_environment(
        tmp_path, PYTHONPATH=str(checkout), SLACK_BOT_TOKEN="xoxb-9-planted", QUOTEBOT_CLI_OPERATORS='["root"]'
    )
    environment |= {
        "SALESFORCE_PRIVATE_KEY": key,
        "SALESFORCE_USERNAME": "u",
        "SALESFORCE_CLIENT_ID": "i",
        "SALESFORCE_INSTANCE_URL": "https://acme.my.salesforce.com",
    }
    quoted = repr(key) if secret == "pem" else secret
    program = PATCHED.format(target=target, secret=quoted)
    asked = ["quote", "new", f"for {CUSTOMER}: 150 pro", "--channel", "C0DEALS", "--as", "U0REP"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *asked],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "RuntimeError" in done.stderr
    assert CUSTOMER not in done.stdout + done.stderr
    assert "planted" not in done.stdout + done.stderr
    assert "MIIEvQ" not in done.stderr
    assert done.stderr.count("\n") < 150
