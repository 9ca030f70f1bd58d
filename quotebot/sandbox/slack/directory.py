"""Who and what exists in the workspace: fixed data, people named by their role."""

from __future__ import annotations

from dataclasses import dataclass

TEAM_ID = "T0QUOTE"
TEAM_NAME = "quotebot-sandbox"
TEAM_DOMAIN = "quotebot-sandbox"
APP_ID = "A0QUOTEBOT"
BOT_USER_ID = "U0QUOTEBOT"
BOT_ID = "B0QUOTEBOT"
BOT_NAME = "quotebot"
SLACKBOT_ID = "USLACKBOT"
BOT_TOKEN = "xoxb-sandbox-bot"
APP_TOKEN = "xapp-sandbox-app"
VERIFICATION_TOKEN = "sandbox-verification"

# What the app listens to; the manifest of an app says the same to Slack.
SUBSCRIPTIONS = frozenset({"app_home_opened", "app_mention", "message.im", "message.channels"})


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is seen in the workspace. `name` is the role; with another `team_id` they share a channel only."""

    id: str
    name: str
    real_name: str
    role: str
    is_bot: bool = False
    is_guest: bool = False
    is_single_channel_guest: bool = False
    is_deactivated: bool = False
    team_id: str = TEAM_ID

    @property
    def email(self) -> str:
        """The address users.lookupByEmail knows."""
        return f"{self.name}@{TEAM_DOMAIN}.example"


@dataclass(frozen=True, slots=True)
class Channel:
    """A public channel or a direct-message channel. `members` are user ids. In a restricted one only some people may post."""

    id: str
    name: str
    members: tuple[str, ...]
    is_im: bool = False
    is_archived: bool = False
    is_restricted: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A user group (@handle)."""

    id: str
    handle: str
    name: str
    members: tuple[str, ...]


PEOPLE = (
    Person("U0REP", "rep", "Rep", "rep"),
    Person("U0MANAGER", "manager", "Manager", "sales_manager"),
    Person("U0DEALDESK", "deal-desk", "Deal desk", "deal_desk"),
    Person("U0VP", "vp", "VP of sales", "vp_sales"),
    Person("U0CFO", "cfo", "CFO", "cfo"),
    Person("U0LEGAL", "legal", "Legal", "legal"),
    Person("U0OPERATOR", "operator", "Operator", "operator"),
    Person("U0GUEST", "guest", "Guest", "guest", is_guest=True),
    Person(BOT_USER_ID, BOT_NAME, "Quotebot", "bot", is_bot=True),
)

_EVERYONE = tuple(person.id for person in PEOPLE)

CHANNELS = (
    Channel("C0DEALS", "deals", _EVERYONE),
    Channel("C0GENERAL", "general", _EVERYONE),
    Channel("C0OPS", "quotebot-ops", ("U0OPERATOR", "U0MANAGER", "U0DEALDESK", BOT_USER_ID)),
)

GROUPS = (
    Group("S0DEALDESK", "deal-desk", "Deal desk", ("U0DEALDESK",)),
    Group("S0APPROVERS", "approvers", "Approvers", ("U0MANAGER", "U0DEALDESK", "U0VP", "U0CFO", "U0LEGAL")),
)

APPROVERS = {
    "sales_manager": ["U0MANAGER"],
    "deal_desk": ["U0DEALDESK"],
    "vp_sales": ["U0VP"],
    "cfo": ["U0CFO"],
    "legal": ["U0LEGAL"],
}
OPERATORS = ["U0OPERATOR"]
OPS_CHANNEL = "C0OPS"


class Directory:
    """Look-ups over the fixed data, and the direct-message channels opened so far."""

    def __init__(self) -> None:
        self.people = {person.id: person for person in PEOPLE}
        self.channels = {channel.id: channel for channel in CHANNELS}
        self.groups = {group.id: group for group in GROUPS}

    def open_im(self, user: str) -> Channel:
        """Return the direct-message channel between the bot and `user`, creating it on first use."""
        channel_id = f"D{user[1:]}"
        channel = Channel(channel_id, user, (user, BOT_USER_ID), is_im=True)
        return self.channels.setdefault(channel_id, channel)

    def channel(self, reference: str) -> Channel | None:
        """Find a channel by id, by name with or without `#`, or by the id of the person a DM is with."""
        if reference in self.channels:
            return self.channels[reference]
        if reference in self.people and reference != BOT_USER_ID:
            return self.open_im(reference)
        im_user = f"U{reference[1:]}"
        if reference.startswith("D") and im_user in self.people:
            return self.open_im(im_user)
        name = reference.removeprefix("#")
        return next((channel for channel in self.channels.values() if channel.name == name and not channel.is_im), None)
