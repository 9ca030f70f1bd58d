"""Scenarios that only a seeded bug needs; each is built like those of faults/scenarios/workflows.py."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from faults.lab.steps import MANAGER, REP, ArmsFault, Clicks, Gesture, Operates, Rejects, Settles, Starts, Step, Stops, Types, Waits
from faults.lab.wire import Wire
from faults.scenarios.workflows import NEW, QUOTE, Story, approved, created, submitted
from quotebot.commands.payloads import CreateQuote

if TYPE_CHECKING:
    from faults.lab.simulation import Cell
    from quotebot.sandbox.wire import Answer, Received

DEPLOYED: Final = CreateQuote.schema + 1  # a payload schema that no build has yet
SLOW_SECONDS: Final = 15.0  # the bot gives up a call after 10
SIXTY_DAYS: Final = 60 * 86_400.0
THIRTY_DAYS: Final = 30 * 86_400.0  # validity of a quote


@dataclass(slots=True)
class TypesOnce(Types):
    """A person types /quote, and Slack delivers it again only if it was not acknowledged."""

    def again(self, cell: Cell) -> None:
        """Deliver the request again, unless it was acknowledged."""
        if cell.history and cell.history[-1].acked:
            self.request_id = None
        else:
            Types.again(self, cell)


class Lasting:
    """A step that a crash of the bot does not undo."""

    def again(self, cell: Cell) -> None:
        """Nothing to do: it was done."""


@dataclass(slots=True)
class Demotes(Lasting):
    """From now on a person is a guest of the workspace."""

    user: str

    def do(self, cell: Cell) -> None:
        """Make the person a guest."""
        people = cell.world.slack.directory.people
        people[self.user] = replace(people[self.user], is_guest=True)


@dataclass(slots=True)
class Deploys(Lasting):
    """From now on another build is started, which writes one payload in another schema."""

    def do(self, cell: Cell) -> None:
        """Install the build."""
        del cell
        honest = CreateQuote.canonical

        def canonical(self: CreateQuote) -> dict[str, object]:
            return {**honest(self), "v": DEPLOYED, "currency": "USD"}

        CreateQuote.canonical = canonical  # type: ignore[method-assign] # what a deploy does, in this process alone
        CreateQuote.schema = DEPLOYED
        CreateQuote.upcasters = {**CreateQuote.upcasters, DEPLOYED - 1: lambda stored: {**stored, "v": DEPLOYED}}


@dataclass(slots=True)
class Lingers(Lasting):
    """From now on a request arrives even if its sender has given it up."""

    def do(self, cell: Cell) -> None:
        """Shield requests from cancellation."""
        del cell
        honest = Wire.exchange

        async def exchange(self: Wire, received: Received) -> Answer:
            return await asyncio.shield(honest(self, received))

        Wire.exchange = exchange  # type: ignore[method-assign] # in this process and the bots it starts


@dataclass(slots=True)
class Slow(Lasting):
    """Slack processes the next message only after the bot has given up the call."""

    def do(self, cell: Cell) -> None:
        """Delay the message."""
        cell.world.weather.arm("slack", "slow", method="chat.postMessage", times=1, delay=SLOW_SECONDS)


@dataclass(slots=True)
class Redelivers(Lasting):
    """Slack delivers a person's request once more."""

    gesture: Gesture

    def do(self, cell: Cell) -> None:
        """Redeliver the request."""
        assert self.gesture.request_id is not None  # noqa: S101 -- it was done before
        cell.people(cell.world.courier.redeliver(self.gesture.request_id, "retry", 1))


def _typed_before_a_deploy() -> list[Step]:
    typed = Types(NEW)
    return [typed, Settles(), Stops(), Deploys(), Starts(), Redelivers(typed), Settles()]


