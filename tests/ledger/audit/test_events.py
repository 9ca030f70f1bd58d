"""Tests that the audit records every move: after any walk, each row's history follows from its audit alone."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.checks.wakeups import asleep_for_good
from ledger.audit.events import LEDGER_EVENTS
from ledger.ledger import Ledger, StaleFenceError, no_follow_ups
from ledger.operator.actions import cancel_effect, cancel_operation, retry_effect_now, retry_operation_now
from ledger.operator.dead_letters import DeadLetters
from ledger.records import AuditEvent, Delivered, Drop, Fail, FollowUps, Hold, Outcome, Retry, Trouble, Uncertain
from ledger.recovery import begin_epoch, give_back, take_back
from tests.ledger.parts import (
    AUDIT,
    QUOTE,
    START_MS,
    TROUBLE,
    Desk,
    ManualClock,
    applied,
    intent,
    request,
    restart,
    sure,
)
from tests.ledger.places import temporary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledger.database import Row, Tx
    from ledger.records import Effect, Operation
    from tests.ledger.places import Place
    from tests.postgres import Server

# Triggers that record each move of a row.
SPY = (
    "CREATE TABLE moves (id INTEGER PRIMARY KEY, machine TEXT NOT NULL, moved INTEGER NOT NULL, target TEXT NOT NULL)",
    *(
        f"CREATE TRIGGER spy_{table}_{name} AFTER {change} ON {table} WHEN {when} BEGIN"  # noqa: S608 -- own names
        f" INSERT INTO moves (machine, moved, target) VALUES ('{table[:-1]}', NEW.id, NEW.state); END"
        for table in ("operations", "effects")
        for name, change, when in (("born", "INSERT", "1"), ("moved", "UPDATE OF state", "NEW.state <> OLD.state"))
    ),
)
SPY_OF_POSTGRES = (
    "CREATE TABLE moves (id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY, machine TEXT, moved BIGINT, target TEXT)",
    (
        "CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO moves (machine, moved, target) VALUES (TG_ARGV[0], NEW.id, NEW.state); RETURN NULL; END $$"
    ),
    *(
        f"CREATE TRIGGER spy_{table}_{name} AFTER {change} ON {table} FOR EACH ROW {when} EXECUTE FUNCTION spy('{table[:-1]}')"
        for table in ("operations", "effects")
        for name, change, when in (("born", "INSERT", ""), ("moved", "UPDATE OF state", "WHEN (NEW.state <> OLD.state)"))
    ),
)
# The state to which each event moves its row; events without a move are not listed.
MEANING: Final = {
    "operation.reserved": {"reserved"},
    "operation.claimed": {"in_progress"},
    "operation.applied": {"completed"},
    "operation.retry_scheduled": {"failed_retryable"},
    "operation.released": {"reserved"},
    "operation.shelved": {"reserved"},
    "operation.cancelled": {"discarded"},
    "operation.discarded": {"discarded"},
    "effect.cancelled": {"discarded"},
    "effect.discarded": {"discarded"},
    "effect.resolved": {"delivered", "pending"},
    "operation.replayed": {"reserved"},
    "effect.claimed": {"in_flight"},
    "effect.delivered": {"delivered"},
    "effect.retry_scheduled": {"pending"},
    "effect.uncertain": {"uncertain"},
    "effect.superseded": {"superseded"},
    "effect.released": {"pending", "uncertain"},
    "effect.replayed": {"pending", "uncertain"},
    "system.error": {"failed", "failed_terminal"},
}
ABOUT_NO_ROW: Final = {  # class.half_open: an operator resumed it
    *("class.half_open", "delivery.dropped", "retention.purged", "audit.exported", "audit.key_rotated"),
    *(
        "ledger.restored",
        "ledger.migrated",
        "ledger.rebuilt",
        "ledger.moved",
        "ledger.move_undone",
        "history.bound",
        "history.bound_from",
    ),
}
OWED = (
    intent(),
    intent("slack.card", "convergent", supersede_key="card"),
    intent("crm.create", "keyed"),
    intent("slack.reply", "repeat_once", "U1"),
)


@dataclass
class Walk:
    """A random walk over the ledger. It keeps every claim, so that it also tries to settle lost ones."""

    desk: Desk
    operations: list[Operation] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    async def reserve(self, number: int) -> None:
        await self.desk.reserve(f"r{number % 7}", aggregate_id=f"Q-{number % 3}", fingerprint=f"{number % 11 == 0}")

    async def claim_operation(self, _: int) -> None:
        operation = await self.desk.ledger.claim_operation()
        self.operations += [] if operation is None else [operation]

    async def claim_some(self, number: int) -> None:
        self.effects += await self.desk.ledger.claim_effects({owed.effect_class: number % 2 + 1 for owed in OWED[number % 3 :]})

    async def execute(self, number: int) -> None:
        def fail(_: Tx) -> Outcome:
            raise ArithmeticError

        if self.operations:
            operation = self.operations[-1 - number // 5 % min(2, len(self.operations))]
            decide = fail if number % 5 == 0 else applied(*OWED[: number % 5])
            try:
                await self.desk.ledger.execute(operation, decide)
            except (ArithmeticError, StaleFenceError):
                return

    async def give_up_operation(self, number: int) -> None:
        if self.operations:
            operation = self.operations[-1 - number // 2 % min(2, len(self.operations))]
            if number % 2:
                await self.desk.ledger.retry_operation(operation, TROUBLE, number)
            else:
                await self.desk.ledger.fail_operation(operation, TROUBLE, {}, OWED[:1])

    async def settle(self, number: int) -> None:
        def follow(_: Tx, settled: Effect) -> FollowUps:
            return FollowUps(OWED[1:2]) if settled.effect_class == "crm.create" else FollowUps()

        settlements = (
            Delivered("r", {}),
            Retry(TROUBLE, number),
            Uncertain(TROUBLE, number),
            Fail(TROUBLE),
            Drop(TROUBLE),
            Hold(TROUBLE),
        )
        if self.effects:
            effect = self.effects[-1 - number // 6 % min(4, len(self.effects))]
            await self.desk.ledger.settle(effect, settlements[number % len(settlements)], follow)

    async def die(self, number: int) -> None:
        if number % 2:
            await give_back(self.desk.ledger)
        self.desk = await restart(self.desk)
        await take_back(self.desk.ledger)

    async def replay(self, number: int) -> None:
        letters = DeadLetters(self.desk.ledger, build="2")
        for letter in (await letters.list())[: 1 + number % 2]:
            await letters.replay(letter.reference, actor="ops", reason=None, follow=no_follow_ups)

    async def wait(self, number: int) -> None:
        self.desk.clock.advance(number * 10)
        for effect_class in {effect.effect_class for effect in self.effects}:
            await self.desk.ledger.resume(effect_class, "ops")


VERBS: tuple[Callable[[Walk, int], Awaitable[None]], ...] = (
    *(Walk.reserve, Walk.claim_operation, Walk.execute, Walk.execute, Walk.give_up_operation),
    *(Walk.claim_some, Walk.claim_some, Walk.settle, Walk.settle, Walk.die, Walk.replay, Walk.wait),
)
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 60)), min_size=20, max_size=60)


def audited_as_moved(desk: Desk) -> None:
    """Compare every row's moves with its audit, in order."""
    told: dict[tuple[str, int], list[set[str]]] = {}
    of_key = {row["operation_key"]: row["id"] for row in desk.rows("SELECT id, operation_key FROM operations")}
    of_effect_key = {row["effect_key"]: row["id"] for row in desk.rows("SELECT id, effect_key FROM effects")}
    for row in desk.rows("SELECT * FROM audit_events ORDER BY id"):
        for key in owed_keys(row):
            told.setdefault(("effect", of_effect_key[key]), []).append({"pending"})
        if row["event_type"] in MEANING:
            subject = ("effect", row["effect_id"]) if row["effect_id"] else ("operation", of_key[row["operation_key"]])
            told.setdefault(subject, []).append(MEANING[row["event_type"]])
    moved: dict[tuple[str, int], list[str]] = {}
    for row in desk.rows("SELECT * FROM moves ORDER BY id"):
        moved.setdefault((row["machine"], row["moved"]), []).append(row["target"])
    assert moved.keys() == told.keys()
    for subject, targets in moved.items():
        assert len(targets) == len(told[subject])
        assert all(target in meant for target, meant in zip(targets, told[subject], strict=True)), (subject, targets)


