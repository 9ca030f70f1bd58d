"""Steps of a scenario; each step defines how it continues after a crash of the bot during it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from faults.lab.processes import DiedError
from quotebot.sandbox.slack.directory import BOT_USER_ID, PARTNER_TEAM_ID
from quotebot.views.forms import FOUND

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from faults.lab.simulation import Cell
    from quotebot.sandbox.slack.courier import Delivery
    from quotebot.sandbox.world import World

CHANNEL = "C0DEALS"
REP, MANAGER = "U0REP", "U0MANAGER"


class Step(Protocol):
    """One step of a scenario. A step is used once, because it keeps state."""

    def do(self, cell: Cell) -> None:
        """Do the step. Raises DiedError if the bot crashed meanwhile."""
        ...

    def again(self, cell: Cell) -> None:
        """Continue the step after a restart of the bot, as people, Slack and operators do; by default nothing is left to do."""
        del cell


class NothingThereError(Exception):
    """A person cannot act: the message for it does not exist."""


@dataclass(slots=True)
class Gesture(Step):
    """A person's action in Slack. After a crash Slack delivers it again, and once more at the end of the scenario."""

    request_id: str | None = field(default=None, init=False)

    @abstractmethod
    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Return the person's action as a coroutine."""

    def do(self, cell: Cell) -> None:
        """Act once."""
        self.request_id = cell.people(self.gesture(cell.world))["request_id"]
        if cell.life is None:
            raise DiedError

    def again(self, cell: Cell) -> None:
        """Deliver the same request again; if the bot crashed before Slack sent it, act."""
        if self.request_id is None:
            self.do(cell)
        else:
            cell.people(cell.world.courier.redeliver(self.request_id, "resend", 1))


@dataclass(slots=True)
class Types(Gesture):
    """A person types /quote."""

    text: str
    user: str = REP
    channel: str = CHANNEL

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Type the command."""
        return world.gestures.slash(self.user, self.channel, "/quote", self.text)


@dataclass(slots=True)
class Clicks(Gesture):
    """A person clicks a button: on the newest card, or on their newest ephemeral message."""

    action_id: str
    user: str
    whispered: bool = False
    stale: bool = False
    value: str | None = None  # the entry, of a menu
    channel: str = CHANNEL

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Click the button."""
        button = "" if self.channel == CHANNEL else self.action_id  # cards of several kinds follow each other elsewhere
        message = newest(world, whispered_to=self.user if self.whispered else None, channel=self.channel, button=button)
        return world.gestures.click_message(
            self.user, self.channel, message["ts"], self.action_id, block_id=None, value=self.value, values={}, stale=self.stale
        )


@dataclass(slots=True)
class Rejects(Gesture):
    """An approver presses Reject, and submits the form with a reason."""

    user: str
    reason: str

    def do(self, cell: Cell) -> None:
        """Open the form, which records nothing, then submit it."""
        if not _forms(cell.world, self.user):
            Clicks("approval.reject", self.user).do(cell)
        Gesture.do(self, cell)

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Submit the form."""
        return world.gestures.submit(self.user, _forms(world, self.user)[-1], {"reason": {"reason": self.reason}})


@dataclass(slots=True)
class Fills(Gesture):
    """A person fills in the newest form they have open, and submits it; `values` are the inputs by block name."""

    user: str
    values: Mapping[str, str]

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Submit the form."""
        typed: dict[str, Any] = {name: {name: value} for name, value in self.values.items()}
        return world.gestures.submit(self.user, _forms(world, self.user)[-1], typed)


@dataclass(slots=True)
class Writes(Gesture):
    """A person writes a message."""

    text: str
    user: str = REP

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Write the message."""
        return world.gestures.write(self.user, CHANNEL, self.text, None)


@dataclass(slots=True)
class OpensHome(Gesture):
    """A person opens the bot's Home tab."""

    user: str

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Open the tab."""
        return world.gestures.open_home(self.user)


@dataclass(slots=True)
class Repeated(Step):
    """Slack delivers a request again, several times at once; `older` is how many requests came after it."""

    times: int = 1
    older: int = 0

    def do(self, cell: Cell) -> None:
        """Redeliver the request."""
        cell.people(cell.world.courier.redeliver(newest_delivery(cell.world, self.older).request_id, "resend", self.times))


@dataclass(slots=True)
class Members(Step):
    """A person removes the bot from the channel, or invites it again."""

    with_bot: bool

    def do(self, cell: Cell) -> None:
        """Change the channel's members."""
        channels = cell.world.slack.directory.channels
        people = [member for member in channels[CHANNEL].members if member != BOT_USER_ID]
        channels[CHANNEL] = replace(channels[CHANNEL], members=(*people, *([BOT_USER_ID] if self.with_bot else [])))


@dataclass(slots=True)
class Shares(Step):
    """The channel is shared with another organization (Slack Connect)."""

    def do(self, cell: Cell) -> None:
        """Share the channel."""
        channels = cell.world.slack.directory.channels
        channels[CHANNEL] = replace(channels[CHANNEL], connected_teams=(PARTNER_TEAM_ID,))


@dataclass(slots=True)
class Leaves(Step):
    """A person leaves the workspace: their account is deactivated."""

    user: str

    def do(self, cell: Cell) -> None:
        """Deactivate the account."""
        people = cell.world.slack.directory.people
        people[self.user] = replace(people[self.user], is_deactivated=True)


@dataclass(slots=True)
class Forged(Step):
    """A repetition of the newest request with changed content: other values, or what a card of another build would send."""

    changes: Mapping[str, str]

    def do(self, cell: Cell) -> None:
        """Deliver the changed request."""
        delivery = newest_delivery(cell.world)
        text = delivery.text
        for was, is_now in self.changes.items():
            assert was in text, f"the newest request has no {was!r} in it"  # noqa: S101 -- a scenario that no longer fits
            text = text.replace(was, is_now)
        cell.people(cell.deliver(text, delivery.envelope_id, delivery.kind))


