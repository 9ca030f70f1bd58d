"""Effect handlers: their base class (perform, find, follow up), the services they share, the choice of one by effect class."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from adapters.failures import AdapterError, Failure
from ledger.database import NotRecorded, WritesRefused
from ledger.records import Delivered, FollowUps, Retry, Trouble
from quotebot import effects
from quotebot.domain.language import _
from quotebot.domain.quotes.lifecycle import is_final
from quotebot.execution.membership import Channels, Directory
from quotebot.store import approvals, dead_letters
from quotebot.store import quotes as store
from quotebot.store.rulesets import ActiveRuleset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from adapters.artefacts import ArtefactStore
    from adapters.llm.api import Llm, ModelCall
    from adapters.pdf.renderer import PdfRenderer
    from adapters.salesforce.api import Salesforce
    from adapters.slack.api import SlackApi
    from ledger.clock import Clock
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.views.document import Seller

CHANNEL_SECONDS: Final = 1.0  # average interval between two messages into one channel
AT_ONCE: Final = 15
MINUTE_SECONDS: Final = 60.0
TIER_3, TIER_4 = 50, 100  # calls of a method per minute, of the whole workspace (Slack's rate limit tiers)
CALLS_PER_MINUTE: Final[Mapping[str, int]] = {
    "chat.update": TIER_3,
    "chat.unfurl": TIER_3,
    "chat.postEphemeral": TIER_4,
    "views.publish": TIER_4,
    "files.completeUploadExternal": TIER_4,
}
IN_FLIGHT_MAX: Final = 2  # calls into one channel; a class has more slots, so the other channels proceed
PLACE_SECONDS: Final = 1.0  # longest wait for a place in a channel, before the effect gives its slot to others
BUSY_SECONDS: Final = 2.0  # until such an effect asks again, and one whose call could not be counted
ASK_AGAIN_SECONDS: Final = 30.0  # longest wait before a message asks again; Slack's classes have no longer retry delay of their own
EARLY_SECONDS: Final = 0.05  # a message this much before its turn counts as in time
REMEMBERED_MAX: Final = 10_000  # limit of turns and of channels; the oldest are evicted

GONE: Final = "gone"  # durable step: the message that no longer exists, so its effect can have no result
# The external service's clock may differ from ours by half of it, and is trusted.
LOOK_BACK_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate of one channel: `at_once` messages without a wait, then one per `seconds`."""

    at_once: int = AT_ONCE
    seconds: float = CHANNEL_SECONDS


@dataclass(frozen=True, slots=True)
class Turn:
    """Time at which a person's message may go into a channel, in monotonic seconds."""

    channel: str
    person: str
    at: float


