"""Announcement of dead letters and of refused logins in the operators' channel.

A few dead letters get a card each. Where more of one class fail within a minute, or many wait for a decision, their cause (class,
category and code) gets one card with their number instead. The card of a cause is open while one of its letters waits, and shows
all of them, so no dead letter is without a card. Every step derives what is due from rows; each card is a command of its own,
reserved under a request id that names what it shows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from quotebot import effects
from quotebot.commands.payloads import AnnounceDeadLetter, ReplayCause, ShowOpsCard
from quotebot.execution.operator_actions import failed_again
from quotebot.jobs.scheduler import system_request
from quotebot.store import dead_letters
from quotebot.store.approvals import gone_holders
from quotebot.store.dead_letters import CAUSE, HOLDER, PAUSE, PAUSES_SHOWN, Backlog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Request
    from quotebot.commands.registry import Payload
    from quotebot.store.dead_letters import OpsCard

READ_AT_ONCE: Final = 100
MINUTE_MS: Final = 60_000
SINGLE_A_MINUTE: Final = 5  # cards of single dead letters of one class
UNDECIDED_MAX: Final = 20  # and of all classes while none is decided
REFRESH_MS: Final = 10_000  # between two drawings of a card


async def announce(ledger: Ledger, channel: str, holders: Iterable[str] = (), home: str | None = None) -> int:
    """Reserve every announcement that is due; returns how many.

    `holders` are the people with a role of approvers, `home` the bot's workspace as far as it is known.
    """
    now = ledger.clock.now_ms()
    found = await ledger.database.read(
        lambda tx: [
            *_dead_letters(tx, channel, now),
            *_cards(tx, channel, now, holders),
            *_pauses(tx, channel, now),
            *([] if home is None else _gone(tx, channel, holders, home, now)),
        ]
    )
    for request in found:
        await ledger.reserve(request)
    return len(found)


def _dead_letters(tx: Tx, channel: str, now: int) -> Iterator[Request]:
    """Yield a card for each of a few dead letters that have none, and one per cause for the others."""
    recent = Counter(dead_letters.announced_since(tx, now - MINUTE_MS))
    single = dead_letters.undecided(tx)
    causes: dict[str, str] = {}
    for letter in dead_letters.unannounced(tx, READ_AT_ONCE):
        if recent[letter.effect_class] >= SINGLE_A_MINUTE or single >= UNDECIDED_MAX:
            causes.setdefault(letter.cause, letter.team_id)
            continue
        recent[letter.effect_class] += 1
        single += 1
        again = "" if letter.cycle == 1 else f":{letter.cycle}"
        target = effects.dead_letter_target(letter.reference)
        yield _command(f"{target}{again}", target, letter.team_id, AnnounceDeadLetter(letter.reference, channel), now)
    for cause, team_id in causes.items():
        yield _shown(tx, f"{CAUSE}{cause}", team_id, channel, now)


def _cards(tx: Tx, channel: str, now: int, holders: Iterable[str]) -> Iterator[Request]:
    """Yield the redrawing of each open card whose subject has changed, and the rest of each replay of a whole cause."""
    cards = dead_letters.open_ops_cards(tx)
    causes = dead_letters.waiting_of_causes(tx) if any(card.subject.startswith(CAUSE) for card in cards) else {}
    for card in cards:
        cause = card.subject.removeprefix(CAUSE)
        about_cause = cause != card.subject
        gone = gone_holders(tx, card.team_id, holders) if card.subject.startswith(HOLDER) else ()
        state = causes.get(cause, NONE) if about_cause else dead_letters.waiting_of(tx, card.subject, gone)
        rested = abs(now - card.refreshed_at) >= REFRESH_MS  # in the future: the clock was set back
        if state.over or ((state.shown != card.shown or failed_again(card, state)) and rested):
            yield _shown(tx, card.subject, card.team_id, channel, now)
        if about_cause and card.decided_at is not None:
            yield from _rest(tx, card, cause, card.decided_at, now)


def _rest(tx: Tx, card: OpsCard, cause: str, upto: int, now: int) -> Iterator[Request]:
    """Yield the replay of the dead letters that an operator's click has not reached yet."""
    left = dead_letters.dead_letters_of_cause(tx, cause, 1, upto=upto)
    if left:
        first = f"{left[0]['kind']}:{left[0]['id']}:{left[0]['cycle']}"  # of those left: it changes with every batch
        request_id = f"{effects.ops_target(card.subject)}:replay:{upto}:{first}"
        yield _command(request_id, effects.ops_target(card.subject), card.team_id, ReplayCause(cause, upto), now)


def _pauses(tx: Tx, channel: str, now: int) -> Iterator[Request]:
    """Yield a card for each refused login that has none."""
    for name in PAUSES_SHOWN:
        subject = f"{PAUSE}{name}"
        state, card = dead_letters.pause_of(tx, name), dead_letters.ops_card(tx, subject)
        refused = state.gate is not None and state.gate.state == "held" and state.gate.cause == "auth"
        if refused and (card is None or card.closed_at is not None):
            yield _shown(tx, subject, dead_letters.team_of_family(tx, name), channel, now)


def _gone(tx: Tx, channel: str, holders: Iterable[str], home: str, now: int) -> Iterator[Request]:
    """Yield a card for each role holder who is no full member any more and has none."""
    for user in sorted(gone_holders(tx, home, holders)):
        card = dead_letters.ops_card(tx, f"{HOLDER}{user}")
        if card is None or card.closed_at is not None:
            yield _shown(tx, f"{HOLDER}{user}", home, channel, now)


def _shown(tx: Tx, subject: str, team_id: str, channel: str, now: int) -> Request:
    card, target = dead_letters.ops_card(tx, subject), effects.ops_target(subject)
    return _command(f"{target}:{0 if card is None else card.revision}", target, team_id, ShowOpsCard(subject, channel), now)


def _command(request_id: str, aggregate_id: str, team_id: str, payload: Payload, now: int) -> Request:
    return system_request("quotebot/letter/1", request_id, aggregate_id, team_id, payload, now)


NONE: Final = Backlog(0, 0, None, None)
