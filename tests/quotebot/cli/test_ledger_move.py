"""Tests of `quotebot ledger move`: what it prints, and its exit statuses."""

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
