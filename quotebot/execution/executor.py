"""Executor of reserved commands: claim, then decide and complete in one transaction.

The transaction passes the gate, then the loader, handler and saver of the command's kind (kinds.py). A command that fails is
retried, shelved for a newer build, or becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from adapters.failures import BUG, INVALID_VALUE, Failure, code_of_bug
from ledger import keys
from ledger.database import DatabaseError, NotRecorded, WritesRefused
from ledger.ledger import StaleFenceError, no_follow_ups
from ledger.records import AuditEvent, EffectIntent, Operation, Outcome, Trouble
from quotebot import effects
from quotebot.commands.payloads import CloneQuote, DecideApproval, DelegateApprovals, NeedsNewerBuild, ReviseQuote
from quotebot.commands.registry import REGISTRY
from quotebot.domain.access import INSIDER, NOBODY_ASKED, Circle, Refusal, Viewer, admit
from quotebot.domain.catalogue.rulesets import RulesetError
from quotebot.domain.language import N_, _
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.execution import membership
from quotebot.execution.kinds import execute
from quotebot.execution.run import (
    NOTHING,
    ChannelUnaskedError,
    Precomputed,
    Run,
    answered_at_terminal,
    counted_kind,
    customer_of,
    precompute,
)
from quotebot.handlers.decision import Asked, Decision, refused, turned_away
from quotebot.store import approvals
from quotebot.store import dead_letters as letter_store
from quotebot.store import quotes as store
from quotebot.store.crm_mirror import with_segments
from quotebot.store.history import BrokenChainError, require_as_audited
from quotebot.store.rulesets import ActiveRuleset
from quotebot.views import approval_messages, messages
from quotebot.worker_loop import POLL_SECONDS, AckPriority, one_round

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.policies import Matrix
    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from quotebot.commands.registry import Payload
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

log = structlog.get_logger(__name__)

INTERNAL_RETRIES: Final = 1  # after that an internal error makes the command a dead letter; an invalid value does so at once
RULESET_CHECK_SECONDS: Final = 0.05  # between two checks for a newly activated ruleset
PENDING_MS: Final = 2_000  # age from which a quote's card shows an unfinished command
SHOWN_MS: Final = PENDING_MS // 2  # a card may show a command from PENDING_MS on; younger ones end without a redraw of it
SHELF_SECONDS: Final = 60  # retry interval of a command that needs a newer build

_FAILED: Final = {
    INVALID_VALUE: N_("The command could not be executed: a value is invalid (invalid_value)."),
    BUG: N_("The command could not be executed: an error in our own code (bug)."),
}

T = TypeVar("T")
CircleOf = Callable[[str, str], Awaitable[Circle | None]]  # (user, channel)


def as_it_came(at: int) -> int:
    """Return the time at which a command was received: it is judged by that."""
    return at


class Decider:
    """Decision on commands by the current rules. Plain synchronous code: a transaction that is run again decides the same."""

    def __init__(
        self,
        ledger: Ledger,
        rules: Rules,
        *,
        vouched: Callable[[str], bool] = lambda _source: True,
        follow: FollowUpDecision = no_follow_ups,
        judged_at: Callable[[int], int] = as_it_came,
    ) -> None:
        """`vouched` returns whether the people of a command's source count as members while Slack has given no answer about them.

        `follow` decides the follow-ups of a dead letter that a command retries or discards. `judged_at` maps the time at which a
        command was received to the time by which it is judged (both Unix ms); they differ while the clock is not trusted.
        """
        self._ledger = ledger
        self._judged_at = judged_at
        self._rules = rules
        self._active = ActiveRuleset(rules.ruleset)
        self._follow = follow
        self._vouched = vouched

    async def read_ruleset(self) -> None:
        """Read a newly activated ruleset before a transaction needs it: parsing a large one there would block all writes.

        Raises DatabaseError and RulesetError as the transaction does, which reads again.
        """
        await self._ledger.database.read(self._active.read)

    def _now_ms(self) -> int:
        return self._ledger.clock.now_ms()

    async def precompute(self, operation: Operation) -> Precomputed:
        """Compute the results that the command's transaction needs and that can be computed before it."""
        quote = None
        if operation.action_kind in (ReviseQuote.kind, CloneQuote.kind):
            quote_id = operation.payload.get("quote_id", operation.aggregate_id)
            quote = await self._ledger.database.read(lambda tx: _readable(tx, quote_id))
        rules = replace(self._rules, ruleset=self._active.known)
        about = None if rules.account_segments is None else customer_of(operation, quote)
        if about is not None:
            rules = await self._ledger.database.read(lambda tx: with_segments(tx, rules, *about, self._now_ms()))
        return precompute(operation, rules, quote)

    def decide(self, tx: Tx, operation: Operation, precomputed: Precomputed = NOTHING, circle: Circle = NOBODY_ASKED) -> Outcome:
        """Load, decide and save inside the open transaction. Raises NeedsNewerBuild for a command that this build cannot read.

        `precomputed` is the result of `precompute` for this operation. A command that its quote's card may show redraws that card,
        and one that was a dead letter redraws the card of it.

        Raises ChannelUnaskedError if the decision depends on a channel that Slack was not queried about (`circle.asked`): members
        of a private channel may change its quotes.
        """
        transport = store.transport(tx, operation.id)
        outcome = _by_others(self._outcome_of(tx, operation, transport, precomputed, circle), transport)
        drawn = any(
            effect.effect_class == effects.CARD and effect.aggregate_id == operation.aggregate_id for effect in outcome.effects
        )
        again = () if drawn or not _may_be_shown(operation, self._now_ms()) else quote_card_updated(tx, operation)
        return replace(outcome, effects=(*outcome.effects, *again, *dead_letter_card_updated(tx, operation)))

    def _outcome_of(
        self, tx: Tx, operation: Operation, transport: Mapping[str, Any], precomputed: Precomputed, circle: Circle
    ) -> Outcome:
        self._rules = replace(self._rules, ruleset=self._active.read(tx))  # a newly activated ruleset applies at once
        now = self._now_ms()
        payload = precomputed.payload_of(operation)
        known = membership.known_person(tx, operation.team_id, operation.actor)
        asked = Asked(
            operation_key=operation.operation_key,
            correlation_id=operation.correlation_id,
            actor=operation.actor,
            team_id=operation.team_id,
            # a replay re-checks expiry
            received_at=self._judged_at(operation.received_at if operation.cycle == 1 else now),
            seen_version=operation.pinned_version if operation.aggregate_version is None else operation.aggregate_version,
            actor_name=(known.name if known else "") or transport.get("actor_name", ""),
            actor_type=operation.actor_type,
            # without a bot, the command line vouches for the users of its terminal
            actor_kind=counted_kind(known, now=now, vouched=self._vouched(operation.source)),
            terminal_user=transport.get("terminal_user"),
        )
        admitted = self._admitted(asked)
        circle = INSIDER if operation.source == "cli" else circle  # a user of the machine's terminal can read its files
        viewer = replace(admitted, circle=circle) if isinstance(admitted, Viewer) else None
        rules = approvals.present(tx, self._rules, operation.team_id)
        run = Run(self._ledger, tx, operation, asked, viewer, rules, precomputed, now, self._vouched, self._follow)
        refusal = turned_away(asked, admitted, payload, operation.aggregate_id) or self._misnamed(operation, asked, payload)
        return execute(run, payload) if refusal is None else run.kept(answered_at_terminal(operation, refusal))

    def _misnamed(self, operation: Operation, asked: Asked, payload: Payload) -> Decision | None:
        """Refuse a decision from a terminal unless this process's own settings map the terminal user to that person in Slack.

        The settings of the process that recorded it are not trusted: the terminal user chooses that process's environment.
        """
        if operation.source != "cli" or not isinstance(payload, DecideApproval | DelegateApprovals):
            return None
        if self._rules.terminal_users.get(asked.terminal_user or "") == asked.actor:
            return None
        text = approval_messages.misnamed(asked.terminal_user, asked.actor)
        refusal = refused(asked, operation.aggregate_id, None, "misnamed", text)
        facts = {"code": "misnamed", "actor": asked.actor, "asked": payload.kind}
        return replace(refusal, events=(AuditEvent("access.refused", operation.aggregate_id, after=facts),))

    def _admitted(self, asked: Asked) -> Viewer | Refusal | None:
        """Return the gate's decision about the actor; None for the scheduler."""
        if asked.actor_type == "system":
            return None
        return admit(asked.actor, asked.team_id, asked.actor_kind, self._rules.guest_reps)


