"""Tests of `quotebot ledger move` and `begin-generation`: what they print, and their exit statuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.quotebot.cli.conftest import begun_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

    from tests.quotebot.cli.conftest import Run


def test_move_says_what_it_did_and_what_to_set(
    command: Run, tmp_path: Path, create_database: Callable[[Sequence[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_ledger(tmp_path / "bot")
    url = create_database(())
    monkeypatch.setenv("QUOTEBOT_LEDGER_DURABILITY", "local")
    assert command("ledger", "move").returncode == 64
    assert command("ledger", "move", "--to", url, "--undo").returncode == 64
    assert command("ledger", "move", "--undo").returncode == 78
    dry = json.loads(command("ledger", "move", "--to", url, "--dry-run", "--json").stdout)
    assert (dry["schema_version"], dry["dry_run"], "audit_events" in dry["tables"]) == (1, True, True)
    done = command("ledger", "move", "--to", url)
    assert done.returncode == 0, done.stderr
    assert "Moved and compared: " in done.stdout
    assert f"Now set QUOTEBOT_LEDGER_URL (ledger_url) to {url}, then start the bot: quotebot run" in done.stdout
    refused = command("ops", "list")
    assert (refused.returncode, f"The ledger was moved to {url}" in refused.stderr) == (78, True)
    again = json.loads(command("ledger", "move", "--to", url, "--json").stdout)
    assert (again["to"], again["tables"]) == (url, None)
    monkeypatch.setenv("QUOTEBOT_LEDGER_URL", url)
    assert command("ops", "list").returncode == 0
    back = command("ledger", "move", "--to", "file")
    assert (back.returncode, "remove QUOTEBOT_LEDGER_URL" in back.stdout) == (0, True), back.stderr


def test_generation_begins_by_consent_at_a_time_that_has_passed(command: Run, tmp_path: Path) -> None:
    begun_ledger(tmp_path / "bot")
    begin = ("ledger", "begin-generation", "--backup-made-at")
    assert command(*begin, "2999-01-01T00:00:00Z", "--yes").returncode == 64
    refused = command(*begin, "2026-11-21T21:50:00Z")
    assert (refused.returncode, "Nothing was changed." in refused.stderr) == (3, True)
    done = command(*begin, "2026-11-21T21:50:00Z", "--yes")
    assert (done.returncode, "Generation 2 has begun. Quote numbers go on after " in done.stdout) == (0, True), done.stderr
    told = json.loads(command(*begin, "2026-11-21", "--yes", "--json").stdout)
    assert (told["schema_version"], told["generation"], told["is_uncertain"]) == (1, 3, 0)
    assert len(told["numbers_after"]) >= 1