def owed_keys(row: Row) -> list[str]:
    """Return the keys of the effects that an event records as enqueued."""
    after = json.loads(row["after"]) if row["after"] else {}
    if row["event_type"] == "effect.owed":
        return [after["key"]]
    return [owed["key"] for owed in after.get("owes", ())] if isinstance(after, dict) else []


async def walk(steps: list[tuple[Callable[[Walk, int], Awaitable[None]], int]], place: Place, spy: Sequence[str]) -> None:
    clock = ManualClock()
    database = await place.open(clock)
    epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0")
    shell = place.shell()
    for statement in spy:
        shell.execute(statement)
    walker = Walk(Desk(Ledger(database, clock, AUDIT, epoch=epoch), clock, shell))
    try:
        for request_id in ("first", "second"):
            await walker.desk.owe(*OWED, request_id=request_id)
        for verb, number in steps:
            await verb(walker, number)
            audited_as_moved(walker.desk)  # the shell sees commits only: a move and its audit row came in the same one
            assert asleep_for_good(shell) == []
    finally:
        await database.close()


@settings(max_examples=40)
@given(STEPS)
def test_on_any_walk_every_move_of_a_row_has_its_audit_row_in_the_same_commit(
    steps: list[tuple[Callable[[Walk, int], Awaitable[None]], int]],
) -> None:
    with temporary() as place:
        asyncio.run(walk(steps, place, SPY))