def failure_answer(tx: Tx, operation: Operation, error: str, now_ms: int) -> tuple[EffectIntent, ...]:
    """Return the reply to the user of a failed command, in the quote's channel or where they typed, and the redrawn cards."""
    if operation.actor_type == "system" or not _is_awaited(operation):
        return dead_letter_card_updated(tx, operation)  # no user to answer; operators see the dead letter
    quote_id = parse_quote_id(operation.aggregate_id)  # None: the command creates a quote, or concerns none
    quote = None if quote_id is None else _readable(tx, quote_id)
    channel = operation.payload.get("channel") if quote is None else quote.channel
    text = messages.terminal(error, operation.correlation_id, quote_id)
    answer = effects.reply(operation.aggregate_id, operation.actor, channel, text, now_ms)
    shown = quote_card_updated(tx, operation) if _may_be_shown(operation, now_ms) else ()
    return (answer, *shown, *dead_letter_card_updated(tx, operation))


def untrusted(operation: Operation, retain_until: int) -> Outcome:
    """Refuse a command if it or its quote differs from the audit. The answer contains no facts, and no card is drawn."""
    text = messages.history_broken(operation.correlation_id)
    answers: tuple[EffectIntent, ...] = ()
    if operation.actor_type != "system" and operation.source != "cli" and _is_awaited(operation):
        answers = (effects.reply(operation.aggregate_id, operation.actor, None, text, operation.received_at),)
    response = {"code": "history_broken", "quote_id": parse_quote_id(operation.aggregate_id), "text": text}
    return Outcome("refused", response, answers, retain_until=retain_until)


