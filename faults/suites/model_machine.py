"""Drives the production ledger and the model in parallel: any verb, in any order; after each they must agree on every row."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from faults.checks.wakeups import asleep_for_good
from faults.lab.database import InlineDatabase
from faults.lab.loop import LabClock, VirtualLoop
from faults.suites.model_gates import Gate
from faults.suites.model_ledger import SEMANTICS, ExpectedEffect, Fx, Model, Op, Verdict
from ledger import keys
from ledger.audit.events import Audit, Keyring
from ledger.audit.verification import verify
from ledger.database import load_statements
from ledger.ledger import Ledger, StaleFenceError, no_follow_ups
from ledger.migrations import Migration
from ledger.operator.actions import cancel_effect, cancel_operation
from ledger.operator.dead_letters import DeadLetters
from ledger.records import (
    DeadNotice,
    DedupeResult,
    Delivered,
    Drop,
    Effect,
    EffectIntent,
    Fail,
    FollowUps,
    Hold,
    Operation,
    Outcome,
    Request,
    Retry,
    Settlement,
    Trouble,
    Uncertain,
)
from ledger.recovery import begin_epoch, give_back, take_back
from ledger.retention import purge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

T = TypeVar("T")
KEYRING: Final = Keyring.of(b"m" * 32)
QUOTES: Final = ("Q-1", "Q-2")
LANES: Final = (*QUOTES, "new")
NAMES: Final = (*SEMANTICS, "slack", "crm")
SECOND, DAY, YEAR = 1_000, 86_400_000, 365 * 86_400_000
JUMPS: Final = (1, SECOND, 5 * SECOND, 31 * SECOND, 600 * SECOND, DAY, 8 * DAY, 40 * DAY, YEAR, 2 * YEAR, -1, -3600 * SECOND, -YEAR)
ANSWER: Final = ExpectedEffect("slack.reply", QUOTES[0])

OPERATIONS: Final = """
SELECT id, state, next_attempt_at, updated_at, claims, attempts, fence, cycle, ever_failed, retain_until FROM operations ORDER BY id
"""
EFFECTS: Final = """
SELECT id, state, next_attempt_at, updated_at, claims, attempts, fence, cycle, ever_failed, maybe_sent, steps, aged_from
FROM effects ORDER BY id
"""
CLAIMS: Final = """
SELECT epoch FROM operations WHERE state = 'in_progress' UNION ALL SELECT epoch FROM effects WHERE state = 'in_flight'
"""
GATES: Final = """
SELECT name, state, CASE WHEN state = 'held' THEN cause END, held_at, until_at, resumed_at, failures FROM gates
"""
WANTED: Final = {  # the states in which an action is meaningful
    "replay": ("failed", "failed_terminal"),
    "look": ("uncertain",),
    "discard": ("failed", "failed_terminal"),
    "cancel": ("reserved", "failed_retryable", "pending"),
    "it is there": ("uncertain", "failed"),
    "send it again": ("uncertain", "failed"),
}

pick = st.integers(0, 60)  # index of one of the present rows, modulo their number
wait = st.sampled_from((0, SECOND, 60 * SECOND))
yes_or_no = st.booleans()
# Drawn as a whole, one number each: faster to draw, and equally good to shrink.
deeds = st.lists(
    st.sampled_from(
        [
            (cls, target, after, expires, not_before)
            for expires, not_before in ((None, None), (None, None), (None, None), (30 * SECOND, None), (None, 10 * SECOND))
            for after in (None, None, "sibling", 0, 1)  # the parent: none, the previous one in the list, a known row
            for target in QUOTES
            for cls in SEMANTICS
        ]
    ),
    max_size=3,
)
verdicts = st.sampled_from(
    [
        Verdict(kind, delay, spent, sent, unknown, unavailable, until)
        for delay, until in ((0, None), (SECOND, None), (60 * SECOND, None), (SECOND, 5 * SECOND))
        for spent, sent, unknown, unavailable in product((True, False), (False, True), (False, True), (False, True))
        for kind in ("delivered", "delivered", "retry", "doubt", "bury", "drop", "hold")
    ]
)


@dataclass(slots=True)
class RunCounts:
    """Totals over the runs of one machine."""

    steps: int = 0
    runs: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    walked: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Template:
    """An empty ledger file to copy, with its statements and migrations. Only the ledger's own schema, no domain."""

    path: Path
    statements: Mapping[str, str]
    migrations: Sequence[Migration]

    @classmethod
    def make(cls, folder: Path) -> Template:
        """Make a template in this folder."""
        home = files("ledger")
        schema = sorted(
            (file.name, file.read_text("utf-8")) for file in home.joinpath("schema").iterdir() if file.name.endswith(".sql")
        )
        statements = load_statements([home.joinpath("queries.sql").read_text("utf-8")])
        made = cls(folder / "empty.db", statements, [Migration("ledger", *each) for each in schema])
        clock = LabClock()
        with closing(VirtualLoop(clock)) as loop:
            database = loop.run_until_complete(made.open(made.path, clock, Audit(frozenset(), KEYRING)))
            loop.run_until_complete(database.close())
        return made

    async def open(self, path: Path, clock: LabClock, audit: Audit) -> InlineDatabase:
        """Open a ledger file as the bot does."""
        return await InlineDatabase.open(
            path, statements=self.statements, migrations=self.migrations, clock=clock, finish=audit.chain
        )


