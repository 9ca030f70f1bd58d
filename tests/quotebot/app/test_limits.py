"""Tests that the limits in the settings hold in a running bot: retention, crashes until a row is given up, circuit breaker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ledger import recovery
from ledger.operator.explain import operation_facts, waiting
from quotebot.app import workers
from quotebot.app.installation import claim_settings, load_rules
from quotebot.app.workers import Ports
from quotebot.commands.payloads import SubmitQuote
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.execution.executor import Executor
from quotebot.jobs.maintenance import Housekeeper
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError, Settings, load_settings
from tests.quotebot.parts import MATRIX, create_command, request_for
from tests.rig import bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.parts import Bench

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("delivery_keep_hours", 2, 8760),
        ("closed_keep_days", 1, 3650),
        ("refused_keep_days", 1, 3650),
        ("tombstone_keep_days", 1, 3650),
        ("poison_claims", 3, 20),
        ("breaker_failures", 3, 100),
        ("breaker_effects", 1, 20),
        ("breaker_seconds", 1, 3600),
    ],
)
def test_a_limit_has_bounds(name: str, low: int, high: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    others = {"breaker_effects": {"breaker_failures": "100"}, "breaker_failures": {"breaker_effects": "1"}}.get(name, {})
    others |= {"tombstone_keep_days": "3650"} if name == "delivery_keep_hours" else {}
    others |= {"delivery_keep_hours": "2"} if name == "tombstone_keep_days" else {}
    for value in (low, high):
        assert getattr(load_settings({name: str(value), **others}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigurationError, match=name.upper()):
            load_settings({name: str(value), **others})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"breaker_failures": "3", "breaker_effects": "4"}, "breaker_effects must not be above breaker_failures"),
        ({"tombstone_keep_days": "1", "delivery_keep_hours": "25"}, "tombstone_keep_days must not be shorter"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(
    given: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=words):
        load_settings(given)


async def test_commands_are_retained_as_long_as_the_settings_say(bench: Bench) -> None:
    rules = load_rules(Settings(closed_keep_days=3, refused_keep_days=2))
    executor = Executor(bench.ledger, rules, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(SubmitQuote(), "1", quote_id="Q-2026-0099"))
    await executor.step()
    (refused,) = bench.rows("SELECT outcome, retain_until FROM operations")
    assert refused == {"outcome": "refused", "retain_until": bench.clock.now_ms() + 2 * DAY_MS}
    assert rules.keep_closed_ms == 3 * DAY_MS


@pytest.mark.parametrize(("settings", "allowed"), [({}, 3), ({"poison_claims": 5}, 5)])
async def test_a_row_is_given_up_at_as_many_crashes_as_the_settings_say(
    bench: Bench, settings: dict[str, Any], allowed: int
) -> None:
    ledger, limits = bench.ledger, claim_settings(Settings(**settings))
    await ledger.reserve(request_for(create_command(), "1"))
    for crash in range(1, allowed + 1):
        assert await ledger.claim_operation() is not None
        ledger = await bench.another_bot(**limits)
        await recovery.take_back(ledger)
        row = bench.row("SELECT * FROM operations")
        assert row["state"] == ("failed_terminal" if crash == allowed else "reserved")
        waits = waiting(await ledger.database.read(lambda tx, row=row: operation_facts(tx, row, bench.clock.now_ms())))  # type: ignore[misc]
        assert (waits.cause == "suspect") is (crash == allowed - 1), "one more crash would be the last"


async def test_a_class_is_held_after_as_many_failures_and_for_as_long_as_the_settings_say(tmp_path: Path) -> None:
    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(
            world,
            tmp_path / "bot",
            Ports(draw=lambda low, _: low),
            breaker_failures=4,
            breaker_effects=1,
            breaker_seconds=900,
        ) as deal,
    ):
        await deal.submitted_deal()
        await deal.arm("salesforce", "5xx", method="composite/graph", seconds=60)
        await deal.click("approval.approve", user="U0MANAGER")
        held = "SELECT failures, until_at - held_at AS rest_ms FROM gates WHERE name = 'crm.create' AND cause = 'breaker'"
        await eventually(lambda: deal.rows(held), "the class to be held", holds=bool)
        (gate,) = await deal.rows(held)
    assert gate == {"failures": 4, "rest_ms": 900_000}


async def test_a_bot_purges_what_is_old_enough_at_its_start(bench: Bench) -> None:
    guard: Any = SimpleNamespace(trusted=lambda: True)
    settings = Settings(data_dir=bench.path.parent, delivery_keep_hours=2, backup_hours=0)
    operation = (await bench.ledger.reserve(request_for(SubmitQuote(), "1", quote_id="Q-2026-0099"))).operation
    await Executor(bench.ledger, load_rules(settings), lambda low, _: low, MATRIX).step()
    bench.clock.advance(2 * HOUR_MS)
    sweep: Any = SimpleNamespace(sweep=no_sweep)
    jobs = workers._long_jobs(bench.ledger, settings, bench.clock, sweep, guard)
    started = Housekeeper(jobs, bench.clock)
    await started.step()
    assert len(bench.rows("SELECT 1 FROM deliveries")) == 1, "a start has work that is more urgent"
    bench.clock.advance(60_000)
    assert {"retention", "keeping"} <= set(await started.step())
    assert bench.rows("SELECT 1 FROM deliveries") == []
    assert bench.row("SELECT id FROM operations")["id"] == operation.id


async def no_sweep() -> None:
    """Sweep nothing."""