def _is_awaited(operation: Operation) -> bool:
    """Return true if the author of a command waits for its answer."""
    known = REGISTRY.get(operation.action_kind)
    return known is None or known.awaited


def _may_be_shown(operation: Operation, now: int) -> bool:
    """Return true if the card of the command's quote may show the command as unfinished."""
    return bool(operation.attempts) or now - operation.received_at >= SHOWN_MS


def quote_card_updated(tx: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
    """Return the effect that redraws the card of the command's quote: it shows which commands are unfinished."""
    quote_id = parse_quote_id(operation.aggregate_id)
    if quote_id is None or _readable(tx, quote_id) is None:
        return ()
    return (effects.card(quote_id, store.root_effect_key(tx, quote_id)),)


def dead_letter_card_updated(tx: Tx, operation: Operation) -> tuple[EffectIntent, ...]:
    """Return the effect that redraws the card of the dead letter that this command was, if it has one."""
    card = None if operation.cycle == 1 else letter_store.find(tx, f"op{operation.id}")
    return () if card is None else (effects.update_dead_letter(card.reference, card.awaited),)


def _readable(tx: Tx, quote_id: str) -> Quote | None:
    """Load a quote; None if its row cannot be read. Drawing the card may itself fail; that must not block the dead letter."""
    try:
        return store.load(tx, quote_id)
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError):
        log.exception("quote.unreadable", quote_id=quote_id)
        return None


def _by_others(outcome: Outcome, transport: Mapping[str, Any]) -> Outcome:
    """Return the outcome with those who acted in the author's name in each event: at a terminal, or by an edited copy."""
    who = {name: transport[name] for name in ("terminal_user", "edited_by") if transport.get(name) is not None}
    named = (replace(event, after={**(event.after or {}), **who}) for event in outcome.events)
    return replace(outcome, events=tuple(named)) if who else outcome


def _request_decided(operation: Operation) -> dict[str, str]:
    """Return the approval request that a command is about, for its log lines."""
    approval_id = operation.payload.get("approval_id")
    return {"approval_id": approval_id} if isinstance(approval_id, str) else {}


