"""What happens in a story, step by step; each step knows how it goes on after the bot died in the middle of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from faults.lab.processes import DiedError
from quotebot.sandbox.slack.directory import BOT_USER_ID, PARTNER_TEAM_ID
from quotebot.views.crm_fields import FOUND

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from faults.lab.simulation import Cell
    from quotebot.sandbox.slack.courier import Delivery
    from quotebot.sandbox.world import World

CHANNEL = "C0DEALS"
REP, MANAGER = "U0REP", "U0MANAGER"


class Step(Protocol):
    """One thing that happens. A step is used once: it remembers what it did."""

    def do(self, cell: Cell) -> None:
        """Do it. Raises DiedError when the bot died meanwhile."""
        ...

    def again(self, cell: Cell) -> None:
        """Go on with it in a new life of the bot, as people, Slack and operators do."""
        ...


class NothingThereError(Exception):
    """Somebody cannot do what comes next: the message for it is not there."""


@dataclass(slots=True)
class Gesture(ABC):
    """Somebody does something in Slack. After a death Slack delivers it again, and once more at the end of the story."""

    request_id: str | None = field(default=None, init=False)

    @abstractmethod
    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Return what the person does."""

    def do(self, cell: Cell) -> None:
        """Do it, once."""
        self.request_id = cell.people(self.gesture(cell.world))["request_id"]
        if cell.life is None:
            raise DiedError

    def again(self, cell: Cell) -> None:
        """Deliver the same request again; when it died before Slack had even sent it, do it."""
        if self.request_id is None:
            self.do(cell)
        else:
            cell.people(cell.world.courier.redeliver(self.request_id, "resend", 1))


@dataclass(slots=True)
class Types(Gesture):
    """Somebody types /quote."""

    text: str
    user: str = REP
    channel: str = CHANNEL

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Type it."""
        return world.gestures.slash(self.user, self.channel, "/quote", self.text)


@dataclass(slots=True)
class Clicks(Gesture):
    """Somebody clicks a button: on the newest card, or on the newest message that only they see."""

    action_id: str
    user: str
    whispered: bool = False
    stale: bool = False
    value: str | None = None  # the entry, of a menu
    channel: str = CHANNEL

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Click it."""
        message = newest(world, whispered_to=self.user if self.whispered else None, channel=self.channel)
        return world.gestures.click_message(
            self.user, self.channel, message["ts"], self.action_id, block_id=None, value=self.value, values={}, stale=self.stale
        )


@dataclass(slots=True)
class Rejects(Gesture):
    """An approver presses Reject, and sends the form with a reason."""

    user: str
    reason: str

    def do(self, cell: Cell) -> None:
        """Open the form, which records nothing, then send it."""
        if not _forms(cell.world, self.user):
            Clicks("approval.reject", self.user).do(cell)
        Gesture.do(self, cell)

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Send the form."""
        return world.gestures.submit(self.user, _forms(world, self.user)[-1], {"reason": {"reason": self.reason}})


@dataclass(slots=True)
class Fills(Gesture):
    """Somebody fills in the newest form they have open, and sends it; `values` are typed at the blocks of these names."""

    user: str
    values: Mapping[str, str]

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Send the form."""
        typed: dict[str, Any] = {name: {name: value} for name, value in self.values.items()}
        return world.gestures.submit(self.user, _forms(world, self.user)[-1], typed)


@dataclass(slots=True)
class Writes(Gesture):
    """Somebody writes a message."""

    text: str
    user: str = REP

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Write it."""
        return world.gestures.write(self.user, CHANNEL, self.text, None)


@dataclass(slots=True)
class OpensHome(Gesture):
    """Somebody looks at the bot's Home tab."""

    user: str

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Open it."""
        return world.gestures.open_home(self.user)


@dataclass(slots=True)
class Repeated:
    """Slack delivers a request again, several times at once; `older` says how many came after it."""

    times: int = 1
    older: int = 0

    def do(self, cell: Cell) -> None:
        """Deliver it."""
        cell.people(cell.world.courier.redeliver(newest_delivery(cell.world, self.older).request_id, "resend", self.times))

    def again(self, cell: Cell) -> None:
        """It was, or is at the story's end."""


