"""Tests of `quotebot ledger prune`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from quotebot.domain.schedule.schedules import DAY_MS
from tests.quotebot.parts import tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.quotebot.cli.conftest import Run

COUNTS = """
SELECT (SELECT count(*) FROM operations) AS operations, (SELECT count(*) FROM effects) AS effects,
  (SELECT count(*) FROM deliveries) AS deliveries, (SELECT count(*) FROM tombstones) AS tombstones
"""


def counts(ledger: Path) -> dict[str, int]:
    return dict(read_ledger(ledger, COUNTS)[0])


def grow_old(ledger: Path) -> None:
    """Make every finished command old enough for a purge; those of quotes with dead letters stay all the same."""
    tampered(ledger, "UPDATE operations SET retain_until = 1")
    tampered(ledger, "UPDATE deliveries SET received_at = 1")


def test_young_ledger_has_nothing_to_purge(command: Run, dead: Path) -> None:
    before = counts(dead)
    done = command("ledger", "prune")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing is old enough to be deleted.\n", "")
    assert counts(dead) == before


def test_a_dry_run_says_what_a_run_then_does(command: Run, dead: Path) -> None:
    grow_old(dead)
    tampered(dead, "INSERT INTO letter_cards (reference, channel, post_key, announced_at) VALUES ('op99', 'C0OPS', 'k', 1)")
    called = "INSERT INTO model_calls (effect_key, correlation_id, model, outcome, request_sha256, called_at) VALUES "
    tampered(dead, f"{called} ('e', 'c', 'm', 'ok', '{'0' * 64}', 1)")
    before = counts(dead)
    foreseen = json.loads(command("ledger", "prune", "--dry-run", "--json").stdout)
    assert foreseen["dry_run"] is True
    assert [foreseen["purged"][kind] for kind in ("deliveries", "letter_cards", "model_calls")] == [before["deliveries"], 1, 1]
    assert counts(dead) == before
    done = json.loads(command("ledger", "prune", "--json").stdout)
    assert done["purged"] == foreseen["purged"]
    assert counts(dead)["deliveries"] == 0


def test_what_belongs_to_a_quote_with_a_dead_letter_is_kept(command: Run, dead: Path) -> None:
    grow_old(dead)
    done = command("ledger", "prune")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Deleted: ")
    assert counts(dead)["tombstones"] == 0
    (event,) = read_ledger(dead, "SELECT actor_type, after FROM audit_events WHERE event_type = 'retention.purged'")
    assert (event["actor_type"], json.loads(event["after"])["operations"]) == ("operator", 0)


def test_prune_keeps_deliveries_as_long_as_the_settings_say(command: Run, dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tampered(dead, "UPDATE deliveries SET received_at = received_at - 3 * 3600000")
    assert command("ledger", "prune").stdout == "Nothing is old enough to be deleted.\n"
    monkeypatch.setenv("QUOTEBOT_DELIVERY_KEEP_HOURS", "4")
    assert command("ledger", "prune").stdout == "Nothing is old enough to be deleted.\n"
    monkeypatch.setenv("QUOTEBOT_DELIVERY_KEEP_HOURS", "2")
    assert json.loads(command("ledger", "prune", "--json").stdout)["purged"]["deliveries"] == 6
    assert counts(dead)["deliveries"] == 0


def test_prune_keeps_tombstones_as_long_as_the_settings_say(command: Run, dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for row in read_ledger(dead, "SELECT id FROM effects WHERE state = 'failed'"):
        assert command("dead", "discard", str(row["id"]), "--reason", "off").returncode == 0
    tampered(
        dead, "UPDATE effects SET state = 'superseded', next_attempt_at = NULL, finished_at = updated_at WHERE state = 'pending'"
    )
    grow_old(dead)
    monkeypatch.setenv("QUOTEBOT_TOMBSTONE_KEEP_DAYS", "8")
    assert command("ledger", "prune").returncode == 0
    periods = read_ledger(dead, "SELECT expires_at - (SELECT max(at) FROM audit_events) AS ms FROM tombstones")
    assert {round(row["ms"] / DAY_MS) for row in periods} == {8}


def test_prune_refuses_deliveries_that_a_source_may_still_repeat(command: Run, dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = counts(dead)
    monkeypatch.setenv("QUOTEBOT_DELIVERY_KEEP_HOURS", "1")
    done = command("ledger", "prune")
    assert (done.returncode, done.stdout) == (78, "")
    assert "QUOTEBOT_DELIVERY_KEEP_HOURS" in done.stderr
    assert counts(dead) == before
