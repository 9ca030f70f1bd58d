"""Scenarios of rare states, each played once, without crash points: those of workflows.py cover the crash points.

Every interesting state (faults/checks/reachability.py) that no plain scenario reaches has one here that reaches it on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faults.lab.steps import (
    MANAGER,
    REP,
    ArmsFault,
    Clicks,
    Dies,
    Forged,
    Members,
    Operates,
    Rejects,
    Repeated,
    Settles,
    Starts,
    Step,
    Stops,
    Types,
    Waits,
)
from faults.scenarios.workflows import NEW, SMALL, Story

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VP, STRANGER = "U0VP", "U0OPERATOR"
POST, UPDATE, ANSWER, CRM = "chat.postMessage", "chat.update", "response_url", "composite/graph"
HISTORY, REPLIES = "conversations.history", "conversations.replies"
UPLOAD, ANNOUNCED, SHARED = "upload", "files.getUploadURLExternal", "files.completeUploadExternal"
HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
APPROVE, SUBMIT = "approval.approve", "quote.submit"


def _made(text: str = NEW) -> list[Step]:
    return [Types(text), Settles()]


def _asked(text: str = NEW) -> list[Step]:
    return [*_made(text), Clicks(SUBMIT, REP), Settles()]


def _given_up(steps: Sequence[Step]) -> list[Step]:
    """Return the steps, then the time to spend a budget, and an end of all faults after it."""
    return [*steps, Waits(2 * HOUR), Settles(), ArmsFault()]


def _by(*commands: str) -> list[Step]:
    """Return the steps in which operators run commands while no bot runs."""
    return [Stops(), *(Operates(command) for command in commands), Starts(), Settles()]


def _uncertain() -> list[Step]:
    lost: list[Step] = [
        ArmsFault("slack", "reset_after", POST, 1),
        *_made(),
        ArmsFault("slack", "reset_before", POST, 1),
        *_made(SMALL),
    ]
    blind: list[Step] = [
        ArmsFault("slack", "reset_before", POST, 1),
        ArmsFault("slack", "5xx", HISTORY, 1),
        *_made("new for Blind: 1 pro"),
    ]
    stopped: list[Step] = [
        ArmsFault("slack", "reset_before", POST, 1),
        Types("new for Stopped: 1 pro"),
        Waits(0.2),
        Stops(),
        Waits(1),
        Starts(),
    ]
    return [*lost, *blind, *stopped, Settles()]


def _killed_in_flight() -> list[Step]:
    post: list[Step] = [ArmsFault("slack", "slow", POST, 1, delay=20), Types(NEW), Waits(5), Dies()]
    look: list[Step] = [ArmsFault("slack", "slow", HISTORY, 1, delay=20), Starts(), Waits(5), Dies(), Starts(), Settles()]
    card: list[Step] = [ArmsFault("slack", "slow", UPDATE, 1, delay=20), Clicks(SUBMIT, REP), Waits(5), Dies(), Starts(), Settles()]
    return [*post, *look, *card]


def _words_of_people(command: str) -> list[Step]:
    unknown: list[Step] = [ArmsFault("slack", "reset_after", POST, 1), ArmsFault("slack", "5xx", REPLIES)]
    return [*_asked(), *unknown, Clicks(APPROVE, MANAGER), Waits(10), ArmsFault(), *_by(command)]


def _uploads() -> list[Step]:
    return [
        step
        for number, (effect, method) in enumerate((("reset_before", UPLOAD), ("reset_after", SHARED), ("reset_before", SHARED)))
        for step in (*_made(f"new for U{number}: 5 pro"), ArmsFault("slack", effect, method, 1), Clicks(SUBMIT, REP), Settles())
    ]


def _cards() -> list[Step]:
    lost: list[Step] = [*_made(), ArmsFault("slack", "reset_before", UPDATE, 1), Clicks(SUBMIT, REP), Settles()]
    failing: list[Step] = [ArmsFault("slack", "5xx", UPDATE, 4), Clicks(APPROVE, MANAGER), Settles()]
    return [ArmsFault("slack", "5xx", POST, 1), *lost, *failing]


def _answers() -> list[Step]:
    once: list[Step] = [*_asked(), ArmsFault("slack", "reset_before", ANSWER, 1), Clicks(APPROVE, REP), Settles(), Repeated()]
    twice: list[Step] = [ArmsFault("slack", "reset_before", ANSWER, 2), Clicks(APPROVE, STRANGER), Settles()]
    late: list[Step] = [Clicks(APPROVE, REP), Stops(), Waits(HOUR), Starts(), Settles()]
    return [*once, *twice, *late]


def _duplicates() -> list[Step]:
    at_once: list[Step] = [Types(NEW), Repeated(4), Types(SMALL), Settles(), Repeated()]
    other: list[Step] = [Forged({SMALL: "new for Mallory: 9 pro"}), Settles()]
    cancelled: list[Step] = [Types("new for Nobody: 1 pro"), Stops(), Operates("cancel_waiting"), Starts(), Repeated(), Settles()]
    later: list[Step] = [Types("new for Later: 1 pro"), Stops(), Waits(5), Starts(), Settles(), Repeated()]
    return [*at_once, *other, *cancelled, *later]


def _forgotten() -> list[Step]:
    """Retention keeps the newest rows, so newer ones are made before the purge."""
    refused: list[Step] = [*_made(), Types(NEW), Settles(), *_made(SMALL)]
    return [*refused, Stops(), Waits(60 * DAY), Operates("prune"), Starts(), Repeated(older=1), Settles()]


def _offers() -> list[Step]:
    another = Clicks("quote.create_another", REP, whispered=True)
    again = Clicks("quote.create_another", REP, whispered=True)
    return [*_made(), Types(NEW), Settles(), another, Settles(), again, Settles()]


def _decisions() -> list[Step]:
    race: list[Step] = [*_asked(), Clicks(APPROVE, MANAGER), Clicks(APPROVE, VP), Repeated(2), Settles()]
    done: list[Step] = [Clicks(SUBMIT, REP, stale=True), Settles()]
    met: list[Step] = [
        *_asked("new for Met: 150 pro; discount 15%"),
        Clicks("approval.reject", VP),
        Clicks(APPROVE, MANAGER),
        Rejects(VP, "no"),
    ]
    late: list[Step] = [
        *_asked("new for Late: 150 pro; discount 15%"),
        Stops(),
        Waits(40 * DAY),
        Starts(),
        Clicks(APPROVE, MANAGER, stale=True),
        Settles(),
    ]
    return [*race, *done, *met, Settles(), *late]


def _blocked() -> list[Step]:
    """A submit button on a blocked quote, as a card of a build with a milder policy shows it."""
    of_another = Forged({"Q-2027-0002": "Q-2027-0001", '"trigger_id": "': '"trigger_id": "9'})
    return [*_made("new for Blocked: 150 pro; discount 45%"), *_made(), Clicks(SUBMIT, REP), Settles(), of_another, Settles()]


def _waits() -> list[Step]:
    three: list[Step] = [
        ArmsFault("slack", "429", POST, 3, retry_after=60),
        Types(NEW),
        Waits(1),
        Stops(),
        Waits(1),
        Starts(),
        Settles(),
    ]
    down: list[Step] = [ArmsFault("salesforce", "5xx", CRM, 12)]
    people: list[Step] = [
        step for number in range(4) for step in (Types(f"new for C{number}: 5 pro"), Waits(1), Clicks(SUBMIT, REP), Waits(0.2))
    ]
    return [*three, *down, *people, Settles()]


def _logins() -> list[Step]:
    first: list[Step] = [*_asked(), Clicks(APPROVE, MANAGER), Settles()]  # its session stays open; the next one's has ended by then
    renewed: list[Step] = [
        *_made("new for Renewed: 5 pro"),
        ArmsFault("salesforce", "auth_expired", CRM, 1),
        Clicks(SUBMIT, REP),
        Settles(),
    ]
    refused: list[Step] = [
        ArmsFault("salesforce", "auth_expired"),
        *_made("new for Refused: 5 pro"),
        Clicks(SUBMIT, REP),
        Waits(60),
        ArmsFault(),
    ]
    return [*first, *renewed, *refused, Stops(), Starts(), Settles()]


def _dead_records() -> list[Step]:
    again: list[Step] = [
        ArmsFault("salesforce", "5xx", CRM),
        *_given_up([*_asked(), Clicks(APPROVE, MANAGER)]),
        ArmsFault("salesforce", "5xx", CRM),
    ]
    there: list[Step] = [
        ArmsFault("salesforce", "reset_after", CRM),
        *_given_up([*_made("new for There: 5 pro"), Clicks(SUBMIT, REP)]),
    ]
    return [*again, Stops(), Operates("replay"), Starts(), *_given_up([]), *_by("replay"), *there, *_by("replay")]


def _dead_messages() -> list[Step]:
    """The message exists, but the bot cannot find it, and people continue with it."""
    blind: list[Step] = [ArmsFault("slack", "reset_after", POST, 1), ArmsFault("slack", "5xx", HISTORY), Types(NEW), Waits(5)]
    looked: list[Step] = [*_given_up([*blind, Clicks(SUBMIT, REP)]), *_by("replay")]
    blind_too: list[Step] = [ArmsFault("slack", "reset_after", POST, 1), ArmsFault("slack", "5xx", HISTORY), Types(SMALL), Waits(5)]
    return [*looked, *_given_up([*blind_too, Clicks(SUBMIT, REP)]), *_by("discard")]


def _dead_cards() -> list[Step]:
    dead = _given_up([*_made(), ArmsFault("slack", "5xx", UPDATE), Clicks(SUBMIT, REP)])
    return [*dead, Clicks(SUBMIT, REP), Settles(), *_by("replay")]


def _taken_out() -> list[Step]:
    return [*_made(), Clicks(SUBMIT, REP), Members(with_bot=False), Settles(), Members(with_bot=True), *_by("replay")]


def _too_old() -> list[Step]:
    return [ArmsFault("slack", "5xx", POST), Types(NEW), Waits(1), Stops(), ArmsFault(), Waits(8 * DAY), Starts(), Settles()]


def _story(name: str, steps: Callable[[], Sequence[Step]]) -> Story:
    return Story(name, lambda: [Starts(), *steps()])


SPECIAL: Final = (
    _story("doubts", _uncertain),
    _story("killed in flight", _killed_in_flight),
    _story("a person knows that it arrived", lambda: _words_of_people("resolve_delivered")),
    _story("a person knows that it did not", lambda: _words_of_people("resolve_send_again")),
    _story("uploads", _uploads),
    _story("cards", _cards),
    _story("answers", _answers),
    _story("duplicates", _duplicates),
    _story("forgotten", _forgotten),
    _story("offers", _offers),
    _story("decisions", _decisions),
    _story("blocked", _blocked),
    _story("waits", _waits),
    _story("logins", _logins),
    _story("dead records", _dead_records),
    _story("dead messages", _dead_messages),
    _story("dead cards", _dead_cards),
    _story("taken out of the channel", _taken_out),
    _story("too old", _too_old),
)
