"""Tests of `quotebot crm status` and `crm sync` as people run them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ledger.clock import SystemClock
from quotebot.app.installation import open_ledger
from quotebot.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

WANTED = {"QUOTEBOT_CRM_MIRROR": '["accounts", "contacts"]', "QUOTEBOT_CRM_SYNC_MINUTES": "15"}


@pytest.fixture(autouse=True)
def _ledger(tmp_path: Path, command: Run) -> None:
    """Make the ledger that the commands read."""
    del command  # it empties the environment

    async def make() -> None:
        async with open_ledger(Settings(data_dir=tmp_path / "bot"), SystemClock()):
            pass

    asyncio.run(make())


def kept(folder: Path, kind: str, names: list[str], whole_at: int | None) -> None:
    with closing(sqlite3.connect(folder / "bot" / "ledger.db")) as ledger, ledger:
        cursor = (kind, "a", "", "", 0, 1, 0, whole_at)
        ledger.execute("INSERT INTO crm_mirror_cursors VALUES (?, ?, ?, ?, ?, ?, ?, ?)", cursor)
        rows = [(kind, f"001{number}", name, name.casefold(), "", "{}") for number, name in enumerate(names)]
        ledger.executemany("INSERT INTO crm_mirror VALUES (?, ?, ?, ?, ?, ?)", rows)


def test_the_status_says_how_many_are_kept_how_old_they_are_and_what_is_late(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WANTED.items():
        monkeypatch.setenv(name, value)
    kept(tmp_path, "accounts", ["Acme", "Birch"], round(time.time() * 1000) - 120_000)
    some = command("crm", "status")
    assert some.returncode == 3
    assert [line.split() for line in some.stdout.splitlines()[1:]] == [
        ["accounts", "2", *some.stdout.splitlines()[1].split()[2:5], "2", "min", "follows"],
        ["contacts", "0", "never", "stale"],
    ]
    kept(tmp_path, "contacts", ["Lee"], round(time.time() * 1000))
    told = json.loads((every := command("crm", "status", "--json")).stdout)
    assert (every.returncode, [(row["kind"], row["records"], row["stale"]) for row in told["mirrors"]]) == (
        0,
        [("accounts", 2, False), ("contacts", 1, False)],
    )


def test_nothing_is_kept_unless_it_is_wanted(command: Run) -> None:
    done = command("crm", "status")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Nothing of Salesforce is kept here" in done.stderr


def test_crm_sync_is_enqueued_once_per_request_id(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WANTED.items():
        monkeypatch.setenv(name, value)
    done = [command("crm", "sync", "--as", "U0OPS", "--request-id", "r1") for _ in range(2)]
    assert [each.returncode for each in done] == [0, 0]
    assert "What changed in Salesforce is being read." in done[0].stdout
    with closing(sqlite3.connect(tmp_path / "bot" / "ledger.db")) as ledger:
        owed = [json.loads(payload) for (payload,) in ledger.execute("SELECT payload FROM effects ORDER BY id")]
    assert owed == [{"what": "changes"}, {"what": "mirror", "kind": "accounts"}, {"what": "mirror", "kind": "contacts"}]
