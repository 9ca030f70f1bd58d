"""Tests of the operator's view: whole ids on a narrow terminal, consistent names, and no false promise."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from quotebot.cli import exits
from tests.quotebot.cli.conftest import clean_environment
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run


def letter(ledger: Path) -> dict[str, str]:
    sql = (
        "SELECT e.id, e.aggregate_id, o.correlation_id FROM effects AS e "
        "JOIN operations AS o ON o.id = e.operation_id WHERE e.state = 'failed' ORDER BY e.id"
    )
    return {name: str(value) for name, value in read_ledger(ledger, sql)[0].items()}


def on_terminal(folder: Path, checkout: Path, columns: int, *arguments: str) -> str:
    """Return the output of a command on a terminal with `columns` columns."""
    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = clean_environment(folder, PYTHONPATH=str(checkout), TERM="dumb")
        command = [sys.executable, "-m", "quotebot", *arguments]
        subprocess.run(command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, timeout=60, check=True)
        return os.read(master, 65_536).decode().replace("\r\n", "\n")
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.parametrize("columns", [60, 100])
def test_a_dead_letters_id_is_whole_on_a_narrow_terminal(tmp_path: Path, checkout: Path, dead: Path, columns: int) -> None:
    found = letter(dead)
    printed = on_terminal(tmp_path, checkout, columns, "dead", "list").splitlines()
    for header, value in (("ID", found["id"]), ("Class", "crm.create"), ("Ref", found["correlation_id"])):
        assert [header, value] in [line.split() for line in printed]


def test_lines_of_a_table_end_with_their_last_word(command: Run, dead: Path) -> None:
    assert letter(dead)
    printed = command("ops", "list").stdout
    assert printed
    assert [line for line in printed.splitlines() if line != line.rstrip()] == []


def test_a_quote_may_be_typed_in_lower_case_everywhere(command: Run, dead: Path) -> None:
    quote = letter(dead)["aggregate_id"].lower()
    for asked in (("dead", "list"), ("replay", "--dry-run"), ("ops", "list")):
        done = command(*asked, "--quote", quote)
        assert (done.returncode, done.stdout != "") == (exits.OK, True), asked


def test_what_can_be_no_quote_is_said_to_be_none(command: Run, dead: Path) -> None:
    assert letter(dead)
    for asked in (("dead", "list"), ("replay",)):
        done = command(*asked, "--quote", "zzz")
        assert (done.returncode, done.stdout) == (exits.USAGE, "")
        assert "'zzz' is no quote: write Q-2026-0042" in done.stderr


def test_mistyped_class_gets_a_suggestion(command: Run, dead: Path) -> None:
    assert letter(dead)
    assert "did you mean crm.create?" in command("dead", "list", "--class", "crm.craete").stderr
    assert "did you mean crm.create?" in command("replay", "--class", "crm.craete").stderr


def test_why_accepts_the_reference_shown_to_people(command: Run, dead: Path) -> None:
    done = command("why", letter(dead)["correlation_id"])
    assert (done.returncode, done.stderr) == (exits.OK, "")
    assert "Done (applied)" in done.stdout
    assert command("why", "c-00000000").returncode == exits.NOTHING_MATCHED


def test_without_a_bot_resume_does_not_promise_that_one_works(command: Run, dead: Path) -> None:
    assert letter(dead)
    command("pause", "crm", "--reason", "a test")
    done = command("resume", "crm")
    assert done.returncode == exits.OK
    assert "no bot is running here" in done.stdout


def test_a_replay_into_a_held_class_says_who_has_to_act(command: Run, dead: Path) -> None:
    command("pause", "crm", "--reason", "a test")
    done = command("replay", letter(dead)["id"])
    assert "crm is held (a test), and so are these. To go on: quotebot resume crm" in done.stderr


def test_verify_asks_for_a_copy_kept_elsewhere_though_the_log_is_beside_the_ledger(command: Run, dead: Path) -> None:
    (dead.parent / "audit-anchors.log").touch()
    assert "Give --anchors with a copy kept elsewhere" in command("audit", "verify").stderr


def test_a_file_of_anchors_that_is_not_there_is_named_in_plain_words(command: Run, dead: Path) -> None:
    done = command("audit", "verify", "--anchors", str(dead.parent / "none.log"))
    assert done.returncode == exits.USAGE
    assert "none.log cannot be read as anchors: No such file or directory. Nothing was verified." in done.stderr


def test_closed_output_pipe_ends_the_command_without_a_traceback(tmp_path: Path, checkout: Path, dead: Path) -> None:
    assert letter(dead)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "quotebot", "metrics"],
            cwd=tmp_path,
            env=clean_environment(tmp_path, PYTHONPATH=str(checkout)),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