class Places:
    """Places for the calls into one channel. `users` hold a place or wait for one."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(IN_FLIGHT_MAX)
        self.users = 0


class SharedPaces(Protocol):
    """Calls that several processes count together. Each channel and method allows `at_once`, then one per `seconds`."""

    async def take(self, name: str, at_once: int, seconds: float) -> float:
        """Count a call that goes now and return 0, or count nothing and return the seconds until one may go."""
        ...


class Pacer:
    """Pacing of messages per channel: a burst at once, then one a second, as Slack asks of apps. Other calls are paced per method.

    Turns rotate among the people of a channel, so that one person's burst does not delay the others. A message that must wait
    goes back to the ledger until its turn, and no request is spent on it. Turns are kept in memory and are assigned anew after a
    restart, perhaps earlier; so a message asks again after at most 30 s. A 429 of Slack holds the class meanwhile.

    Where several processes deliver, each assigns turns to the messages that it sees, and `shared` counts the calls of all. A
    message whose turn has come and that finds the pace used up postpones every turn of its channel in this process.
    """

    def __init__(self, clock: Clock, pace: Pace = Pace(), shared: SharedPaces | None = None) -> None:
        self._clock = clock
        self._pace = pace
        self._shared = shared
        self._full_at: dict[str, float] = {}  # channel -> due time of its last message, were all evenly spaced
        self._turns: dict[int | str, Turn] = {}  # by effect id; those of updates by the supersede key
        self._places: dict[str, Places] = {}  # by channel, of the calls in flight
        self._methods = {
            method: Pace(max(number, pace.at_once), MINUTE_SECONDS / number) for method, number in CALLS_PER_MINUTE.items()
        }

    async def wait_seconds(self, channel: str, effect_id: int | str, person: str = "") -> float:
        """Return 0 when this message may go now, or the seconds until its turn; later messages of other people may defer it."""
        now, pace = self._clock.monotonic(), self._methods.get(channel, self._pace)
        turn = self._turns.get(effect_id) or self._assigned(channel, effect_id, person, pace, now)
        wait = turn.at - now
        if wait > EARLY_SECONDS:
            return wait
        wait = 0.0 if self._shared is None else await self._counted(self._shared, channel, pace)
        if wait:
            return self._postponed(effect_id, turn, now + wait) - now
        self._turns.pop(effect_id, None)
        return 0.0

    async def put_off(self, channel: str, effect_id: int | str, person: str = "") -> Retry | None:
        """Return the retry of a call that has to wait, or None when it may go now. `person` is the user it is sent for.

        `channel` is a channel for messages, a method of CALLS_PER_MINUTE for other calls.
        """
        wait = await self.wait_seconds(channel, effect_id, person)
        if not wait:
            return None
        limit = {"seconds": f"{wait:.0f}", "limit": CALLS_PER_MINUTE.get(channel), "method": channel}
        why = _("This channel takes one message a second: this one waits {seconds} s for its turn. Nothing was sent.", **limit)
        if channel in CALLS_PER_MINUTE:
            why = _("Slack takes {limit} {method} a minute: this one waits {seconds} s for its turn. Nothing was sent.", **limit)
        return _waits(why, min(wait, ASK_AGAIN_SECONDS))

    def _assigned(self, channel: str, effect_id: int | str, person: str, pace: Pace, now: float) -> Turn:
        """Assign the first turn of a message."""
        row = max(self._full_at.pop(channel, now), now)
        self._full_at[channel] = row + pace.seconds
        turn = Turn(channel, person, row - (pace.at_once - 1) * pace.seconds)
        if turn.at > now:
            turn = self._rotated(turn, now)
        self._turns[effect_id] = turn
        self._forget()
        return turn

    async def _counted(self, shared: SharedPaces, channel: str, pace: Pace) -> float:
        try:
            return await shared.take(channel, pace.at_once, pace.seconds)
        except WritesRefused:
            raise
        except NotRecorded:  # nothing was sent
            return BUSY_SECONDS

    def _postponed(self, effect_id: int | str, turn: Turn, until: float) -> float:
        """Postpone a turn until the pace is not used up, and with it every later one; return when it is."""
        turn = self._turns.get(effect_id, turn)
        later = max(0.0, until - turn.at)
        if turn.at > self._clock.monotonic() + EARLY_SECONDS:  # another message of the channel found the same meanwhile
            return turn.at
        for other, their in self._turns.items():
            if their.channel == turn.channel:
                self._turns[other] = replace(their, at=their.at + later)
        self._full_at[turn.channel] = self._full_at.get(turn.channel, until) + later
        self._turns[effect_id] = replace(turn, at=until)
        return until

    @asynccontextmanager
    async def place_in(self, channel: str) -> AsyncIterator[Retry | None]:
        """Hold a place for a call into a channel; yield the retry of an effect that gets none in time, or None.

        So a channel in which Slack answers slowly holds up only itself.
        """
        places = self._places.setdefault(channel, Places())
        places.users += 1
        try:
            async with asyncio.timeout(PLACE_SECONDS) as deadline:
                await places.free.acquire()
                deadline.reschedule(None)
                try:
                    yield None
                finally:
                    places.free.release()
        except TimeoutError:
            if not deadline.expired():
                raise
            yield _waits(_("Earlier calls into this channel have no answer yet. Nothing was sent."), BUSY_SECONDS)
        finally:
            places.users -= 1
            if not places.users:
                del self._places[channel]

    def _rotated(self, last: Turn, now: float) -> Turn:
        """Return the turn of a new message that would get the `last` one.

        No other person keeps two turns more before it than its person.
        A person who has more takes later turns, in the order of their messages, down to the last.
        """
        waiting = sorted(
            ((turn.at, effect_id) for effect_id, turn in self._turns.items() if turn.channel == last.channel and turn.at > now),
        )
        count = Counter(self._turns[effect_id].person for _at, effect_id in waiting)
        before = Counter[str]()
        for _at, effect_id in waiting:
            person = self._turns[effect_id].person
            before[person] += 1
            if person != last.person and before[person] > count[last.person] + 1:
                break
        else:
            return last
        given = self._turns[effect_id]
        theirs = [other for at, other in waiting if at >= given.at and self._turns[other].person == given.person]
        later = [*(self._turns[other].at for other in theirs[1:]), last.at]
        for other, at in zip(theirs, later, strict=True):
            self._turns[other] = replace(given, at=at)
        return replace(last, at=given.at)

    def _forget(self) -> None:
        while len(self._turns) > REMEMBERED_MAX:
            del self._turns[next(iter(self._turns))]
        while len(self._full_at) > REMEMBERED_MAX:
            del self._full_at[next(iter(self._full_at))]


def _waits(why: str, seconds: float) -> Retry:
    """Return the retry of an effect whose call was not made yet."""
    return Retry(Trouble(Failure.THROTTLED.value, why, asked=False), delay_ms=round(seconds * 1000), spent=False)


@dataclass(slots=True)
class CallLog:
    """Buffer for the adapter's records of its calls until they are written to the ledger."""

    calls: list[ModelCall] = field(default_factory=list)

    def note(self, call: ModelCall) -> None:
        """Add the record of one call."""
        self.calls.append(call)

    def take(self) -> list[ModelCall]:
        """Return the records so far and empty the buffer."""
        taken, self.calls = self.calls, []
        return taken