@dataclass(slots=True)
class Members:
    """Somebody takes the bot out of the channel, or invites it again."""

    with_bot: bool

    def do(self, cell: Cell) -> None:
        """Do it."""
        channels = cell.world.slack.directory.channels
        people = [member for member in channels[CHANNEL].members if member != BOT_USER_ID]
        channels[CHANNEL] = replace(channels[CHANNEL], members=(*people, *([BOT_USER_ID] if self.with_bot else [])))

    def again(self, cell: Cell) -> None:
        """It was done."""


@dataclass(slots=True)
class Shares:
    """The channel is connected with another organization (Slack Connect)."""

    def do(self, cell: Cell) -> None:
        """Do it."""
        channels = cell.world.slack.directory.channels
        channels[CHANNEL] = replace(channels[CHANNEL], connected_teams=(PARTNER_TEAM_ID,))

    def again(self, cell: Cell) -> None:
        """It was done."""


@dataclass(slots=True)
class Forged:
    """The newest request comes once more with something else in it: another content, or what a card of another build would send."""

    changes: Mapping[str, str]

    def do(self, cell: Cell) -> None:
        """Deliver it."""
        delivery = newest_delivery(cell.world)
        text = delivery.text
        for was, is_now in self.changes.items():
            assert was in text, f"the newest request has no {was!r} in it"  # noqa: S101 -- a story that fits no more
            text = text.replace(was, is_now)
        cell.people(cell.deliver(text, delivery.envelope_id, delivery.kind))

    def again(self, cell: Cell) -> None:
        """Once is enough."""


@dataclass(slots=True)
class Settles:
    """The bot works until nothing is left to do."""

    whole: bool = True  # whether nothing may be left after half an hour

    def do(self, cell: Cell) -> None:
        """Wait for it."""
        if not cell.settle() and self.whole:
            raise AssertionError("after half an hour something was still under way that only the hourly poll would wake")

    def again(self, cell: Cell) -> None:
        """Wait for it."""
        self.do(cell)


@dataclass(slots=True)
class Waits:
    """Time passes, with the bot or, once it was stopped, without."""

    seconds: float

    def do(self, cell: Cell) -> None:
        """Let it."""
        if cell.life is None and cell.was_stopped:
            cell.clock.advance(self.seconds)
        else:
            cell.wait(self.seconds)

    def again(self, cell: Cell) -> None:
        """It passed."""


@dataclass(slots=True)
class PutsClock:
    """Somebody puts the machine's clock forward or back while no bot runs."""

    by_seconds: float

    def do(self, cell: Cell) -> None:
        """Do it."""
        cell.clock.put(round(self.by_seconds * 1000))

    def again(self, cell: Cell) -> None:
        """It was done."""


@dataclass(slots=True)
class Configures:
    """Somebody changes settings while no bot runs."""

    changes: Mapping[str, Any]

    def do(self, cell: Cell) -> None:
        """Change them."""
        cell.settings = cell.settings.model_copy(update=self.changes)

    def again(self, cell: Cell) -> None:
        """They are changed."""


@dataclass(slots=True)
class ArmsFault:
    """The outside turns bad (see quotebot.sandbox.faults), or well again without an effect."""

    target: str = ""
    effect: str = ""
    method: str | None = None
    times: int | None = None
    retry_after: int | None = None
    delay: float = 5.0  # seconds, of "slow"

    def do(self, cell: Cell) -> None:
        """Turn."""
        if not self.effect:
            cell.world.weather.clear()
            return
        times = 10_000 if self.times is None else self.times
        cell.world.weather.arm(
            self.target, self.effect, method=self.method, times=times, retry_after=self.retry_after, delay=self.delay
        )

    def again(self, cell: Cell) -> None:
        """It has turned."""