class Executor:
    """Executor of due operations. Those of one round run together and share commits. `draw` is the injected source of jitter."""

    def __init__(
        self,
        ledger: Ledger,
        rules: Rules,
        draw: Callable[[float, float], float],
        matrix: Matrix,
        *,
        refresh_actor: Callable[[Operation], Awaitable[bool]] | None = None,
        circle_of: CircleOf | None = None,
        vouched: Callable[[str], bool] | None = None,
        poll_seconds: float = POLL_SECONDS,
        follow: FollowUpDecision = no_follow_ups,
        ack_priority: AckPriority | None = None,
        only: str | None = None,
        judged_at: Callable[[int], int] = as_it_came,
    ) -> None:
        """`refresh_actor` stores Slack's record of the actor and returns whether it suffices; without it Slack is not queried.

        `circle_of` queries Slack whether the actor may see quotes of a channel, None for no answer; without it every actor may.

        `vouched` returns whether the people of a command's source count as members while Slack has given no answer about them. By
        default they do without `refresh_actor`, and do not with it.

        `follow` decides the follow-ups of a dead letter that a command retries or discards. `only` is that of
        Ledger.claim_operations; a claimed command that this build cannot read is put back for a newer one.
        `judged_at` maps the time at which a command was received to the time by which it is judged (both Unix ms).
        """
        self._ledger = ledger
        self._only = only
        self._refresh_actor = refresh_actor
        self._circle_of = circle_of
        vouched = vouched or (lambda _source: refresh_actor is None)
        self._decider = Decider(ledger, rules, vouched=vouched, follow=follow, judged_at=judged_at)
        self._keep_refused_ms = rules.keep_refused_ms
        self._policy = matrix.of("default")
        self._draw = draw
        self._poll_seconds = poll_seconds
        self._ack_priority = ack_priority or AckPriority(ledger.clock)
        self._ruleset_checked_at = float("-inf")
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
        most = await self._ack_priority.turn()
        self._claimed_at = self._now_ms()
        operations = await self._ledger.claim_operations(most, only=self._only)
        self._took_all = len(operations) < most
        if operations and self._ledger.clock.monotonic() - self._ruleset_checked_at >= RULESET_CHECK_SECONDS:
            self._ruleset_checked_at = self._ledger.clock.monotonic()
            with contextlib.suppress(DatabaseError, RulesetError):  # the transaction reads it again and reports the error
                await self._decider.read_ruleset()
        if len(operations) == 1:  # the usual case needs no tasks
            await self._execute_bound(operations[0])
        elif operations:
            await self._execute_together(operations)
        return len(operations)

    def decide(self, tx: Tx, operation: Operation) -> Outcome:
        """Decide inside the open transaction, as `Decider.decide` does."""
        return self._decider.decide(tx, operation, circle=INSIDER if self._circle_of is None else NOBODY_ASKED)

    async def _execute_together(self, operations: list[Operation]) -> None:
        """Run all commands to their end, independently of each other; then raise the first error: it is unsafe to continue."""
        ends = await asyncio.gather(*(self._execute_bound(operation) for operation in operations), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _execute_bound(self, operation: Operation) -> None:
        with structlog.contextvars.bound_contextvars(
            correlation_id=operation.correlation_id,
            trace_id=keys.trace_id(operation.correlation_id),
            operation_key=operation.operation_key,
            operation_label=operation.label,
            action_kind=operation.action_kind,
            source=operation.source,
            source_request_id=keys.sha256(operation.source_request_id.encode())[:12],  # the raw id could open a user's dialog
            slack_user=operation.actor,
            team_id=operation.team_id,
            actor_type=operation.actor_type,
            attempt=operation.attempts + 1,
            max_attempts=INTERNAL_RETRIES + 1,
            **_request_decided(operation),
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
            refusal = untrusted(operation, self._now_ms() + self._keep_refused_ms)
            return await self._when_writable(lambda: self._ledger.execute(operation, lambda _tx: refusal))
        precomputed, circle = await self._decider.precompute(operation), NOBODY_ASKED

        def work(tx: Tx) -> Outcome:
            return self._decider.decide(tx, operation, precomputed, circle)

        while True:
            try:
                return await self._when_writable(lambda: self._ledger.execute(operation, work))
            except ChannelUnaskedError as error:
                found = INSIDER if self._circle_of is None else await self._circle_of(operation.actor, error.channel)
                if found is None and await self._put_back(
                    operation, _("Slack has not answered who is in the channel of this quote.")
                ):
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
        if self._refresh_actor is None or await self._refresh_actor(operation):
            return False
        return await self._put_back(operation, _("Slack has not answered who gave this command."))

    async def _put_back(self, operation: Operation, why: str) -> bool:
        """Put a command back that waits for Slack; false if its retries are exhausted."""
        delay = self._policy.next_delay(operation.attempts + 1, self._draw, None)
        if delay is None:
            return False
        await self._retry(operation, Trouble(Failure.TRANSIENT.value, why), delay)
        return True

    async def _retry(self, operation: Operation, trouble: Trouble, delay: float) -> None:
        """Schedule a retry of a command in `delay` seconds; the card of its quote shows it."""
        shown = await self._ledger.database.read(lambda tx: quote_card_updated(tx, operation))
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
        code = code_of_bug(error)
        trouble = Trouble(Failure.INTERNAL.value, _(_FAILED[code]), code=code)
        delay = self._policy.next_delay(operation.attempts + 1, self._draw, None)
        if code != INVALID_VALUE and operation.attempts < INTERNAL_RETRIES and delay is not None:
            await self._retry(operation, trouble, delay)
            return
        answer = await self._ledger.database.read(lambda tx: failure_answer(tx, operation, trouble.error, self._now_ms()))
        quote_id = None if operation.aggregate_id == "new" else operation.aggregate_id
        text = messages.terminal(trouble.error, operation.correlation_id, quote_id)
        response = {"code": "failed", "quote_id": quote_id, "text": text}
        await self._when_writable(lambda: self._ledger.fail_operation(operation, trouble, response, answer))

    def _now_ms(self) -> int:
        return self._ledger.clock.now_ms()