STORIES: Final = (
    Story("create, delivered once", lambda: [TypesOnce(NEW), Settles()], lambda: [Starts()]),
    Story(
        "create, delivered again to another build",
        _typed_before_a_deploy,
        lambda: [Starts()],
    ),
    Story("a stranger approves", lambda: [Clicks("approval.approve", "U0OPERATOR"), Settles()], submitted),
    Story(
        "a guest approves",
        lambda: [Clicks("approval.approve", MANAGER), Settles()],
        lambda: [*submitted(), Demotes(MANAGER), Waits(120)],
    ),
    Story(
        "two approve",
        lambda: [
            Clicks("approval.approve", MANAGER),
            Clicks("approval.approve", "U0VP", stale=True),
            Settles(),
        ],
        submitted,
    ),
    Story(
        "approved too late",  # by seconds: the expiry job has not closed it yet
        lambda: [Clicks("approval.approve", MANAGER), Settles()],
        lambda: [*submitted(), Stops(), Waits(THIRTY_DAYS + 20)],
    ),
    Story("nearly over", lambda: [Starts(), Settles(), Stops()], lambda: [*submitted(), Stops(), Waits(THIRTY_DAYS - 3 * 86_400)]),
    Story(
        "accepted too late",  # as above
        lambda: [Types(f"accept {QUOTE}"), Settles()],
        lambda: [
            *approved(),
            Types(f"finalize {QUOTE}"),
            Settles(),
            Types(f"sent {QUOTE} to buyer"),
            Settles(),
            Stops(),
            Waits(THIRTY_DAYS + 20),
        ],
    ),
    Story(
        "a superseded version is finalized",
        lambda: [Types(f"finalize {QUOTE} v1"), Settles()],
        lambda: [*submitted(), Types(f"revise {QUOTE}: discount 5%"), Settles(), Types(f"submit {QUOTE}"), Settles()],
    ),
    Story(
        "another, clicked twice",
        lambda: [
            Clicks("quote.create_another", REP, whispered=True),
            Settles(),
            Clicks("quote.create_another", REP, whispered=True, stale=True),
            Settles(),
        ],
        lambda: [*created(), Types(NEW), Settles()],
    ),
    Story(
        "purge of a refused creation",
        lambda: [Operates("prune"), Starts(), Settles()],
        lambda: [*created(), Types(NEW), Settles(), Clicks("quote.submit", REP), Settles(), Stops(), Waits(SIXTY_DAYS)],
    ),
    Story(
        "nine failures",
        lambda: [Clicks("approval.approve", MANAGER), Settles()],
        lambda: [*submitted(), ArmsFault("salesforce", "5xx", "composite/graph", times=9)],
    ),
    Story(
        "replay of a doubt",
        lambda: [Stops(), Operates("replay"), Starts(), Settles()],
        lambda: [
            *submitted(),
            ArmsFault("slack", "reset_after", "chat.postMessage", times=1),
            ArmsFault("slack", "5xx", "conversations.replies"),
            Clicks("approval.approve", MANAGER),
            Waits(600),
            ArmsFault(),
            Settles(),
        ],
    ),
    Story(
        "card in doubt",
        lambda: [Clicks("quote.submit", REP), Settles()],
        lambda: [
            Starts(),
            ArmsFault("slack", "reset_after", "chat.postMessage", times=1),
            ArmsFault("slack", "429", "conversations.history", times=1, retry_after=20),
            Types(NEW),
            Waits(1),
        ],
    ),
    Story(
        "two posts wait",
        lambda: [Rejects(MANAGER, "too cheap"), Settles()],
        lambda: [
            *created(),
            ArmsFault("slack", "5xx", "chat.postMessage", times=1),
            Clicks("quote.submit", REP),
            Waits(1),
            Clicks("approval.reject", MANAGER),
        ],
    ),
    Story(
        "a post arrives after its time-out",
        lambda: [Stops(), Lingers(), Starts(), Slow(), Types(NEW), Waits(60), Settles()],
        lambda: [Starts()],
    ),
)
