"""Meetings of two bots on one ledger in PostgreSQL: a transaction of one runs while the other's waits for its COMMIT.

Each pair of transactions is first tried at SERIALIZABLE and rolled back. If the server refuses it, each read what the other wrote,
or only pages that the other wrote. Then the results of both orders are computed and rolled back, too. At last the pair runs as in
production, at READ COMMITTED: its result must be that of one order.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from faults.lab.postgres import IMPATIENT, READ_COMMITTED, SERIALIZABLE, STATE, InlinePostgresDatabase, is_result_of, state_of
from ledger.postgres.marks import ALONE_LOCK
from ledger.postgres.pipeline import NamedStatement
from ledger.postgres.sessions import Address
from ledger.postgres.transactions import CONFLICTS, PostgresTx
from ledger.postgres.writer import BatchWriter

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from ledger.postgres.sessions import Limits, Session
    from ledger.postgres.writer import QueuedWrite
    from ledger.writes import Ran

SERIALIZATION_FAILURE: Final = "40001"
PATIENCE_SECONDS: Final = 0.2  # for the other bot's next write
WAKING: Final = frozenset({"reserve", "execute", "settle"})  # writes that leave work at once
# Tables that are compared in another way, or whose rows say who wrote and in which order.
NOT_COMPARED: Final = frozenset(
    {
        *STATE,
        *("attempts", "epochs", "writers", "schema_migrations", "operation_arrows", "effect_arrows"),
        *("audit_events", "audit_heads", "audit_anchors", "artefact_blobs"),
    }
)
_COLUMNS: Final = """
SELECT table_name, string_agg(column_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns
WHERE table_schema = 'public' AND column_name <> 'id' GROUP BY table_name ORDER BY table_name
"""
_SEQUENCES: Final = "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1"


State = set[tuple[Any, ...]]


class Ended(NamedTuple):
    """End of a pair of transactions, by their names."""

    labels: frozenset[str]
    outcome: str  # independent, waits, refused, refused for pages, nothing
    words: str = ""


class NotMadeError(Exception):
    """A transaction of a pair refused its work, so that there is no pair."""


class Judge:
    """Tries pairs of transactions on sessions of its own. Nothing of it stays."""

    def __init__(self, url: str, texts: Mapping[str, str]) -> None:
        """`texts` are the named statements."""
        self._sessions = [Address(url).connect(name="judge", limits=IMPATIENT, writes=True) for _ in range(2)]
        self._statements = {name: NamedStatement(text) for name, text in texts.items()}
        first = self._sessions[0]
        names = [name for (name,) in first.run(_SEQUENCES)]
        self._positions = " UNION ALL ".join(f"SELECT '{name}', last_value, is_called FROM {name}" for name in names)  # noqa: S608 -- the schema's names
        self._hashes = " UNION ALL ".join(
            f"SELECT '{name}', md5(coalesce(string_agg(t::text, chr(10) ORDER BY t::text), '')) "  # noqa: S608 -- as above
            f"FROM (SELECT {columns} FROM {name}) AS t"
            for name, columns in first.run(_COLUMNS)
            if name not in NOT_COMPARED
        )
        self._before: list[tuple[Any, ...]] = []

    def try_out(self, one: QueuedWrite, other: QueuedWrite) -> tuple[str, list[State]]:
        """Return how a pair would end at SERIALIZABLE, and if it is refused the states that both orders would leave.

        Raises NotMadeError.
        """
        self._before = self._sessions[0].run(self._positions)
        outcome = self._at_serializable(one, other)
        return outcome, [self._in_order(*pair) for pair in ((one, other), (other, one))] if outcome == "refused" else []

    def state(self) -> State:
        """Return what the ledger looks like to those who use it; of tables of the domain a hash."""
        return state_of(self._sessions[0]) | set(self._sessions[0].run(self._hashes))

    def close(self) -> None:
        """Close the sessions."""
        for session in self._sessions:
            session.close()

    def _at_serializable(self, one: QueuedWrite, other: QueuedWrite) -> str:
        """Run both side by side and prepare them for COMMIT, at which the server refuses as it does at COMMIT."""
        first, second = self._sessions
        prepared = []
        try:
            self._run(first, SERIALIZABLE, one)
            self._run(second, SERIALIZABLE, other)
            for session, name in ((second, "other"), (first, "one")):
                session.run(f"PREPARE TRANSACTION '{name}'")
                prepared.append(name)
        except Exception as error:
            sqlstate = getattr(error, "sqlstate", None)
            if sqlstate not in CONFLICTS:
                raise
            return "refused" if sqlstate == SERIALIZATION_FAILURE else "waits"
        else:
            return "independent"
        finally:
            for session in self._sessions:
                self._roll_back(session)
            for name in prepared:
                first.run(f"ROLLBACK PREPARED '{name}'")
            self._restore()

    def _in_order(self, *members: QueuedWrite) -> State:
        session = self._sessions[0]
        try:
            for place, member in enumerate(members):
                self._run(session, None if place else READ_COMMITTED, member)
            return self.state()
        finally:
            self._roll_back(session)
            self._restore()

    def _run(self, session: Session, level: str | None, member: QueuedWrite) -> None:
        """Run a transaction up to its end, at a level, or in the open one."""
        if level is not None:
            lock = "pg_advisory_xact_lock" if member.exclusive else "pg_advisory_xact_lock_shared"
            session.run(f"BEGIN ISOLATION LEVEL {level}; SELECT {lock}({ALONE_LOCK})")
        tx = PostgresTx(session, self._statements, [])
        try:
            member.work(tx)
        except Exception as error:
            if getattr(error, "sqlstate", None) is not None:
                raise
            raise NotMadeError from error
        tx.send()

    @staticmethod
    def _roll_back(session: Session) -> None:
        session.pipeline.drop()
        session.run("ROLLBACK")

    def _restore(self) -> None:
        """Put the sequences back, which a rollback does not."""
        parts = [f"setval('{name}', {last}, {called})" for name, last, called in self._before]
        self._sessions[0].run(f"SELECT {', '.join(parts)}")


class Meeting:
    """Place where the writes of the bots of one ledger meet. It delays a write for a moment, so that another can join it."""

    def __init__(self, judge: Callable[[], Judge], chance: random.Random, poll: Callable[[], None]) -> None:
        """`judge` opens the judge at the first pair; `poll` lets every bot look for work that another may have left it."""
        self._open_judge = judge
        self._judge: Judge | None = None
        self._chance = chance
        self._poll = poll
        self._waiting: tuple[MeetingDatabase, QueuedWrite, asyncio.TimerHandle] | None = None
        self.pairs: list[Ended] = []

    def bring(self, database: MeetingDatabase, member: QueuedWrite, *, hurry: bool) -> None:
        """Run a write together with the next one of another bot, or alone when none comes in time."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting[2].cancel()
        if waiting is None and not hurry:
            seconds = self._chance.uniform(0, PATIENCE_SECONDS)
            timer = asyncio.get_running_loop().call_later(seconds, self._give_up)
            self._waiting = database, member, timer
        elif waiting is None:
            self._run_alone(database, member)
        elif hurry:
            self._run_alone(waiting[0], waiting[1])
            self._run_alone(database, member)
        else:
            self._run_together(waiting[0], waiting[1], database, member)

    def forget(self, database: MeetingDatabase) -> None:
        """Drop the waiting write of a bot that was killed."""
        if self._waiting is not None and self._waiting[0] is database:
            self._waiting[2].cancel()
            self._waiting = None

    def close(self) -> None:
        """Close the judge's sessions."""
        if self._judge is not None:
            self._judge.close()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._run_alone(waiting[0], waiting[1])

    def _run_alone(self, database: MeetingDatabase, member: QueuedWrite) -> None:
        database.finish(database.run(member))
        self._wake(member)

    def _run_together(self, first: MeetingDatabase, one: QueuedWrite, second: MeetingDatabase, other: QueuedWrite) -> None:
        if self._chance.random() < 0.5:  # noqa: PLR2004 -- a half
            first, one, second, other = second, other, first, one
        judge = self._judge = self._judge or self._open_judge()
        outcome, orders = "nothing", list[State]()
        with suppress(NotMadeError):
            outcome, orders = judge.try_out(one, other)
        ends: list[Ran] = []
        end = first.run(one, between=lambda: ends.append(second.run(other)))
        if not ends:  # the first had nothing to commit
            ends.append(second.run(other))
        words = ""
        if orders and not all(each.done and each.done[0].error is None for each in (end, *ends)):
            outcome = "waits"
        elif orders:
            found = judge.state()
            if any(is_result_of(found, ordered) for ordered in orders):
                outcome = "refused for pages"
            else:
                differing = {row[0] for ordered in orders for row in found ^ ordered}
                words = f"{one.name}, then {other.name}: the result is that of no order, by {', '.join(sorted(differing))}"
        self.pairs.append(Ended(frozenset({one.name, other.name}), outcome, words))
        first.finish(end)
        second.finish(ends[0])
        self._wake(one, other)

    def _wake(self, *members: QueuedWrite) -> None:
        """Let every bot look for work after writes that may have left some. It would find it at its next poll."""
        if any(member.name in WAKING for member in members):
            self._poll()


class MeetingDatabase(InlinePostgresDatabase):
    """A bot's database, whose writes meet those of other bots: one write in each transaction."""

    limits: ClassVar[Limits] = IMPATIENT
    meeting: ClassVar[Meeting]
    _hurries = False

    @classmethod
    async def open(cls, url: str, **options: Any) -> Any:
        """Open as InlinePostgresDatabase does."""
        database = await super().open(url, **options)
        database._writer.__class__ = MeetingWriter  # noqa: SLF001 -- of this class
        return database

    def run(self, member: QueuedWrite, between: Callable[[], object] | None = None) -> Ran:
        """Run one transaction; `between` is called before its end."""
        writer = self._writer
        assert isinstance(writer, MeetingWriter)  # noqa: S101 -- see open
        writer.between = between
        try:
            return writer.run([member])
        finally:
            writer.between = None

    def finish(self, ran: Ran) -> None:
        """Deliver results. What is to run again does so at once, as it does when a server lets it wait for a lock."""
        self._hurries = bool(ran.again)
        self._loop.call_soon(self._batch_ended, ran)

    def crash(self) -> None:
        """Close the sessions without another word."""
        self.meeting.forget(self)
        super().crash()

    def _next_batch(self) -> list[QueuedWrite]:
        return [(self._urgent or self._waiting).popleft()]

    def _hand_over(self, batch: list[QueuedWrite]) -> None:
        hurry, self._hurries = self._hurries, False
        self.meeting.bring(self, batch[0], hurry=hurry)


class MeetingWriter(BatchWriter):
    """The production's writer; `between` is called once before the last step of a transaction."""

    between: Callable[[], object] | None = None

    def _finished(self, session: Session, tx: PostgresTx, ran: list[QueuedWrite], rest: Sequence[QueuedWrite]) -> Ran | None:
        between, self.between = self.between, None
        if between is not None:
            between()
        return super()._finished(session, tx, ran, rest)
