"""Executor of reserved commands: claim, then decide and complete in one transaction.

A command that fails is retried, shelved for a newer build, or becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from adapters.failures import Failure
from ledger.database import DatabaseError, NotRecorded, WritesRefused
from ledger.ledger import StaleFenceError, no_follow_ups
from ledger.records import Trouble
from quotebot.ack_priority import Precedence
from quotebot.commands.payload import NeedsNewerBuild
from quotebot.domain.access import INSIDER, NOBODY_ASKED, Circle
from quotebot.domain.catalogue.rulesets import RulesetError
from quotebot.execution.run import ChannelUnaskedError
from quotebot.execution.transaction import Decider, as_it_came, failure_answer, standing_drawn, untrusted
from quotebot.observability.logs import hashed
from quotebot.store.history import BrokenChainError, require_as_audited
from quotebot.views import messages
from quotebot.worker_loop import POLL_SECONDS, one_round

if TYPE_CHECKING:
    from adapters.policies import Matrix
    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.records import Operation, Outcome
    from quotebot.domain.rules import Rules

INTERNAL_RETRIES: Final = 1  # an internal error is retried once, then the command becomes a dead letter
LOOK_SECONDS: Final = 0.05  # TTL of the check for a newly activated ruleset
SHELF_SECONDS: Final = 60  # retry interval of a command that needs a newer build

T = TypeVar("T")
CircleOf = Callable[[str, str], Awaitable[Circle | None]]  # (user, channel)
log = structlog.get_logger(__name__)


class Executor:
    """Executor of due operations. Those of one round run together and share commits. `draw` is the injected source of jitter."""

    def __init__(
        self,
        ledger: Ledger,
        rules: Rules,
        draw: Callable[[float, float], float],
        matrix: Matrix,
        *,
        know: Callable[[Operation], Awaitable[bool]] | None = None,
        circle_of: CircleOf | None = None,
        vouched: Callable[[str], bool] | None = None,
        poll_seconds: float = POLL_SECONDS,
        follow: FollowUpDecision = no_follow_ups,
        precedence: Precedence | None = None,
        source: str | None = None,
        judged_at: Callable[[int], int] = as_it_came,
    ) -> None:
        """`know` stores Slack's record of the actor in the ledger and returns whether it suffices; without it Slack is not queried.

        `circle_of` queries Slack whether the actor may see quotes of a channel, None for no answer; without it every actor may.

        `vouched` returns whether the people of a command's source count as members while Slack has given no answer about them. By
        default they do without `know`, and do not with it.

        `follow` decides the follow-ups of a dead letter that a command retries or discards. With `source`, only commands of that
        source are executed.
        `judged_at` maps the time at which a command was received to the time by which it is judged (both Unix ms).
        """
        self._ledger = ledger
        self._source = source
        self._know = know
        self._circle_of = circle_of
        vouched = vouched or (lambda _: know is None)
        self._decider = Decider(ledger, rules, vouched=vouched, follow=follow, judged_at=judged_at)
        self._policy = matrix.of("default")
        self._draw = draw
        self._poll_seconds = poll_seconds
        self._precedence = precedence or Precedence(ledger.clock)
        self._looked_at = float("-inf")
        self._claimed_at = 0  # time of the last claim (Unix ms); the next due time is searched after it
        # The last claim returned fewer rows than its limit, so no claimable row is left; the next one triggers a wake-up.
        self._took_all = False

    async def run(self) -> None:
        """Work until cancelled."""
        ledger = self._ledger
        while True:
            await one_round(ledger.operations_changed, self._round, self._next_due_at, ledger.clock, self._poll_seconds)

    async def _round(self) -> int:
        done = await self.step()
        return 0 if self._took_all else done

    async def _next_due_at(self) -> int | None:
        return await self._ledger.next_operation_due_at(self._claimed_at)

    async def step(self) -> int:
        """Execute the due commands, at most one per quote; return how many were executed."""
        most = await self._precedence.turn()
        self._claimed_at = self._now_ms()
        operations = await self._ledger.claim_operations(most, source=self._source)
        self._took_all = len(operations) < most
        if operations and self._ledger.clock.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._ledger.clock.monotonic()
            await self._look_ahead()
        if len(operations) == 1:  # the usual case needs no tasks
            await self._execute_bound(operations[0])
        elif operations:
            await self._execute_together(operations)
        return len(operations)

    def decide(self, tx: Tx, operation: Operation) -> Outcome:
        """Decide inside the open transaction, as `Decider.decide` does."""
        return self._decider.decide(tx, operation, circle=INSIDER if self._circle_of is None else NOBODY_ASKED)

    async def _look_ahead(self) -> None:
        with contextlib.suppress(DatabaseError, RulesetError):  # the transaction reads it again and reports the error
            await self._decider.look_ahead()

    async def _execute_together(self, operations: list[Operation]) -> None:
        """Run all commands to their end, independently of each other; then raise the first error: it is unsafe to continue."""
        ends = await asyncio.gather(*(self._execute_bound(operation) for operation in operations), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _execute_bound(self, operation: Operation) -> None:
        with structlog.contextvars.bound_contextvars(
            correlation_id=operation.correlation_id,
            operation_key=operation.operation_key,
            action_kind=operation.action_kind,
            source=operation.source,
            source_request_id=hashed(operation.source_request_id),
            slack_user=operation.actor,
            team_id=operation.team_id,
            actor_type=operation.actor_type,
            attempt=operation.attempts + 1,
            max_attempts=INTERNAL_RETRIES + 1,
        ):
            await self._execute(operation)

    async def _execute(self, operation: Operation) -> None:
        try:
            if await self._waits_for_slack(operation):
                return
            done = await self._decided(operation)
            if done is None:
                return
        except StaleFenceError:
            log.warning("operation.late_result")
        except NeedsNewerBuild as error:
            why = str(error)
            log.error("operation.needs_newer_build", why=why)  # noqa: TRY400 -- no bug of ours: a traceback does not help
            await self._when_writable(lambda: self._ledger.shelve_operation(operation, why, SHELF_SECONDS * 1000))
        except DatabaseError:
            raise
        except Exception as error:
            log.exception("operation.failed", attempt=operation.attempts + 1)
            await self._fail(operation, error)
        else:
            quote_id = done.response.get("quote_id")
            log.info(
                "operation.completed",
                outcome=done.kind,
                aggregate_id=quote_id,
                quote_id=quote_id,
                quote_version=operation.aggregate_version or operation.pinned_version or 1,
                latency_ms=self._now_ms() - operation.received_at,
            )

    async def _decided(self, operation: Operation) -> Outcome | None:
        """Decide and complete; query Slack about a channel only if the decision depends on it. None: the command was put back."""
        broken = await self._broken_history(operation)
        if broken is not None:
            log.error("operation.history_broken", found=broken, do="quotebot audit verify")
            refusal = untrusted(operation, self._now_ms())
            return await self._when_writable(lambda: self._ledger.execute(operation, lambda _: refusal))
        precomputed, circle = await self._decider.precompute(operation), NOBODY_ASKED

        def work(tx: Tx) -> Outcome:
            return self._decider.decide(tx, operation, precomputed, circle)

        while True:
            try:
                return await self._when_writable(lambda: self._ledger.execute(operation, work))
            except ChannelUnaskedError as error:
                found = INSIDER if self._circle_of is None else await self._circle_of(operation.actor, error.channel)
                if found is None and await self._put_back(operation, "Slack has not answered who is in the channel of this quote."):
                    return None
                circle = Circle(asked=frozenset({error.channel})) if found is None else found

    async def _broken_history(self, operation: Operation) -> str | None:
        """Return why the rows of a command or its quote differ from the audit, or None if they match."""
        if operation.aggregate_id == "new":
            return None
        try:
            await self._ledger.database.read(lambda tx: require_as_audited(tx, operation, self._ledger.audit.keyring))
        except BrokenChainError as error:
            return str(error)
        return None

    async def _waits_for_slack(self, operation: Operation) -> bool:
        """Put a command back if its actor is not known as required: one missing answer from Slack must not lose the click."""
        if self._know is None or await self._know(operation):
            return False
        return await self._put_back(operation, "Slack has not answered who gave this command.")

    async def _put_back(self, operation: Operation, why: str) -> bool:
        """Put a command back that waits for Slack; false if its retries are exhausted."""
        delay = self._policy.next_delay(operation.attempts + 1, self._draw, None)
        if delay is None:
            return False
        await self._retry(operation, Trouble(Failure.TRANSIENT.value, why), delay)
        return True

    async def _retry(self, operation: Operation, trouble: Trouble, delay: float) -> None:
        """Schedule a retry of a command in `delay` seconds; the card of its quote shows it."""
        shown = await self._ledger.database.read(lambda tx: standing_drawn(tx, operation))
        await self._when_writable(lambda: self._ledger.retry_operation(operation, trouble, round(delay * 1000), shown))

    async def _when_writable(self, write: Callable[[], Awaitable[T]]) -> T:
        """Retry a write until it succeeds: the command is claimed and must be settled even after a full disk or a foreign lock.

        Raises WritesRefused if the ledger takes no writes until a restart.
        """
        while True:
            try:
                return await write()
            except WritesRefused:
                raise
            except NotRecorded as error:
                log.warning("operation.result_unwritten", error=str(error))
                await asyncio.sleep(POLL_SECONDS)

    async def _fail(self, operation: Operation, error: Exception) -> None:
        trouble = Trouble(Failure.INTERNAL.value, f"{type(error).__name__}: the command could not be executed.")
        delay = self._policy.next_delay(operation.attempts + 1, self._draw, None)
        if operation.attempts < INTERNAL_RETRIES and delay is not None:
            await self._retry(operation, trouble, delay)
            return
        answer = await self._ledger.database.read(lambda tx: failure_answer(tx, operation, trouble.error, self._now_ms()))
        quote_id = None if operation.aggregate_id == "new" else operation.aggregate_id
        text = messages.terminal(trouble.error, operation.correlation_id, quote_id)
        response = {"code": "failed", "quote_id": quote_id, "text": text}
        await self._when_writable(lambda: self._ledger.fail_operation(operation, trouble, response, answer))

    def _now_ms(self) -> int:
        return self._ledger.clock.now_ms()