@dataclass(slots=True)
class ChangesCrm:
    """A person in Salesforce changes the newest quote's record."""

    values: dict[str, object]

    def do(self, cell: Cell) -> None:
        """Change it."""
        org = cell.world.salesforce._org  # noqa: SLF001 -- the stand-in has no hands of its own
        *_, record = cell.world.salesforce.records("Quote")
        org.update(org.sobject("Quote"), str(record["Id"]), self.values)

    def again(self, cell: Cell) -> None:
        """It is changed."""


@dataclass(slots=True)
class MakesOpportunity:
    """A person in Salesforce makes an account with an open opportunity: the first ones of the org."""

    account: str

    def do(self, cell: Cell) -> None:
        """Make them."""
        org = cell.world.salesforce._org  # noqa: SLF001 -- the stand-in has no hands of its own
        account = org.create(org.sobject("Account"), {"Name": self.account})
        deal = {"Name": "Renewal", "AccountId": account, "StageName": "Prospecting", "CloseDate": "2027-12-31"}
        org.create(org.sobject("Opportunity"), deal)

    def again(self, cell: Cell) -> None:
        """They are made."""


@dataclass(slots=True)
class ChoosesAccount(Gesture):
    """Somebody chooses an account in the newest form they have open."""

    account: str
    user: str = REP

    def gesture(self, world: World) -> Coroutine[Any, Any, Any]:
        """Choose it."""
        view = _forms(world, self.user)[-1]
        return world.gestures.click_view(self.user, view, FOUND, block_id=None, value=self.account, values={})


@dataclass(slots=True)
class Stops:
    """The bot is asked to end."""

    def do(self, cell: Cell) -> None:
        """SIGTERM."""
        cell.stop()

    def again(self, cell: Cell) -> None:
        """It was started again meanwhile."""
        cell.stop()


@dataclass(slots=True)
class Starts:
    """The bot is started."""

    def do(self, cell: Cell) -> None:
        """Start it."""
        cell.start()

    def again(self, cell: Cell) -> None:
        """It was."""


@dataclass(slots=True)
class Dies:
    """The bot is killed, by somebody else than this story's window."""

    def do(self, cell: Cell) -> None:
        """SIGKILL."""
        cell.kill()

    def again(self, cell: Cell) -> None:
        """It was started again meanwhile."""
        cell.kill()


@dataclass(slots=True)
class Operates:
    """An operator gives a command, beside no bot."""

    name: str
    alone: bool = False  # cut short, it is given again before any bot starts: a bot would do what it is to prevent

    def do(self, cell: Cell) -> None:
        """Give it."""
        cell.operate(self.name)

    def again(self, cell: Cell) -> None:
        """Give it again: it was cut short."""
        if cell.life is not None:
            cell.stop()
        cell.operate(self.name)


def newest_delivery(world: World, older: int = 0) -> Delivery:
    """Return the newest request that Slack sent, or the one so many before it."""
    return list(world.courier._deliveries.values())[-1 - older]  # noqa: SLF001 -- the stand-in shows no list of them


def newest(world: World, whispered_to: str | None = None, channel: str = CHANNEL) -> dict[str, Any]:
    """Return the newest card, or the newest message with buttons that only this person sees."""
    found = [
        message
        for message in world.seen().messages
        if message["channel"] == channel
        and message["blocks"]
        and message["ephemeral_for"] == whispered_to
        and (whispered_to is not None or not message["thread_ts"])
    ]
    if not found:
        raise NothingThereError("there is no such message to click on")
    return found[-1]


def _forms(world: World, user: str) -> list[str]:
    """Return the ids of the forms that are open for this person, oldest first."""
    return [view.id for view in world.slack.views.stacks.get(user, [])]
