"""The stories whose every window is tried: each kind of command, each way it can end, and what operators do about it.

`before` brings the world to where the measured part begins. A new command kind, effect class or write that no story passes
fails faults/test_windows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from faults.lab.steps import (
    MANAGER,
    REP,
    Clicks,
    Dies,
    Operates,
    Rejects,
    Repeated,
    Settles,
    Starts,
    Step,
    Stops,
    Types,
    Waits,
    Weather,
)

Steps = Callable[[], Sequence[Step]]
DAYS_60: Final = 60 * 86_400.0
NEW: Final = "new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 15%"
SMALL: Final = "new for Bolt Ltd: 5 pro"


@dataclass(frozen=True, slots=True)
class Story:
    """`before` and `measured` make fresh steps each time."""

    name: str
    measured: Steps
    before: Steps = tuple
    at_rest: bool = True  # whether nothing is left waiting at its end


def _created() -> list[Step]:
    return [Starts(), Types(NEW), Settles()]


def _submitted() -> list[Step]:
    return [*_created(), Clicks("quote.submit", REP), Settles()]


def _dead_crm() -> list[Step]:
    return [
        *_submitted(),
        Weather("salesforce", "5xx", "composite/graph"),
        Clicks("approval.approve", MANAGER),
        Waits(7200),
        Settles(),
        Weather(),
    ]


def _unanswered(hours: float) -> Steps:
    return lambda: [*_submitted(), Stops(), Waits(hours * 3600)]


STORIES: Final = (
    Story("first start", lambda: [Starts(), Stops()]),
    Story("create", lambda: [Types(NEW), Settles()], lambda: [Starts()]),
    Story("create, stopped at once", lambda: [Types(NEW), Stops(), Starts(), Settles()], lambda: [Starts()]),
    Story("delivered again", lambda: [Repeated(2), Settles()], _created),
    Story("create again", lambda: [Types(NEW), Settles()], _created),
    Story(
        "create another",
        lambda: [Clicks("quote.create_another", REP, whispered=True), Settles()],
        lambda: [*_created(), Types(NEW), Settles()],
    ),
    Story("refused command", lambda: [Clicks("approval.approve", REP), Settles()], _submitted),
    Story("submit", lambda: [Clicks("quote.submit", REP), Settles()], _created),
    Story("submit, nobody needed", lambda: [Clicks("quote.submit", REP), Settles()], lambda: [Starts(), Types(SMALL), Settles()]),
    Story("approve", lambda: [Clicks("approval.approve", MANAGER), Settles()], _submitted),
    Story(
        "reject", lambda: [Rejects(MANAGER, "too cheap"), Settles()], lambda: [*_submitted(), Clicks("approval.reject", MANAGER)]
    ),
    Story("remind", lambda: [Operates("remind"), Starts(), Settles()], _unanswered(2)),
    Story("escalate", lambda: [Operates("escalate"), Starts(), Settles()], _unanswered(4)),
    Story(
        "request expired, asked again",
        lambda: [Operates("expire_request"), Starts(), Settles(), Clicks("quote.submit", REP), Settles()],
        _unanswered(72),
    ),
    Story("request changes", lambda: [Operates("send_back"), Starts(), Settles()], _unanswered(0.1)),
    Story(
        "out of office, the delegate approves",
        lambda: [Operates("delegate"), Starts(), Settles(), Clicks("approval.approve", "U0DEALDESK"), Settles()],
        lambda: [*_submitted(), Stops()],
    ),
    Story(
        "recovery",
        lambda: [Starts(), Settles(), Stops()],
        lambda: [*_submitted(), Clicks("approval.approve", MANAGER), Waits(0.1), Dies()],
    ),
    Story(
        "outage",
        lambda: [Clicks("approval.approve", MANAGER), Waits(7200), Settles()],
        lambda: [*_submitted(), Weather("salesforce", "5xx", "composite/graph")],
    ),
    Story(
        "throttled",
        lambda: [Types(NEW), Settles()],
        lambda: [Starts(), Weather("slack", "429", "chat.postMessage", times=2, retry_after=3)],
    ),
    Story(
        "refused login",
        lambda: [Clicks("approval.approve", MANAGER), Waits(60), Weather(), Stops(), Operates("resume"), Starts(), Settles()],
        lambda: [*_submitted(), Weather("salesforce", "auth_expired", "oauth2/token")],
    ),
    Story("replay", lambda: [Stops(), Operates("replay"), Starts(), Settles()], _dead_crm),
    Story("discard", lambda: [Stops(), Operates("discard"), Starts(), Settles()], _dead_crm),
    Story("send again", lambda: [Stops(), Operates("resolve_send_again"), Starts(), Settles()], _dead_crm),
    Story(
        "pause and resume",
        lambda: [
            Stops(),
            Operates("pause"),
            Starts(),
            Clicks("approval.approve", MANAGER),
            Waits(30),
            Stops(),
            Operates("resume"),
            Starts(),
            Settles(),
        ],
        _submitted,
    ),
    Story(
        "cancel",
        lambda: [Operates("cancel_waiting", alone=True), Starts(), Settles()],
        lambda: [*_submitted(), Clicks("approval.approve", MANAGER), Waits(0.02), Stops()],
    ),
    Story(
        "purge",
        lambda: [Operates("prune"), Starts(), Settles()],
        lambda: [*_created(), Types(NEW), Settles(), Types(SMALL), Settles(), Stops(), Waits(DAYS_60)],
    ),
)