@dataclass(frozen=True, slots=True)
class Model:
    """The connected model and the log of its adapter's calls."""

    llm: Llm
    log: CallLog


@dataclass(frozen=True, slots=True)
class Adapters:
    """Connections to the external services, built by app/clients.py.

    Without Salesforce or a model, their effects wait as paused.
    """

    slack: SlackApi
    pdf: PdfRenderer
    artefacts: ArtefactStore
    salesforce: Salesforce | None
    model: Model | None = None


def ignored(_seconds: float) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a handler may use.

    `pacer` assigns turns per Slack channel, `channels` queries the members of a channel, `directory` Slack's records of people.
    """

    ledger: Ledger
    adapters: Adapters
    rules: Rules
    active: ActiveRuleset
    seller: Seller
    pacer: Pacer
    channels: Channels
    directory: Directory
    settle_delay_ms: int
    observe_pdf: Callable[[float], object] = ignored  # receives the seconds of each rendering

    def rules_now(self, tx: Tx, team_id: str) -> Rules:
        """Return the rules with the active ruleset and its policy, and without role holders who may not approve any more."""
        return approvals.present(tx, replace(self.rules, ruleset=self.active.read(tx)), team_id)

    async def quote(self, effect: Effect) -> Quote:
        """Return the quote of an effect, see `quote_of`. Raises AdapterError if there is none."""
        quote = await self.ledger.database.read(lambda tx: quote_of(tx, effect))
        if quote is None:
            raise unknown_quote(effect)
        return quote

    async def may_post_about(self, quote: Quote) -> bool:
        """Return true if the facts of a quote may be posted where its card is. Raises AdapterError when Slack does not answer."""
        try:
            return quote.card_channel is not None or await self.channels.may_post(quote.channel)
        except AdapterError as error:
            error.possibly_applied = False  # nothing was sent yet
            raise


class EffectHandler:
    """Handler of one effect class. registry.py maps the classes to their handlers.

    Messages are rendered from the state at the moment of the call, so a card that is sent twice converges. A call that must not be
    repeated carries the effect's key. This base class stands in for a class that only a newer build knows.
    """

    effect_class: ClassVar[str]

    def __init__(self, services: Services) -> None:
        self.services = services

    async def perform(self, effect: Effect) -> Settlement:
        """Perform the effect, or return that it is needless. Raises AdapterError."""
        message = _("This build cannot perform {name}.", name=effect.effect_class)
        raise AdapterError(Failure.INTERNAL, "unknown_class", message)

    async def find(self, effect: Effect) -> Delivered | None:
        """Ask the external service whether the effect was applied before; None if not. Raises AdapterError.

        Only appends are reconciled, and the replay preview asks for keyed writes; other classes have nothing to find.
        """
        del effect
        return None

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true if, by the recorded steps alone, a visible result is possible."""
        return GONE not in effect.steps

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the follow-up effects of a settled or replayed effect, inside the transaction that settles it."""
        del now_ms
        return FollowUps(dead_letter_card_updated(tx, effect))

    def after_attempt(self, tx: Tx, effect: Effect) -> FollowUps:
        """Return the follow-up effects of an attempt that this process made."""
        return self.follow_ups(tx, effect, self.services.ledger.clock.now_ms())


class EffectHandlers:
    """The dispatcher's Performer: it passes each effect to the handler of its class."""

    def __init__(
        self,
        ledger: Ledger,
        adapters: Adapters,
        rules: Rules,
        seller: Seller,
        *,
        handlers: Mapping[str, type[EffectHandler]],
        settle_delay_seconds: float,
        pacer: Pacer | None = None,
        channels: Channels | None = None,
        directory: Directory | None = None,
        observe_pdf: Callable[[float], object] = ignored,
    ) -> None:
        """`handlers` maps effect classes to handlers; `pacer`, `channels` and `directory` default to instances of their own."""
        self.services = Services(
            ledger,
            adapters,
            rules,
            ActiveRuleset(rules.ruleset),
            seller,
            Pacer(ledger.clock) if pacer is None else pacer,
            Channels(ledger.clock, adapters.slack) if channels is None else channels,
            Directory(ledger, adapters.slack) if directory is None else directory,
            round(settle_delay_seconds * 1000),
            observe_pdf,
        )
        self._handlers = {name: made(self.services) for name, made in handlers.items()}
        self._unknown = EffectHandler(self.services)  # for a class that only a newer build knows

    def _of(self, effect: Effect) -> EffectHandler:
        return self._handlers.get(effect.effect_class, self._unknown)

    async def perform(self, effect: Effect) -> Settlement:
        """Perform the effect, or return how it settles without a call. Raises AdapterError."""
        return await self._of(effect).perform(effect)

    async def find(self, effect: Effect) -> Delivered | None:
        """Ask the external service whether the effect was applied before; None if not. Raises AdapterError."""
        return await self._of(effect).find(effect)

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true if, by the recorded steps alone, a visible result is possible."""
        return self._of(effect).may_have_happened(effect)

    async def start_over(self, effect: Effect) -> None:
        """Discard the recorded steps of a result that never appeared: the next attempt starts from its first call."""
        if effect.steps:
            await self.services.ledger.forget_steps(effect)

    def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
        """Return the follow-up effects of an attempt that this process made, inside the settling transaction."""
        return self._of(effect).after_attempt(tx, effect)


def unknown_quote(effect: Effect) -> AdapterError:
    """Return the error of an effect whose quote does not exist: a bug of ours."""
    return AdapterError(Failure.INTERNAL, "unknown_quote", _("There is no quote {quote}.", quote=effect.aggregate_id))


def quote_of(tx: Tx, effect: Effect) -> Quote | None:
    """Return the quote of an effect: for a document or a record the version that was approved, even if a newer one exists."""
    version = effect.payload.get("version")
    return store.load(tx, effect.aggregate_id) if version is None else store.load_version(tx, effect.aggregate_id, version)


def enqueuing(tx: Tx, effect: Effect) -> Quote:
    """Return the quote that enqueued an effect. Raises LookupError if there is none: its effects exist only with it."""
    quote = quote_of(tx, effect)
    if quote is None:
        raise LookupError(f"There is no quote {effect.aggregate_id}.")
    return quote


def announces(tx: Tx, effect: Effect) -> bool:
    """Return true if this PDF still has to tell the approval: no notice of it does, and its version is the quote's, not ended."""
    if effect.payload.get("announces") is not True:
        return False
    quote = enqueuing(tx, effect)
    if quote.superseded or is_final(quote.state):
        return False
    of_quote = tx.all("effects_of_aggregate", aggregate_id=effect.aggregate_id)
    return not any(row["parent_id"] == effect.id and row["class"] == effects.POST for row in of_quote)


def earliest_attempt(effect: Effect, now_ms: int) -> float:
    """Return the earliest possible time of the first attempt (Unix seconds), with a margin for clock differences.

    An effect that was enqueued in the future is from before the clock was set back: when it was attempted is not known.
    """
    if effect.created_at > now_ms + LOOK_BACK_SECONDS * 500:
        return 0.0
    first_ms = effect.created_at if effect.lost_from is None else min(effect.created_at, effect.lost_from)
    return first_ms / 1000 - LOOK_BACK_SECONDS


def dead_letter_card_updated(tx: Tx, effect: Effect) -> tuple[EffectIntent, ...]:
    """Return a redraw of the dead letter card of this effect, if operators have one and its content has changed."""
    if effect.cycle == 1 and effect.state != "discarded":
        return ()  # it was no dead letter before
    card = dead_letters.find(tx, str(effect.id))
    return () if card is None else (effects.update_dead_letter(card.reference, card.awaited),)