class LedgerMachine(RuleBasedStateMachine):
    """One run: a ledger file, a process on it, its model. `tally` counts; `template` is an empty ledger to copy."""

    tally: ClassVar[RunCounts]
    template: ClassVar[Template]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="model-", dir=self.template.path.parent))
        self.path = self.folder / "ledger.db"
        shutil.copyfile(self.template.path, self.path)
        self.clock = LabClock()
        self.loop = VirtualLoop(self.clock)
        self.audit = Audit(frozenset(), KEYRING)
        self.database = self.do(self.template.open(self.path, self.clock, self.audit))
        self.shell = sqlite3.connect(self.path, isolation_level=None)
        self.model = Model()
        self.asked: list[tuple[str, str, int, str]] = []
        self.held_ops: list[Operation] = []
        self.held_fxs: list[Effect] = []
        self.stale: list[tuple[Ledger, Operation | Effect]] = []
        self.told: list[tuple[str, int]] = []
        self.names: dict[str, str] = {}  # a command's name in events, by key: the name of the first command with that key
        self.alias: dict[str, str] = {}  # from the model's names to those
        self.seen_events = self.seen_tries = 0
        self.started = False
        self._new_process()

    def teardown(self) -> None:
        """Check that the audit chain is complete, and that no row was changed without an event."""
        try:
            _same(self.do(verify(self.database, KEYRING)).finding, None)
        finally:
            self.tally.runs += 1
            self.tally.walked |= self.model.walked
            self.shell.close()
            self.do(self.database.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def do(self, work: Awaitable[T]) -> T:
        """Run a verb to its end."""
        return self.loop.run_until_complete(work)

    @property
    def now(self) -> int:
        """The wall clock (ms)."""
        return self.clock.now_ms()

    # -------------------------------------------------------------------------------------------------------- commands

    @rule(lane=st.sampled_from(LANES), payload=st.integers(0, 1))
    def reserve_new(self, lane: str, payload: int) -> None:
        """Reserve a new command."""
        self._reserve(f"r{len(self.asked)}", lane, payload, "as told")

    @precondition(lambda self: self.asked)
    @rule(which=pick, twist=st.sampled_from(("none", "none", "payload", "meaning")))
    def reserve_again(self, which: int, twist: str) -> None:
        """Repeat an earlier delivery; or its request id with another payload (a new build), or with another meaning."""
        request, lane, payload, meaning = self.asked[which % len(self.asked)]
        payload = 1 - payload if twist == "payload" else payload
        self._reserve(request, lane, payload, "something else" if twist == "meaning" else meaning)

    def _reserve(self, request: str, lane: str, payload: int, meaning: str) -> None:
        asked = Request(
            source="slack_slash",
            source_request_id=request,
            action_kind="quote.submit",
            aggregate_id=lane,
            aggregate_version=None,
            payload={"n": payload},
            fingerprint=meaning,
            actor="U0REP",
            actor_type="user",
            team_id="T1",
            received_at=self.now,
        )
        answer = self.do(self.ledger.reserve(asked))
        self.do(self.ledger.noted())
        expected = self.model.reserve(self.now, request, (request, lane, payload), meaning, None if lane == "new" else lane)
        _same([(answer.sighting.value, answer.operation.id)], [expected])
        if answer.sighting is DedupeResult.NEW:  # a purged command may return as a new one
            name = f"op{expected[1]}"
            self.alias[name] = self.names.setdefault(answer.operation.operation_key, name)
        if request not in {known[0] for known in self.asked}:
            self.asked.append((request, lane, payload, meaning))

    @rule(limit=st.integers(1, 4))
    def claim_operations(self, limit: int) -> None:
        """Claim due commands."""
        claimed = self.do(self.ledger.claim_operations(limit))
        _same([operation.id for operation in claimed], self.model.claim_ops(self.now, limit))
        self.held_ops += claimed

    @rule(lane=st.sampled_from(LANES), owed=deeds)
    def command(self, lane: str, owed: Any) -> None:
        """Take a command from its delivery to its effects, if nothing blocks it."""
        self._reserve(f"r{len(self.asked)}", lane, 0, "as told")
        self.claim_operations(1)
        if self.held_ops:
            self.execute(-1, "applied", 0, owed)

    @precondition(lambda self: self.held_ops)
    @rule(which=pick, outcome=st.sampled_from(("applied", "refused")), retain=st.sampled_from((None, 0, DAY)), owed=deeds)
    def execute(self, which: int, outcome: Any, retain: int | None, owed: Any) -> None:
        """Execute a claimed command, with its effects."""
        operation = self._drawn_op(which)
        intents, expected = self._effects(owed, operation.operation_key)
        until = None if retain is None else self.now + retain
        decided = Outcome(outcome, {"code": "ok"}, intents, retain_until=until)
        self.do(self.ledger.execute(operation, lambda _: decided))
        _same({self.model.execute(self.now, operation.id, operation.fence, outcome, until, expected)}, {True})

    @precondition(lambda self: self.held_ops)
    @rule(which=pick, how=st.sampled_from(("retry", "bury", "shelve", "raise")), delay=wait, answered=yes_or_no)
    def fail_operation(self, which: int, how: str, delay: int, answered: bool) -> None:  # noqa: FBT001 -- drawn by name
        """Retry later, give up (with a notification), leave it to a newer build; or fail in the middle, which changes nothing."""
        if how == "raise":
            self._execution_fails(self.held_ops[which % len(self.held_ops)])
        else:
            self._settle_op(self.ledger, self._drawn_op(which), how, delay, (ANSWER,) if answered else ())

    def _settle_op(self, ledger: Ledger, claim: Operation, how: str, delay: int, owed: Sequence[ExpectedEffect]) -> None:
        at = (self.now, claim.id, claim.fence)
        if how == "retry":
            self.do(ledger.retry_operation(claim, Trouble("internal", "a bug"), delay))
        elif how == "shelve":
            self.do(ledger.shelve_operation(claim, "of a newer build", delay))
        else:
            self.do(ledger.fail_operation(claim, Trouble("internal", "a bug"), {}, tuple(map(intent_of, owed))))
        self.model.settle_op(*at, how, delay, owed)

    def _execution_fails(self, operation: Operation) -> None:
        def decide(tx: Any) -> Outcome:
            tx.one("put_meta", name="half done", value="1")
            raise ArithmeticError

        try:
            self.do(self.ledger.execute(operation, decide))
        except ArithmeticError:
            _same(self._rows("SELECT value FROM meta WHERE name = 'half done'"), [])
        else:
            raise AssertionError("the failure of a decision was lost")

    # --------------------------------------------------------------------------------------------------------- effects

    @rule(verdict=verdicts, owed=deeds)
    def work(self, verdict: Verdict, owed: Any) -> None:
        """Claim every due effect, and settle one of the held effects."""
        self.claim_effects(set(), 3, None)
        if self.held_fxs:
            self.settle(0, verdict, owed)

    @rule(
        without=st.sets(st.sampled_from(tuple(SEMANTICS)), max_size=2), each=st.integers(1, 3), max_age=st.sampled_from((None, DAY))
    )
    def claim_effects(self, without: set[str], each: int, max_age: int | None) -> None:
        """Claim due effects, up to `each` of each class."""
        slots = {name: each for name in SEMANTICS if name not in without}
        ages = {} if max_age is None else {"slack.card": max_age, "crm.create": max_age, "slack.post": max_age}
        claimed = self.do(self.ledger.claim_effects(slots, max_age_ms=ages))
        _same([(effect.id, effect.reconciling) for effect in claimed], self.model.claim_fxs(self.now, slots, ages))
        self.held_fxs += claimed

    @precondition(lambda self: self.held_fxs)
    @rule(which=pick, verdict=verdicts, owed=deeds)
    def settle(self, which: int, verdict: Verdict, owed: Any) -> None:
        """Record the result of an attempt, with its follow-up effects."""
        effect = self.held_fxs.pop(which % len(self.held_fxs))
        if verdict.until is not None:
            verdict = verdict._replace(until=self.now + verdict.until)
        intents, expected = self._effects(owed, None)
        settled = self.do(self.ledger.settle(effect, settlement_of(verdict), lambda _tx, _effect: FollowUps(intents)))
        _same(settled is not None, self.model.settle(self.now, effect.id, effect.fence, verdict, expected))
        self.stale.append((self.ledger, effect))

    @precondition(lambda self: self.held_fxs)
    @rule(which=pick, step=st.sampled_from((0, 1, None)))
    def record_step(self, which: int, step: int | None) -> None:
        """Make one step of several durable, or forget the steps."""
        index = which % len(self.held_fxs)
        effect = self.held_fxs[index]
        recording = self.ledger.forget_steps(effect) if step is None else self.ledger.record_step(effect, str(step), {})
        self.held_fxs[index] = self.do(recording)
        _same({self.model.record_step(self.now, effect.id, effect.fence, step)}, {True})

    @precondition(lambda self: self.stale)
    @rule(which=pick, verdict=verdicts, how=st.sampled_from(("execute", "retry", "bury", "shelve")))
    def come_late(self, which: int, verdict: Verdict, how: str) -> None:
        """A worker that was suspended settles a claim that it no longer holds."""
        ledger, claim = self.stale[which % len(self.stale)]
        if isinstance(claim, Effect):
            _same(self.do(ledger.settle(claim, settlement_of(verdict._replace(until=None)))), None)
            _same({self.model.settle(self.now, claim.id, claim.fence, verdict)}, {False})
            self._refused(ledger.record_step(claim, "late", {}))
        elif how == "execute":
            self._refused(ledger.execute(claim, lambda _: Outcome("applied", {}, (intent_of(ANSWER),))))
            self.model.execute(self.now, claim.id, claim.fence, "applied", None, ())
        else:
            self._settle_op(ledger, claim, how, 0, (ANSWER,))

    # ------------------------------------------------------------------------------------- processes, clocks and people

    @rule(how=st.sampled_from(("crash", "crash", "stop")))
    def interrupt(self, how: str) -> None:
        """The process crashes, or stops and releases its rows. The next one releases what was held."""
        self.stale += [(self.ledger, operation) for operation in self.held_ops]
        self.stale += [(self.ledger, effect) for effect in self.held_fxs]
        if how == "stop":
            self.do(give_back(self.ledger))
            self.model.stop(self.now)
        self._new_process()

    def _new_process(self) -> None:
        epoch = self.do(begin_epoch(self.database, self.now, role="bot", build="1"))
        self.ledger = Ledger(self.database, self.clock, self.audit, epoch=epoch, on_dead=self._receive)
        self.letters = DeadLetters(self.ledger, build="1")
        self.held_ops, self.held_fxs = [], []
        self.do(take_back(self.ledger, answer=lambda _tx, _operation: [intent_of(ANSWER)]))
        self.model.crash(self.now, ANSWER)

    def _receive(self, notice: DeadNotice) -> None:
        self.told.append((f"{'fx' if notice.kind == 'effect' else 'op'}{notice.id}", notice.cycle))

    @rule(by=st.sampled_from(JUMPS), tidy=yes_or_no)
    def pass_time(self, by: int, tidy: bool) -> None:  # noqa: FBT001 -- drawn by name
        """Time passes, or the clock is set; after days, retention may purge."""
        self.clock.put(by)
        if tidy and by >= DAY:
            self.do(purge(self.ledger, self.now, dry_run=False, between=_at_once))
            self.model.purge(self.now)

    @rule(name=st.sampled_from(NAMES), on=yes_or_no)
    def put_gate(self, name: str, on: bool) -> None:  # noqa: FBT001 -- drawn by name
        """An operator holds a class or a family, or resumes it."""
        if on:
            _same(self.do(self.ledger.pause(name, "ops", "maintenance")), self.model.pause(name, self.now))
        else:
            _same(self.do(self.ledger.resume(name, "ops")), self.model.resume(name, self.now))

    @precondition(lambda self: self.model.ops)
    @rule(which=pick, word=st.sampled_from(tuple(WANTED)), anything=st.sampled_from((False, False, False, True)), delay=wait)
    def say(self, which: int, word: str, anything: bool, delay: int) -> None:  # noqa: FBT001 -- drawn by name
        """A person decides about a row: one to which the action applies or, occasionally, any."""
        rows: list[Op | Fx] = [*self.model.fxs.values(), *self.model.ops.values()]
        rows = [row for row in rows if row.state in WANTED[word] and not anything] or rows
        row = rows[which % len(rows)]
        name, reference = row.name, row.name.removeprefix("fx")
        if word in ("replay", "look"):
            due, look = self.now + delay, word == "look"
            self.do(self.letters.replay(reference, actor="ops", reason=None, follow=no_follow_ups, due_at=due, look_now=look))
            self.model.replay(self.now, name, due, look=look)
        elif word == "discard":
            self.do(self.letters.discard(reference, actor="ops", reason="gone", follow=no_follow_ups))
            self.model.discard(self.now, name)
        elif word == "cancel":
            self.do(self._cancelling(row))
            self.model.cancel(self.now, name)
        else:
            there = word == "it is there"
            self.do(self.letters.resolve(reference, delivered=there, actor="ops", reason="I looked", follow=no_follow_ups))
            self.model.resolve(self.now, name, delivered=there)

    def _cancelling(self, row: Op | Fx) -> Awaitable[object]:
        why: Mapping[str, Any] = {"actor": "ops", "reason": "typo", "now": self.now}

        def cancel(tx: Any) -> object:
            if isinstance(row, Op):
                return cancel_operation(self.ledger, tx, row.id, **why, answer=lambda *_: ({}, ()))
            return cancel_effect(self.ledger, tx, row.id, **why, follow=no_follow_ups)

        return self.database.write("cancel", cancel)

    # ------------------------------------------------------------------------------------------------------- agreement

    @invariant()
    def agree(self) -> None:
        """Check that model and ledger agree on every row, and that no row sleeps for good."""
        self.tally.steps += self.started
        self.started = True
        _same(self._rows(OPERATIONS), [(*_common(op), op.retain) for op in self.model.ops.values()])
        _same(self._rows(EFFECTS), [(*_common(fx), int(fx.sent), _steps(fx), fx.aged_from) for fx in self.model.fxs.values()])
        came = self._rows("SELECT source_request_id, operation_id, fingerprint, received_at, seen FROM deliveries ORDER BY id")
        _same(came, [(name, each.op, each.meaning, each.at, each.seen) for name, each in self.model.deliveries.items()])
        tombs = self._rows("SELECT operation_key, expires_at FROM tombstones")
        _same(
            {(self.names[key], at) for key, at in tombs},
            {(self.alias[f"op{tomb[0]}"], tomb[1]) for tomb in self.model.tombs.values()},
        )
        _same(self._rows(CLAIMS), [(self.ledger.epoch,)] * len([*self.held_ops, *self.held_fxs]))

        silent = _gate(Gate())
        gates = {row for row in self._rows(GATES) if row[1:] != silent}
        _same(gates, {(name, *_gate(gate)) for name, gate in self.model.gates.by_name.items() if _gate(gate) != silent})
        holds = self._rows("SELECT name, held_at, ended_at FROM holds ORDER BY id")
        _same(holds, [(hold.name, hold.began, hold.ended) for hold in self.model.gates.holds])

        # The audit records exactly what happened, and every event is in its chain.
        rows = self._rows("SELECT event_type, operation_key, effect_id FROM audit_events WHERE id > ?", self.seen_events)
        self.seen_events += len(rows)
        said = Counter(
            (event, f"fx{fx}" if fx is not None else self.names[key] if key is not None else "") for event, key, fx in rows
        )
        _same(said, Counter((event, self.alias.get(whose, whose)) for event, whose in self.model.events))
        self.model.events.clear()
        _same(self._rows("SELECT coalesce(sum(seq), 0), coalesce(max(event_id), 0) FROM audit_heads"), [(self.seen_events,) * 2])

        rows = self._rows("SELECT id, operation_id, effect_id, fence, outcome, kind FROM attempts ORDER BY id")
        found = [(f"op{op}" if fx is None else f"fx{fx}", fence, outcome, kind) for _, op, fx, fence, outcome, kind in rows]
        _same(found, [one for index, one in enumerate(self.model.tries) if index not in self.model.purged_tries])

        _same(asleep_for_good(self.shell), [])
        _same(self.told, self.model.told)
        self.told.clear()
        self.model.told.clear()

    # --------------------------------------------------------------------------------------------------------- private

    def _rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.shell.execute(sql, parameters).fetchall()

    def _refused(self, late: Awaitable[object]) -> None:
        try:
            self.do(late)
        except StaleFenceError:
            return
        raise AssertionError("a late result was taken")

    def _drawn_op(self, which: int) -> Operation:
        operation = self.held_ops.pop(which % len(self.held_ops))
        self.stale.append((self.ledger, operation))
        return operation

    def _effects(self, drawn: Any, cause_key: str | None) -> tuple[tuple[EffectIntent, ...], list[ExpectedEffect]]:
        """Return the drawn effects as intents and as the model's effects. A sibling parent is identified by its effect key."""
        intents, owed = [], []
        known = list(self.model.fxs)
        for number, (cls, target, after, expires, not_before) in enumerate(drawn):
            after_id, after_key = None, None
            if after == "sibling" and number and cause_key is not None:
                after_id = self.model.last_fx + number
                after_key = keys.effect_key(cause_key, drawn[number - 1][0], number - 1)
            elif isinstance(after, int) and known:
                after_id = known[-1 - after % len(known)]
                ((after_key,),) = self._rows("SELECT effect_key FROM effects WHERE id = ?", after_id)
            times = [None if each is None else self.now + each for each in (expires, not_before)]
            deed = ExpectedEffect(cls, target, after_id, *times)
            owed.append(deed)
            intents.append(intent_of(deed, after_key))
        return tuple(intents), owed


def intent_of(deed: ExpectedEffect, after: str | None = None) -> EffectIntent:
    """Return the effect as production writes it. An update's target identifies the effects that it supersedes."""
    return EffectIntent(
        deed.cls,
        SEMANTICS[deed.cls],  # type: ignore[arg-type] # the model's own words, which the test holds against production's
        deed.target,
        deed.target,
        {},
        after,
        f"{deed.cls}/{deed.target}" if SEMANTICS[deed.cls] == "convergent" else None,
        deed.expires,
        deed.not_before,
    )


def settlement_of(verdict: Verdict) -> Settlement:
    """Return the verdict as a worker's settlement."""
    category = "uncertain" if verdict.unknown else "transient"
    trouble = Trouble(category, "503", maybe_sent=verdict.sent, unavailable=verdict.unavailable)
    match verdict.kind:
        case "delivered":
            return Delivered("ref", {})
        case "retry":
            return Retry(trouble, verdict.delay, verdict.spent, verdict.until)
        case "doubt":
            return Uncertain(trouble, verdict.delay, verdict.spent, verdict.until)
        case "bury":
            return Fail(trouble)
        case "drop":
            return Drop(trouble, verdict.until)
        case _:
            return Hold(trouble)


async def _at_once() -> None:
    """Pause between two batches of a purge: does nothing here."""


def _common(row: Op | Fx) -> tuple[Any, ...]:
    return (row.id, row.state, row.due, row.touched, row.claims, row.attempts, row.fence, row.cycle, int(row.failed))


def _steps(fx: Fx) -> str:
    return "{" + ",".join(f'"{step}":{{}}' for step in fx.steps) + "}"


def _gate(gate: Gate) -> tuple[Any, ...]:
    cause = gate.cause if gate.state == "held" else None
    return (gate.state, cause, gate.since, gate.until, gate.resumed, gate.failures)


def _same(found: Any, expected: Any) -> None:
    """Raise AssertionError with the differences if the ledger (`found`) and the model (`expected`) disagree."""
    if found == expected:
        return
    here, there = found, expected
    if isinstance(found, list):
        here = [row for row in found if row not in expected] or found
        there = [row for row in expected if row not in found] or expected
    elif isinstance(found, set | Counter):
        here, there = sorted(found - expected, key=str), sorted(expected - found, key=str)
    raise AssertionError(f"the ledger says {here}, the model {there}")