@settings(max_examples=6)
@given(STEPS)
def test_on_postgres_every_move_of_a_row_has_its_audit_row_in_the_same_commit(
    postgres: Server, steps: list[tuple[Callable[[Walk, int], Awaitable[None]], int]]
) -> None:
    from tests.ledger.postgres.places import create  # noqa: PLC0415 -- imports the driver

    with closing(create(postgres)) as place:
        asyncio.run(walk(steps, place, SPY_OF_POSTGRES))
    postgres.drop(place.address)


async def test_an_event_of_an_unregistered_type_is_refused_with_its_whole_transaction(desk: Desk) -> None:
    def work(tx: Tx) -> None:
        tx.one("begin_hold", name="c", cause="operator", now=1)
        desk.ledger.audit.append(tx, 1, "quote.teleported", actor="x", actor_type="system")

    with pytest.raises(ValueError, match=r"quote\.teleported is not a registered audit event type"):
        await desk.ledger.database.write("teleport", work)
    assert desk.value("SELECT count(*) FROM holds") == 0


# Per event about a row: attempts, failure category, recovery action, actor and its type, as the walk below leaves them.
FIELDS: Final[dict[str, set[tuple[int | None, str | None, str | None, str, str]]]] = {
    "class.held": {(1, "transient", "wait", "quotebot", "system")},
    "class.paused": {(0, "auth", "resume", "quotebot", "system")},
    "class.resumed": {(0, None, None, "quotebot", "system"), (None, None, None, "quotebot", "system")},
    "dead_letter.payload_shown": {(3, "transient", None, "ops", "operator")},
    "delivery.conflict": {(0, None, None, "U0REP", "user")},
    "delivery.duplicate": {(0, None, None, "U0REP", "user")},
    "effect.cancelled": {(0, None, "cancel", "U0REP", "user")},
    "effect.claimed": {
        (0, None, None, "quotebot", "system"),
        (1, None, None, "quotebot", "system"),
        (2, None, None, "quotebot", "system"),
    },
    "effect.delivered": {(1, None, None, "quotebot", "system")},
    "effect.discarded": {(1, "mapping", "discard", "ops", "operator")},
    "effect.hastened": {(1, "transient", "reconcile", "U0REP", "user"), (2, "transient", "retry", "U0REP", "user")},
    "effect.late_result": {(0, None, None, "quotebot", "system")},
    "effect.owed": {(1, None, None, "quotebot", "system")},
    "effect.released": {(0, "auth", "resume", "quotebot", "system"), (0, "transient", "retry", "quotebot", "system")},
    "effect.replayed": {(3, "transient", "reconcile", "ops", "operator")},
    "effect.resolved": {(1, "uncertain", "resolve", "ops", "operator")},
    "effect.retry_scheduled": {(2, "transient", "retry", "quotebot", "system")},
    "effect.superseded": {(0, None, None, "quotebot", "system")},
    "effect.uncertain": {(0, "transient", "reconcile", "quotebot", "system"), (1, "transient", "reconcile", "quotebot", "system")},
    "operation.applied": {(1, None, None, "U0REP", "user")},
    "operation.cancelled": {(0, None, "cancel", "U0REP", "user")},
    "operation.claimed": {(0, None, None, "quotebot", "system"), (1, None, None, "quotebot", "system")},
    "operation.discarded": {(1, "transient", "discard", "ops", "operator")},
    "operation.hastened": {(1, "transient", "retry", "U0REP", "user")},
    "operation.late_result": {(0, None, None, "quotebot", "system")},
    "operation.refused": {(1, None, None, "U0REP", "user")},
    "operation.released": {(0, "transient", "retry", "quotebot", "system")},
    "operation.replayed": {(2, "internal", "retry", "ops", "operator")},
    "operation.reserved": {(0, None, None, "U0REP", "user")},
    "operation.resubmitted": {(0, "transient", "resubmit", "ops", "operator")},
    "operation.retry_scheduled": {(1, "transient", "retry", "quotebot", "system")},
    "operation.shelved": {(1, "needs_newer_build", "retry", "quotebot", "system")},
    "quote.moved": {(1, None, None, "quotebot", "system")},
    "system.error": {
        (0, "expired", "replay", "quotebot", "system"),
        (1, "mapping", "replay", "quotebot", "system"),
        (1, "transient", "replay", "quotebot", "system"),
        (1, "uncertain", "replay", "quotebot", "system"),
        (2, "internal", "replay", "quotebot", "system"),
        (3, "transient", "replay", "quotebot", "system"),
    },
}


