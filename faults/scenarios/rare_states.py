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


def _story(name: str, steps: Callable[[], Sequence[Step]]) -> Story:
    return Story(name, lambda: [Starts(), *steps()])


def _known(command: str) -> list[Step]:
    """A person reports to an operator what became of a message."""
    return [
        *(*_made(), ArmsFault("slack", "reset_after", POST, 1), ArmsFault("slack", "5xx", REPLIES)),
        *(Clicks(SUBMIT, REP), Waits(10), ArmsFault()),
        *_by(command),
    ]


def _invisible(text: str) -> list[Step]:
    """The message exists, but the bot cannot find it, and people continue with it."""
    lost, blind = ArmsFault("slack", "reset_after", POST, 1), ArmsFault("slack", "5xx", HISTORY)
    return _given_up([lost, blind, Types(text), Waits(5), Clicks(SUBMIT, REP)])


SPECIAL: Final = (
    _story(
        "doubts",
        lambda: [
            ArmsFault("slack", "reset_after", POST, 1),
            *_made(),
            ArmsFault("slack", "reset_before", POST, 1),
            *_made(SMALL),
            # the check itself fails
            ArmsFault("slack", "reset_before", POST, 1),
            ArmsFault("slack", "5xx", HISTORY, 1),
            *_made("new for Blind: 1 pro"),
            # stopped meanwhile
            ArmsFault("slack", "reset_before", POST, 1),
            Types("new for Stopped: 1 pro"),
            Waits(0.2),
            Stops(),
            Waits(1),
            Starts(),
            Settles(),
        ],
    ),
    _story(
        "killed in flight",  # at a post, then at the check of it, then at a card
        lambda: [
            *(ArmsFault("slack", "slow", POST, 1, delay=20), Types(NEW), Waits(5), Dies()),
            *(ArmsFault("slack", "slow", HISTORY, 1, delay=20), Starts(), Waits(5), Dies(), Starts(), Settles()),
            *(ArmsFault("slack", "slow", UPDATE, 1, delay=20), Clicks(SUBMIT, REP), Waits(5), Dies(), Starts(), Settles()),
        ],
    ),
    _story("a person knows that it arrived", lambda: _known("resolve_delivered")),
    _story("a person knows that it did not", lambda: _known("resolve_send_again")),
    _story(
        "uploads",
        lambda: [
            step
            for number, (effect, method) in enumerate((("reset_before", UPLOAD), ("reset_after", SHARED), ("reset_before", SHARED)))
            for step in (*_made(f"new for U{number}: 5 pro"), ArmsFault("slack", effect, method, 1), Clicks(SUBMIT, REP), Settles())
        ],
    ),
    _story(
        "cards",
        lambda: [
            ArmsFault("slack", "5xx", POST, 1),
            *_made(),
            ArmsFault("slack", "reset_before", UPDATE, 1),
            Clicks(SUBMIT, REP),
            Settles(),
            ArmsFault("slack", "5xx", UPDATE, 4),
            Clicks(APPROVE, MANAGER),
            Settles(),
        ],
    ),
    _story(
        "answers",  # cut off once, cut off twice, an hour late
        lambda: [
            *(*_asked(), ArmsFault("slack", "reset_before", ANSWER, 1), Clicks(APPROVE, REP), Settles(), Repeated()),
            *(ArmsFault("slack", "reset_before", ANSWER, 2), Clicks(APPROVE, STRANGER), Settles()),
            *(Clicks(APPROVE, REP), Stops(), Waits(HOUR), Starts(), Settles()),
        ],
    ),
    _story(
        "duplicates",  # at once, with another content, of a cancelled command, in a later process
        lambda: [
            *(Types(NEW), Repeated(4), Types(SMALL), Settles(), Repeated()),
            *(Forged({SMALL: "new for Mallory: 9 pro"}), Settles()),
            *(Types("new for Nobody: 1 pro"), Stops(), Operates("cancel_waiting"), Starts(), Repeated(), Settles()),
            *(Types("new for Later: 1 pro"), Stops(), Waits(5), Starts(), Settles(), Repeated()),
        ],
    ),
    _story(
        "forgotten",  # retention keeps the newest rows, so newer ones are made before the purge
        lambda: [
            *(*_made(), Types(NEW), Settles(), *_made(SMALL)),
            *(Stops(), Waits(60 * DAY), Operates("prune"), Starts(), Repeated(older=1), Settles()),
        ],
    ),
    _story(
        "offers",
        lambda: [
            *(*_made(), Types(NEW), Settles()),
            *(Clicks("quote.create_another", REP, whispered=True), Settles()),
            *(Clicks("quote.create_another", REP, whispered=True), Settles()),
        ],
    ),
    _story(
        "decisions",  # two at once, a submission after them, a no that meets a yes, one after the quote has expired
        lambda: [
            *(*_asked(), Clicks(APPROVE, MANAGER), Clicks(APPROVE, VP), Repeated(2), Settles()),
            *(Clicks(SUBMIT, REP, stale=True), Settles()),
            *_asked("new for Met: 150 pro; discount 15%"),
            *(Clicks("approval.reject", VP), Clicks(APPROVE, MANAGER), Rejects(VP, "no"), Settles()),
            *_asked("new for Late: 150 pro; discount 15%"),
            *(Stops(), Waits(40 * DAY), Starts(), Clicks(APPROVE, MANAGER, stale=True), Settles()),
        ],
    ),
    _story(
        "blocked",  # a typed submission: the card of a blocked quote has no button for it
        lambda: [*_made("new for Blocked: 150 pro; discount 45%"), Types("submit Q-2027-0001"), Settles()],
    ),
    _story(
        "waits",  # three 429, then an outage of Salesforce
        lambda: [
            ArmsFault("slack", "429", POST, 3, retry_after=60),
            *(Types(NEW), Waits(1), Stops(), Waits(1), Starts(), Settles()),
            ArmsFault("salesforce", "5xx", CRM, 12),
            *(
                step
                for number in range(4)
                for step in (Types(f"new for C{number}: 5 pro"), Waits(1), Clicks(SUBMIT, REP), Waits(0.2))
            ),
            Settles(),
        ],
    ),
    _story(
        "logins",
        lambda: [
            *(*_asked(), Clicks(APPROVE, MANAGER), Settles()),  # its session stays open; the next one's has ended by then
            *_made("new for Renewed: 5 pro"),
            *(ArmsFault("salesforce", "auth_expired", CRM, 1), Clicks(SUBMIT, REP), Settles()),
            *(
                ArmsFault("salesforce", "auth_expired"),
                *_made("new for Refused: 5 pro"),
                Clicks(SUBMIT, REP),
                Waits(60),
                ArmsFault(),
            ),
            *(Stops(), Starts(), Settles()),
        ],
    ),
    _story(
        "dead records",  # one that fails again, one that is there already
        lambda: [
            ArmsFault("salesforce", "5xx", CRM),
            *_given_up([*_asked(), Clicks(APPROVE, MANAGER)]),
            *(ArmsFault("salesforce", "5xx", CRM), Stops(), Operates("replay"), Starts()),
            *(*_given_up([]), *_by("replay")),
            ArmsFault("salesforce", "reset_after", CRM),
            *_given_up([*_made("new for There: 5 pro"), Clicks(SUBMIT, REP)]),
            *_by("replay"),
        ],
    ),
    _story("dead messages", lambda: [*_invisible(NEW), *_by("replay"), *_invisible(SMALL), *_by("discard")]),
    _story(
        "dead cards",
        lambda: [
            *_given_up([*_made(), ArmsFault("slack", "5xx", UPDATE), Clicks(SUBMIT, REP)]),
            *(Clicks(SUBMIT, REP), Settles()),
            *_by("replay"),
        ],
    ),
    _story(
        "taken out of the channel",
        lambda: [*_made(), Clicks(SUBMIT, REP), Members(with_bot=False), Settles(), Members(with_bot=True), *_by("replay")],
    ),
    _story(
        "too old",
        lambda: [ArmsFault("slack", "5xx", POST), Types(NEW), Waits(1), Stops(), ArmsFault(), Waits(8 * DAY), Starts(), Settles()],
    ),
)
