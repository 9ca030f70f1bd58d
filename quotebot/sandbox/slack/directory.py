"""People, groups and channels of the workspace: fixed data, people named by their role."""

from __future__ import annotations

from dataclasses import dataclass

TEAM_ID = "T0QUOTE"
TEAM_NAME = "quotebot-sandbox"
TEAM_DOMAIN = "quotebot-sandbox"
PARTNER_TEAM_ID = "T0PARTNER"  # the workspace at the other end of a Slack Connect channel
APP_ID = "A0QUOTEBOT"
BOT_USER_ID = "U0QUOTEBOT"
BOT_ID = "B0QUOTEBOT"
BOT_NAME = "quotebot"
SLACKBOT_ID = "USLACKBOT"
BOT_TOKEN = "xoxb-sandbox-bot"
APP_TOKEN = "xapp-sandbox-app"  # an app may have several; those that begin with this one are its others
VERIFICATION_TOKEN = "sandbox-verification"

# The app's event subscriptions, as in its manifest.
SUBSCRIPTIONS = frozenset({"app_home_opened", "app_mention", "link_shared", "message.im", "message.channels"})


@dataclass(frozen=True, slots=True)
class Person:
    """A person whom the workspace can see. `name` is the handle; the page shows the `title`.

    A person with another `team_id` is here through Slack Connect. `enterprise_id` and `teams` describe a member of an Enterprise
    Grid organization: the workspaces they belong to in addition to `team_id`. `is_stranger` is Slack's term for a person of another
    workspace who shares no channel with the app.
    """

    id: str
    name: str
    real_name: str
    role: str
    is_bot: bool = False
    is_guest: bool = False
    is_single_channel_guest: bool = False
    is_deactivated: bool = False
    team_id: str = TEAM_ID
    enterprise_id: str | None = None
    teams: tuple[str, ...] = ()
    is_stranger: bool = False
    title: str = ""

    @property
    def is_external(self) -> bool:
        """True if the person belongs to other workspaces only."""
        return TEAM_ID not in (self.team_id, *self.teams)

    @property
    def email(self) -> str:
        """The address for users.lookupByEmail."""
        return f"{self.name}@{self.team_domain}.example"

    @property
    def phone(self) -> str:
        """The number in their profile: one of those that belong to nobody."""
        return f"+1 555 0100 {sum(self.id.encode()) % 900 + 100}"

    @property
    def team_domain(self) -> str:
        """The domain of their workspace."""
        return TEAM_DOMAIN if self.team_id == TEAM_ID else self.team_id.removeprefix("T0").lower()


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel or a direct-message channel. `members` are user ids. In a restricted one only some people may post.

    `connected_teams` are the other workspaces of an externally shared channel, `pending_teams` those that are invited.
    """

    id: str
    name: str
    members: tuple[str, ...]
    is_im: bool = False
    is_archived: bool = False
    is_restricted: bool = False
    is_private: bool = False
    is_org_shared: bool = False
    connected_teams: tuple[str, ...] = ()
    pending_teams: tuple[str, ...] = ()

    @property
    def is_ext_shared(self) -> bool:
        """True if people of another organization are members through Slack Connect."""
        return bool(self.connected_teams)


@dataclass(frozen=True, slots=True)
class Group:
    """A user group (@handle)."""

    id: str
    handle: str
    name: str
    members: tuple[str, ...]


PEOPLE = (
    Person("U0REP", "rep", "Rep", "rep", title="Sales Rep"),
    Person("U0MANAGER", "manager", "Manager", "sales_manager", title="Sales Manager"),
    Person("U0DEALDESK", "deal-desk", "Deal desk", "deal_desk", title="Deal Desk"),
    Person("U0VP", "vp", "VP of sales", "vp_sales", title="VP Sales"),
    Person("U0CFO", "cfo", "CFO", "cfo"),
    Person("U0LEGAL", "legal", "Legal", "legal"),
    Person("U0OPERATOR", "operator", "Operator", "operator"),
    Person("U0GUEST", "guest", "Guest", "guest", is_guest=True),
    Person("U0PARTNER", "partner", "Partner", "partner", team_id=PARTNER_TEAM_ID),
    Person(BOT_USER_ID, BOT_NAME, "Quotebot", "bot", is_bot=True),
)

_EVERYONE = tuple(person.id for person in PEOPLE if not person.is_external)

CHANNELS = (
    Channel("C0DEALS", "deals", _EVERYONE),
    Channel("C0GENERAL", "general", _EVERYONE),
    Channel("C0OPS", "quotebot-ops", ("U0OPERATOR", "U0MANAGER", "U0DEALDESK", BOT_USER_ID)),
    Channel(
        "C0PARTNER",
        "deals-partner",
        ("U0REP", "U0MANAGER", "U0PARTNER", BOT_USER_ID),
        connected_teams=(PARTNER_TEAM_ID,),
    ),
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
    """Lookups over the fixed data, and the direct-message channels opened so far.

    `enterprise_id` is set if the workspace belongs to an Enterprise Grid organization.
    """

    def __init__(self) -> None:
        self.enterprise_id: str | None = None
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
        if reference.startswith("D"):
            im_user = next((initial + reference[1:] for initial in "UW" if initial + reference[1:] in self.people), None)
            if im_user is not None:
                return self.open_im(im_user)
        name = reference.removeprefix("#")
        return next((channel for channel in self.channels.values() if channel.name == name and not channel.is_im), None)