ACT: Final[dict[str, Any]] = {"actor": "ops", "reason": "x", "follow": no_follow_ups}
WHO: Final[dict[str, Any]] = {"actor": "U0REP", "actor_type": "user"}


async def clicked(desk: Desk, work: Callable[[Tx, int], object]) -> None:
    await desk.ledger.database.write("click", lambda tx: work(tx, desk.clock.now_ms()))


async def every_event_about_a_command(desk: Desk) -> None:
    """Cause each event about a command; the applied one enqueues the effects 1 to 4."""
    ledger, letters = desk.ledger, DeadLetters(desk.ledger, build="2")
    # A command: repeated, retried, shelved, dead, replayed, applied, late.
    operation = await desk.claim_operation()
    await desk.reserve()
    await ledger.noted()
    await desk.reserve(fingerprint="another meaning")
    await ledger.retry_operation(operation, TROUBLE, 60_000)
    await clicked(desk, lambda tx, now: retry_operation_now(ledger, tx, 1, **WHO, now=now, cycle_seen=1))
    await ledger.shelve_operation(sure(await ledger.claim_operation()), "newer", 0)
    await ledger.fail_operation(sure(await ledger.claim_operation()), Trouble("internal", "no"), {}, ())
    await letters.replay("op1", **ACT)
    operation = sure(await ledger.claim_operation())
    await ledger.execute(operation, applied(*OWED))
    with pytest.raises(StaleFenceError):
        await ledger.execute(operation, applied())
    # Commands that are refused, discarded and cancelled.
    refused = await desk.claim_operation("refused")
    await ledger.execute(refused, lambda _: Outcome("refused", {"code": "no"}))
    await ledger.fail_operation(await desk.claim_operation("dead"), TROUBLE, {}, ())
    await letters.discard("op3", **ACT)
    await desk.reserve("cancelled")
    await clicked(desk, lambda tx, now: cancel_operation(ledger, tx, 4, **WHO, reason="x", now=now, answer=lambda *_: ({}, ())))
    # A dead command that an edited copy replaces; the copy is cancelled.
    await ledger.fail_operation(await desk.claim_operation("wrong"), TROUBLE, {}, ())
    await letters.resubmit("op5", request("right", replaces_id=5), actor="ops", reason="x")
    await clicked(desk, lambda tx, now: cancel_operation(ledger, tx, 6, **WHO, reason="x", now=now, answer=lambda *_: ({}, ())))


