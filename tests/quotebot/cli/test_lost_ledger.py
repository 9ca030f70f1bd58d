"""Tests that a missing or empty ledger is reported where one existed, and is never silently recreated."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from quotebot.app.installation import LedgerLostError, open_audit, open_ledger
from quotebot.app.sqlite_storage import MARKER
from quotebot.settings import Settings
from tests.quotebot.cli.conftest import clean_environment
from tests.rig import eventually, read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

SECONDS = 90.0
TOKENS = {"SLACK_BOT_TOKEN": "xoxb-1-2-abc", "SLACK_APP_TOKEN": "xapp-1-A-2-abc"}


def lose(ledger: Path, *, emptied: bool) -> None:
    for file in ledger.parent.glob("ledger.db*"):
        file.unlink()
    if emptied:
        ledger.write_bytes(b"")


@pytest.mark.parametrize("emptied", [True, False], ids=["emptied", "removed"])
def test_a_lost_ledger_ends_the_start_and_every_command(quotebot: Run, command: Run, dead: Path, *, emptied: bool) -> None:
    lose(dead, emptied=emptied)
    before = sorted(path.name for path in dead.parent.iterdir())
    started = quotebot("run", environment=TOKENS)
    words = f"The ledger {dead} is {'empty' if emptied else 'missing'}, but there was one: its folder has audit-0001.key, "
    assert (started.returncode, started.stdout) == (78, "")
    assert words in started.stderr
    assert "quotebot run --new" in started.stderr
    assert "Traceback" not in started.stderr
    for arguments in (
        ("quote", "list"),
        ("backup",),
        ("ledger", "verify"),
        ("audit", "verify"),
        ("dead", "list"),
        ("catalog", "list"),
    ):
        done = command(*arguments)
        assert (done.returncode, words in done.stderr) == (78, True), (arguments, done.stderr)
    seen = command("doctor", "--offline", "--only", "ledger")
    assert (seen.returncode, "there was one" in seen.stdout) == (69, True)
    assert sorted(path.name for path in dead.parent.iterdir()) == before


def test_a_lost_ledger_is_put_back_from_a_backup(command: Run, dead: Path) -> None:
    assert command("backup").returncode == 0
    (copy,) = (dead.parent / "backups").glob("*.db")
    lose(dead, emptied=False)
    done = command("restore", str(copy), "--yes")
    assert done.returncode == 0, done.stderr
    assert command("audit", "verify").returncode == 0


async def test_run_new_starts_a_ledger_and_warns_about_its_quote_numbers(dead: Path, tmp_path: Path, checkout: Path) -> None:
    lose(dead, emptied=False)
    keys = (dead.parent / "audit-0001.key").read_bytes()
    nowhere = {**TOKENS, "SLACK_API_URL": "http://127.0.0.1:9/api/", "PYTHONPATH": str(checkout)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quotebot", "run", "--new"),
        cwd=tmp_path,
        env=clean_environment(tmp_path, **nowhere),
        stderr=asyncio.subprocess.PIPE,
    )

    try:
        await eventually(lambda: dead.exists() and dead.stat().st_size > 0, "a new ledger")
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), SECONDS)
    assert b"Its quote numbers begin anew" in log
    assert b"Left as it is: audit-0001.key" in log
    assert read_ledger(dead, "SELECT quote_id FROM quotes") == []
    assert (dead.parent / "audit-0001.key").read_bytes() == keys


def test_new_is_refused_beside_a_ledger(quotebot: Run, dead: Path) -> None:
    before = dead.read_bytes()
    done = quotebot("run", "--new", environment=TOKENS)
    assert (done.returncode, "There is a ledger at" in done.stderr) == (78, True)
    assert dead.read_bytes() == before


async def test_a_first_start_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, data_dir=tmp_path / "bot")
    open_audit(settings)  # and the process dies
    assert sorted(path.name for path in (tmp_path / "bot").iterdir()) == ["audit-0001.key", MARKER]
    async with open_ledger(settings):
        pass
    assert not (tmp_path / "bot" / MARKER).exists()
    settings.ledger_path.unlink()
    with pytest.raises(LedgerLostError, match=r"there was one: its folder has audit-0001\.key"):
        open_audit(settings)
