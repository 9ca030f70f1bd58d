"""Every check as data: what is looked at, why it matters, what to do, how grave it is."""

from __future__ import annotations

from typing import Final

from quotebot.doctor import machine, others, records
from quotebot.doctor.checks import Check, Seen, Site, State, fine

REFUSED: Final = 3  # exit statuses, those of the command line
UNAVAILABLE: Final = 69
CONFIG: Final = 78

_TOKENS = "your app's page at api.slack.com/apps"


async def _readable(site: Site) -> Seen:
    """Whoever has a site has read the settings: what cannot be read is told before (see the command)."""
    del site
    return fine("each can be read and is within its bounds")


SETTINGS: Final = Check(
    "settings.readable",
    "The settings can be read",
    "A bot does not start with settings that it does not understand.",
    "Mend each item that is named where it came from; docs/configuration.md has all of them.",
    State.ERROR,
    CONFIG,
    _readable,
)
CHECKS: Final = (
    SETTINGS,
    Check(
        "settings.tokens",
        "Both Slack tokens are set",
        "The bot starts with both or not at all.",
        "Set SLACK_BOT_TOKEN and SLACK_APP_TOKEN, in .env or in the environment; quotebot init says where to get them.",
        State.ERROR,
        CONFIG,
        machine.tokens,
    ),
    Check(
        "secrets.private",
        "Files with secrets are private",
        "Whoever reads the tokens can post as the bot.",
        "chmod 600 on each file that is named.",
        State.ERROR,
        CONFIG,
        machine.private_secrets,
    ),
    Check(
        "data.folder",
        "The data folder is the bot's alone",
        "It holds customers' names, prices and the keys of the audit.",
        "chmod 700 on the folder, and let the bot's own user own it (chown).",
        State.ERROR,
        CONFIG,
        machine.data_folder,
    ),
    Check(
        "data.files",
        "The ledger and its keys are private",
        "Who reads a key can forge the audit; who reads the ledger reads every quote.",
        "chmod 600 on each file that is named.",
        State.ERROR,
        CONFIG,
        machine.data_files,
    ),
    Check(
        "disk.room",
        "There is room on the disk",
        "Without room commands are refused: nothing is lost, but nobody can work.",
        "Make room on that disk, or move the data folder while the bot is stopped.",
        State.ERROR,
        UNAVAILABLE,
        machine.disk_room,
    ),
    Check(
        "sqlite.version",
        "SQLite is new enough",
        "The ledger's tables need what older builds do not have.",
        "Use a Python that is built with a newer SQLite.",
        State.ERROR,
        CONFIG,
        machine.sqlite_version,
    ),
    Check(
        "ledger.schema",
        "The ledger is of this build",
        "A bot refuses a ledger of a newer build, and changes an older one at its start.",
        "Newer: start the newer build. Older: stop the bot and start this build. Anything else: restore the folder's backup.",
        State.ERROR,
        UNAVAILABLE,
        records.schema,
    ),
    Check(
        "ledger.whole",
        "The ledger's file is whole",
        "A damaged file loses more with every write; a bot ends when it sees that.",
        "Stop the bot, keep a copy of the whole data folder, check the disk, and put the newest backup in its place.",
        State.ERROR,
        UNAVAILABLE,
        records.whole,
    ),
    Check(
        "ledger.wal",
        "The write-ahead log is small",
        "It grows while something reads the ledger for hours, and makes every read slower.",
        "End other programs that have the ledger open, then restart the bot.",
        State.WARNING,
        REFUSED,
        records.wal,
    ),
    Check(
        "ledger.stuck",
        "Every unfinished row is woken by something",
        "A row that nothing wakes is a promise that is never kept.",
        "Look at each (quotebot why 118), then take it out of the way: quotebot ops cancel 118 --reason stuck. Keep a copy of the "
        "data folder: this is a defect.",
        State.ERROR,
        REFUSED,
        records.stuck,
    ),
    Check(
        "ledger.dead",
        "No dead letter waits",
        "A dead letter is work that was given up, and somebody waits for it.",
        "quotebot dead list, then for each: quotebot replay 118, or quotebot dead discard 118 --reason why.",
        State.WARNING,
        REFUSED,
        records.dead,
    ),
    Check(
        "ledger.gates",
        "No class of effects is held",
        "What is held waits, however long.",
        "quotebot gates says why; mend that, then quotebot resume CLASS.",
        State.WARNING,
        REFUSED,
        records.gates,
    ),
    Check(
        "audit.whole",
        "The audit is whole",
        "A row that was changed or removed means that somebody else wrote to the ledger.",
        "docs/operating.md, A tampered audit: keep a copy of the data folder, and restore it from a backup that verifies.",
        State.ERROR,
        REFUSED,
        records.audit,
    ),
    Check(
        "pdf.renders",
        "PDFs can be made",
        "Without the native libraries every document is a dead letter.",
        "apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 (docs/setup.md has other systems).",
        State.ERROR,
        CONFIG,
        machine.pdf,
    ),
    Check(
        "people.approvers",
        "Every role has an approver",
        "A quote that needs a role without people waits until it expires.",
        "Set approvers (QUOTEBOT_APPROVERS) so that each role that is named, or a higher one, has somebody.",
        State.WARNING,
        CONFIG,
        machine.approvers,
    ),
    Check(
        "calls.one_retrier",
        "Nobody but the ledger repeats a call",
        "A library that repeats a call by itself may do the work twice.",
        "Install the versions of requirements.lock.",
        State.ERROR,
        CONFIG,
        others.one_retrier,
    ),
    Check(
        "bot.running",
        "A bot works on the ledger",
        "Without one, commands from the terminal are recorded and the outside waits.",
        "quotebot run",
        State.WARNING,
        REFUSED,
        machine.bot,
    ),
    Check(
        "slack.reachable",
        "Slack can be reached",
        "Everything people see goes there.",
        "Let this machine open connections to that host, port 443 (firewall, DNS), and see that SLACK_API_URL is right.",
        State.ERROR,
        UNAVAILABLE,
        others.reachable,
        online=True,
    ),
    Check(
        "slack.bot_token",
        "Slack knows the bot token",
        "Without it nothing can be posted.",
        f"Set SLACK_BOT_TOKEN to the Bot User OAuth Token (xoxb-...): {_TOKENS}, OAuth & Permissions.",
        State.ERROR,
        CONFIG,
        others.bot_token,
        online=True,
    ),
    Check(
        "slack.scopes",
        "The bot token has every scope",
        "What a missing scope would allow becomes a dead letter.",
        f"Paste manifest.yml (quotebot init says where it is) under App Manifest on {_TOKENS} and reinstall the app: new scopes "
        "take effect only then.",
        State.ERROR,
        CONFIG,
        others.scopes,
        online=True,
    ),
    Check(
        "slack.app_token",
        "Slack knows the app-level token",
        "Without it the bot receives nothing.",
        f"Set SLACK_APP_TOKEN to a token (xapp-...) with the scope connections:write: {_TOKENS}, Basic Information.",
        State.ERROR,
        CONFIG,
        others.app_token,
        online=True,
    ),
    Check(
        "slack.socket",
        "The socket's host can be reached",
        "Commands arrive over it.",
        "Let this machine open connections to that host, port 443 (firewall, DNS).",
        State.ERROR,
        UNAVAILABLE,
        others.socket,
        online=True,
    ),
    Check(
        "clock.skew",
        "The clock is right",
        "Leases, due times and what quotes say of their dates come from it.",
        "Let the machine keep its time: timedatectl set-ntp true.",
        State.WARNING,
        UNAVAILABLE,
        others.clock,
        online=True,
    ),
    Check(
        "crm.login",
        "Salesforce lets us in",
        "Without a login no quote reaches the CRM.",
        "Check SALESFORCE_INSTANCE_URL, _CLIENT_ID and _CLIENT_SECRET against the connected app, and that its client credentials "
        "flow is on, with a user to run as.",
        State.ERROR,
        CONFIG,
        others.crm_login,
        online=True,
    ),
    Check(
        "crm.fields",
        "Salesforce has the fields we write",
        "A field that is missing makes every record a dead letter.",
        "Make each field that is named (Setup, Object Manager), and let the integration's user edit it (field-level security).",
        State.ERROR,
        CONFIG,
        others.crm_fields,
        online=True,
    ),
)