async def every_event_about_an_effect(desk: Desk) -> None:
    """Cause each event about an effect."""
    ledger, letters = desk.ledger, DeadLetters(desk.ledger, build="2")
    # In doubt, looked for at a click, retried, retried now at a click, dead, replayed, delivered, late.
    (post,) = await ledger.claim_effects({"slack.post": 1})
    await ledger.settle(post, Uncertain(TROUBLE, 60_000))
    await clicked(desk, lambda tx, now: retry_effect_now(ledger, tx, 1, **WHO, now=now, cycle_seen=1))
    (post,) = await ledger.claim_effects({"slack.post": 1})
    await ledger.settle(post, Retry(TROUBLE, 60_000, hold_until=START_MS))
    await clicked(desk, lambda tx, now: retry_effect_now(ledger, tx, 1, **WHO, now=now, cycle_seen=1))
    (post,) = await ledger.claim_effects({"slack.post": 1})
    await ledger.settle(post, Fail(TROUBLE))
    await letters.record_payload_shown(sure(await letters.show("1")), "ops")
    await letters.replay("1", **ACT)
    (post,) = await ledger.claim_effects({"slack.post": 1})
    await ledger.settle(post, Delivered("r", {}), lambda *_: FollowUps(OWED[1:2], (AuditEvent("quote.moved", QUOTE),)))
    await ledger.settle(post, Delivered("r", {}))
    # A refused login, a resumed class, an effect that is resolved, one that is discarded, one that is cancelled.
    (create,) = await ledger.claim_effects({"crm.create": 1})
    await ledger.settle(create, Hold(Trouble("auth", "refused")))
    await ledger.resume("crm", "ops")
    (create,) = await ledger.claim_effects({"crm.create": 1})
    await ledger.settle(create, Fail(Trouble("uncertain", "no answer", maybe_sent=True)))
    await letters.resolve(str(create.id), delivered=False, **ACT)
    (create,) = await ledger.claim_effects({"crm.create": 1})
    await ledger.settle(create, Fail(Trouble("mapping", "no")))
    await letters.discard(str(create.id), **ACT)
    await clicked(desk, lambda tx, now: cancel_effect(ledger, tx, 4, **WHO, reason="x", now=now, follow=no_follow_ups))
    # A crash with a command, an append and a card under way, then an effect that grew too old.
    await ledger.execute(await desk.claim_operation("last"), applied(*OWED[:2]))
    await desk.claim_operation("crashed")
    assert len(await desk.claim_each()) == 2
    desk = await restart(desk)
    await take_back(desk.ledger)
    await desk.ledger.claim_effects({"slack.card": 1}, max_age_ms={"slack.card": -1})


async def test_every_event_about_a_row_has_its_six_fields(desk: Desk) -> None:
    await every_event_about_a_command(desk)
    await every_event_about_an_effect(desk)
    found: dict[str, set[tuple[Any, ...]]] = {}
    keys = {row["id"]: (row["operation_key"], row["correlation_id"]) for row in desk.rows("SELECT * FROM operations")}
    owners = {row["id"]: row["operation_id"] for row in desk.rows("SELECT id, operation_id FROM effects")}
    for event in desk.rows("SELECT * FROM audit_events ORDER BY id"):
        named = (event["operation_key"], event["correlation_id"])
        if event["effect_id"] is not None:
            assert named == keys[owners[event["effect_id"]]], event["event_type"]
        elif event["event_type"] not in {*ABOUT_NO_ROW, "class.resumed"}:  # that hold ended by itself
            assert named in keys.values(), event["event_type"]
        told = ("retry_count", "failure_category", "recovery_action", "actor", "actor_type")
        found.setdefault(event["event_type"], set()).add(tuple(event[name] for name in told))
    assert {name: fields for name, fields in found.items() if name not in ABOUT_NO_ROW} == FIELDS
    assert FIELDS.keys() | ABOUT_NO_ROW == LEDGER_EVENTS | {"quote.moved"}


def test_every_event_of_the_ledger_is_a_move_or_known_to_be_none() -> None:
    no_move = {"operation.late_result", "effect.late_result", "delivery.duplicate", "delivery.conflict"}
    no_move |= {"class.paused", "class.held", "class.half_open", "class.resumed", "dead_letter.payload_shown", "delivery.dropped"}
    no_move |= {"retention.purged", "audit.exported", "audit.key_rotated", "ledger.restored", "ledger.migrated", "ledger.rebuilt"}
    no_move |= {"ledger.moved", "ledger.move_undone"}
    no_move |= {"effect.hastened", "operation.hastened", "operation.resubmitted", "history.bound", "history.bound_from"}
    births = {"effect.owed"}  # also created: the `owes` of an applied command
    assert {*MEANING, *no_move, *births, "operation.refused"} == LEDGER_EVENTS