@dataclass(slots=True)
class Settles(Step):
    """The bot works until nothing is left to do."""

    whole: bool = True  # whether nothing may be left after half an hour

    def do(self, cell: Cell) -> None:
        """Wait until the bot has settled."""
        if not cell.settle() and self.whole:
            raise AssertionError("after half an hour something was still under way that only the hourly poll would wake")

    again = do


@dataclass(slots=True)
class Waits(Step):
    """Time passes, with the bot running or, after it was stopped, without it."""

    seconds: float

    def do(self, cell: Cell) -> None:
        """Let the time pass."""
        if cell.life is None and cell.was_stopped:
            cell.clock.advance(self.seconds)
        else:
            cell.wait(self.seconds)


@dataclass(slots=True)
class PutsClock(Step):
    """A person sets the machine's clock forward or back while no bot runs."""

    by_seconds: float

    def do(self, cell: Cell) -> None:
        """Set the clock."""
        cell.clock.put(round(self.by_seconds * 1000))


@dataclass(slots=True)
class Configures(Step):
    """A person changes settings while no bot runs."""

    changes: Mapping[str, Any]

    def do(self, cell: Cell) -> None:
        """Change the settings."""
        cell.settings = cell.settings.model_copy(update=self.changes)


@dataclass(slots=True)
class ArmsFault(Step):
    """An external service starts to fail (see quotebot.sandbox.faults), or, without an effect, all faults are cleared."""

    target: str = ""
    effect: str = ""
    method: str | None = None
    times: int | None = None
    retry_after: int | None = None
    delay: float = 5.0  # seconds, of "slow"

    def do(self, cell: Cell) -> None:
        """Arm the fault, or clear all faults."""
        if not self.effect:
            cell.world.weather.clear()
            return
        times = 10_000 if self.times is None else self.times
        cell.world.weather.arm(
            self.target, self.effect, method=self.method, times=times, retry_after=self.retry_after, delay=self.delay
        )


@dataclass(slots=True)
class ChangesCrm(Step):
    """A person in Salesforce changes the newest quote's record."""

    values: dict[str, object]

    def do(self, cell: Cell) -> None:
        """Change the record."""
        org = cell.world.salesforce._org  # noqa: SLF001 -- the stand-in has no public way to do it
        *_, record = cell.world.salesforce.records("Quote")
        org.update(org.sobject("Quote"), str(record["Id"]), self.values)


@dataclass(slots=True)
class MakesOpportunity(Step):
    """A person in Salesforce creates an account with an open opportunity: the org's first ones."""

    account: str

    def do(self, cell: Cell) -> None:
        """Create both records."""
        org = cell.world.salesforce._org  # noqa: SLF001 -- the stand-in has no public way to do it
        account = org.create(org.sobject("Account"), {"Name": self.account})
        deal = {"Name": "Renewal", "AccountId": account, "StageName": "Prospecting", "CloseDate": "2027-12-31"}
        org.create(org.sobject("Opportunity"), deal)


@dataclass(slots=True)
class ChoosesAccount(Gesture):
    """A person chooses an account in the newest form they have open."""

    account: str
    user: str = REP

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Choose the account."""
        view = _forms(world, self.user)[-1]
        return world.gestures.click_view(self.user, view, FOUND, block_id=None, value=self.account, values={})


@dataclass(slots=True)
class Stops(Step):
    """The bot is stopped with SIGTERM."""

    def do(self, cell: Cell) -> None:
        """Stop the bot."""
        cell.stop()

    again = do  # it was started meanwhile


@dataclass(slots=True)
class Starts(Step):
    """The bot is started."""

    def do(self, cell: Cell) -> None:
        """Start the bot."""
        cell.start()


@dataclass(slots=True)
class Dies(Step):
    """The bot is killed, apart from the scenario's own crash point."""

    def do(self, cell: Cell) -> None:
        """SIGKILL the bot."""
        cell.kill()

    again = do  # it was started meanwhile


@dataclass(slots=True)
class Operates(Step):
    """An operator runs a command while no bot runs."""

    name: str
    alone: bool = False  # if interrupted, it is repeated before any bot starts: a bot would do what the command is to prevent

    def do(self, cell: Cell) -> None:
        """Run the command."""
        cell.operate(self.name)

    def again(self, cell: Cell) -> None:
        """Stop the bot and run the interrupted command again."""
        if cell.life is not None:
            cell.stop()
        cell.operate(self.name)


def newest_delivery(world: World, older: int = 0) -> Delivery:
    """Return the newest request that Slack sent, or the one `older` requests before it."""
    return list(world.courier._deliveries.values())[-1 - older]  # noqa: SLF001 -- the stand-in has no public list of them


def newest(world: World, whispered_to: str | None = None, channel: str = CHANNEL, button: str = "") -> dict[str, Any]:
    """Return the newest card, with this `button` if one is named, or this person's newest ephemeral message with buttons."""
    found = [
        message
        for message in world.seen().messages
        if message["channel"] == channel
        and message["blocks"]
        and message["ephemeral_for"] == whispered_to
        and button in str(message["blocks"])
        and (whispered_to is not None or not message["thread_ts"])
    ]
    if not found:
        raise NothingThereError("there is no such message to click on")
    return found[-1]


def _forms(world: World, user: str) -> list[str]:
    """Return the ids of the forms that are open for this person, oldest first."""
    return [view.id for view in world.slack.views.stacks.get(user, [])]
