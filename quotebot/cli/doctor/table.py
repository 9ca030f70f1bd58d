"""`quotebot doctor`: the table of all checks, with subject, reason, remedy and severity, and the command that runs them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from quotebot.cli import exits
from quotebot.cli.config import assignments
from quotebot.cli.doctor import checks, others, records
from quotebot.cli.doctor.checks import TROUBLES, Check, Result, Seen, Site, State, examine, exit_status, fine
from quotebot.cli.tables import print_table
from quotebot.settings import ConfigurationError, load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED: Final = 3  # exit statuses of the command line
UNAVAILABLE: Final = 69
CONFIG: Final = 78

_TOKENS = "your app's page at api.slack.com/apps"


async def _readable(site: Site) -> Seen:
    """Report success: the site's settings were read before. The command reports settings that cannot be read."""
    del site
    return fine("all settings valid")


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
        "settings.variables",
        "Every variable of the environment is a setting",
        "A misspelled one has no effect, and its setting keeps its default.",
        "Correct or remove each that is named; docs/configuration.md has all of them.",
        State.WARNING,
        CONFIG,
        checks.variables,
    ),
    Check(
        "settings.tokens",
        "Both Slack tokens are set",
        "The bot starts with both or not at all.",
        "Set SLACK_BOT_TOKEN and SLACK_APP_TOKEN, in .env or in the environment; `quotebot init` says where to get them.",
        State.ERROR,
        CONFIG,
        checks.tokens,
    ),
    Check(
        "secrets.private",
        "Files with secrets are private",
        "Whoever reads the tokens can post as the bot.",
        "chmod 600 on each file that is named.",
        State.ERROR,
        CONFIG,
        checks.private_secrets,
    ),
    Check(
        "data.folder",
        "The data folder is the bot's alone",
        "It holds customers' names, prices and the keys of the audit.",
        "chmod 700 on the folder, and let the bot's own user own it (chown).",
        State.ERROR,
        CONFIG,
        checks.data_folder,
    ),
    Check(
        "data.files",
        "Every file of the data folder and of the backups is private",
        "Who reads a key can forge the audit or a proof; who reads the ledger, a backup or a document reads quotes.",
        "chmod 600 on each file that is named, 700 on a folder; chown to the bot's user what belongs to another.",
        State.ERROR,
        CONFIG,
        checks.data_files,
    ),
    Check(
        "disk.room",
        "There is room on the disk",
        "Without room commands are refused: nothing is lost, but nobody can work.",
        "Make room on that disk, or move the data folder while the bot is stopped.",
        State.ERROR,
        UNAVAILABLE,
        checks.disk_room,
    ),
    Check(
        "sqlite.version",
        "SQLite, or the database's server, is new enough",
        "The ledger's tables need what older builds do not have.",
        "Use a Python that is built with a newer SQLite, or a newer server.",
        State.ERROR,
        CONFIG,
        checks.sqlite_version,
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
        "ledger.durable",
        "The ledger keeps what it acknowledges",
        "Slack is told that a command is recorded; what the ledger loses after that nobody does again.",
        "Mend each setting of the server that is named, and let the bot log in as a role of its own: docs/postgresql.md.",
        State.ERROR,
        UNAVAILABLE,
        records.durable,
    ),
    Check(
        "ledger.role",
        "The bot's role cannot change the audit",
        "The owner of the tables can switch their guards off, and so can whoever takes the bot's login.",
        "Let another role own the tables, and grant the bot's role what it needs: docs/postgresql.md has the statements.",
        State.WARNING,
        CONFIG,
        records.role,
    ),
    Check(
        "ledger.connections",
        "The database's server has room for every replica",
        "A replica without a connection begins nothing, and one that restarts cannot come back.",
        "Raise max_connections of the server, or the connection limit of the database or the role; or run fewer replicas.",
        State.WARNING,
        CONFIG,
        records.connections,
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
        "ledger.sqlite.wal",
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
        "Look at each (`quotebot why 118`), then take it out of the way: `quotebot ops cancel 118 --reason stuck`. Keep a copy of "
        "the data folder: this is a defect.",
        State.ERROR,
        REFUSED,
        records.stuck,
    ),
    Check(
        "ledger.unread",
        "No command waits for a newer build",
        "A command that no bot can read holds up the later commands of its quote.",
        "Start a bot of the build that recorded it.",
        State.ERROR,
        REFUSED,
        records.unread,
    ),
    Check(
        "ledger.dead",
        "No dead letter waits",
        "A dead letter is work that was given up, and somebody waits for it.",
        "`quotebot dead list`, then for each: `quotebot replay 118`, or `quotebot dead discard 118 --reason why`.",
        State.WARNING,
        REFUSED,
        records.dead,
    ),
    Check(
        "ledger.dead_this_week",
        "Few letters died this week",
        "More than ten a week have a cause that replays do not mend: a field, a permission, a limit.",
        "`quotebot dead list --status all --since 7d` shows class, category and code of each: mend what most have in common, then "
        "`quotebot replay --class crm`, or the class that it names.",
        State.WARNING,
        REFUSED,
        records.dead_this_week,
    ),
    Check(
        "ledger.histories",
        "No dead letter is replayed again and again",
        "Each replay adds to a letter's failure history. What failed twenty times fails for a reason that a replay does not mend.",
        "`quotebot dead show 118` prints the failures of each that is named: mend their cause, or close the letter with "
        "`quotebot dead discard 118 --reason why`.",
        State.WARNING,
        REFUSED,
        records.histories,
    ),
    Check(
        "ledger.gates",
        "No class of effects is held",
        "What is held waits, however long.",
        "`quotebot gates` says why; mend that, then `quotebot resume crm`, or the class that it names.",
        State.WARNING,
        REFUSED,
        records.gates,
    ),
    Check(
        "clock.trusted",
        "The clock is trusted",
        "While it is not, no quote or request expires and nothing is purged; the rest works.",
        "Look at this machine's clock and set it; if it is right: `quotebot clock confirm`.",
        State.WARNING,
        REFUSED,
        records.clock,
    ),
    Check(
        "clock.database",
        "The clocks of this machine and of the database's server agree",
        "The ledger keeps the server's time. This machine's is that of the log and of the limits that a caller is promised.",
        "Let both machines keep their time: timedatectl set-ntp true.",
        State.WARNING,
        UNAVAILABLE,
        records.database_clock,
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
        "rates.age",
        "The exchange rates are recent",
        "A quote in another currency is priced with the newest rate, however old, unless rate_days_max refuses old ones.",
        "Import newer ones: `quotebot catalog import prices.toml`, then `quotebot catalog activate 3`; and set rate_days_max. "
        "docs/ruleset.md, Exchange rates.",
        State.WARNING,
        REFUSED,
        records.rates,
    ),
    Check(
        "backup.age",
        "There is a backup of late",
        "What was recorded since the newest backup is lost with the disk.",
        "`quotebot backup`. If the bot makes none by itself, its log says why (backup); QUOTEBOT_BACKUP_FOLDER needs room.",
        State.WARNING,
        REFUSED,
        records.backups,
    ),
    Check(
        "pdf.renders",
        "PDFs can be made",
        "Without the native libraries every document is a dead letter.",
        "Mend what is named; libraries: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 (docs/setup.md).",
        State.ERROR,
        CONFIG,
        checks.pdf,
    ),
    Check(
        "documents.folder",
        "Your own document templates and clauses are in order",
        "A template that fails makes a dead letter of each of its quotes; a special term without a clause gets a general sentence.",
        "Mend what is named; `quotebot document lint` says the same, `quotebot document preview` shows the page.",
        State.WARNING,
        CONFIG,
        records.document_folder,
    ),
    Check(
        "documents.stored",
        "Every document is stored",
        "A document that is lost can only be sent again if it can still be made to the same bytes.",
        "A running bot makes them anew within the hour. Those that it says are lost: put them back from a backup or from Slack.",
        State.WARNING,
        REFUSED,
        records.documents,
    ),
    Check(
        "people.approvers",
        "Every role has an approver",
        "A quote that needs a role without people waits until it expires.",
        "Set approvers (QUOTEBOT_APPROVERS) so that each role of the policy, or a higher one, has somebody, and no other role has.",
        State.WARNING,
        CONFIG,
        records.approvers,
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
        "watchers.installed",
        "Whoever is to watch the bot can be told",
        "A bot works without, but its traces and its errors go nowhere.",
        "Install the wheel with the extra that is named, or mend the address; docs/monitoring.md says how.",
        State.WARNING,
        CONFIG,
        checks.watchers,
    ),
    Check(
        "bot.running",
        "A bot works on the ledger",
        "Without one, commands from the terminal are recorded and the outside waits.",
        "`quotebot run`",
        State.WARNING,
        REFUSED,
        checks.bot,
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
        f"Paste manifest.yml (`quotebot init` says where it is) under App Manifest on {_TOKENS} and reinstall the app: new scopes "
        "take effect only then.",
        State.ERROR,
        CONFIG,
        others.scopes,
        online=True,
    ),
    Check(
        "slack.channel_scopes",
        "The bot sees who reads a channel",
        "Facts of a quote are not posted where another organization may read them. What cannot be seen counts as shared.",
        f"Paste manifest.yml under App Manifest on {_TOKENS} and reinstall the app, or list the channels in shared_channels.",
        State.WARNING,
        CONFIG,
        others.channel_scopes,
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
        "slack.sockets",
        "All replicas together have few enough connections to Slack",
        "Slack gives an app ten. Beyond them a replica that restarts is refused, and acknowledges nothing.",
        "Set socket_connections lower on every replica, or run fewer replicas.",
        State.ERROR,
        CONFIG,
        records.sockets,
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
        "Check SALESFORCE_INSTANCE_URL, _CLIENT_ID and _CLIENT_SECRET (or _USERNAME and _PRIVATE_KEY) against the connected app, "
        "and that its client credentials flow is on, with a user to run as. docs/salesforce.md has every step.",
        State.ERROR,
        CONFIG,
        others.crm_login,
        online=True,
    ),
    Check(
        "crm.fields",
        "Salesforce has the objects and fields we write",
        "A field that is missing makes every record a dead letter.",
        "Run `quotebot crm check`: it says for each what to do. docs/salesforce.md has the fields and the permissions.",
        State.ERROR,
        CONFIG,
        others.crm_fields,
        online=True,
    ),
    Check(
        "crm.mirror",
        "What is kept of Salesforce's records follows them",
        "While Salesforce does not answer, forms offer what was read last, however old that is.",
        "`quotebot crm status` names what is behind. Then `quotebot gates`: is crm held? And `quotebot dead list`: is a read "
        "(crm.read) a dead letter? Set crm_sync_minutes, or take kinds out of crm_mirror.",
        State.WARNING,
        REFUSED,
        records.mirror,
    ),
    Check(
        "llm.reachable",
        "The language model's server knows us",
        "Without it fixed rules read every message, and approvers get no summary; its effects wait or become dead letters.",
        "Check QUOTEBOT_LLM_BASE_URL (most end with /v1), _API_KEY and _MODEL with the provider, then `quotebot resume llm`.",
        State.WARNING,
        CONFIG,
        others.model,
        online=True,
    ),
)


async def doctor(
    *,
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    offline: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Check the installation and suggest fixes.

    Exit status 0: all is well. Otherwise that of the gravest trouble: 78 for the configuration, 69 for the machine or the network,
    3 for the contents of the ledger.

    Parameters
    ----------
    only
        The id of a check, or how ids begin (slack); may be given several times.
    offline
        Ask neither Slack nor Salesforce.
    set_
        NAME=VALUE: a setting that is stronger than every file and the environment; may be given several times.
    json_output
        Print JSON.
    """
    chosen = [check for check in CHECKS if not only or any(_covers(name, check) for name in only)]
    unknown = [name for name in only if not any(_covers(name, check) for check in CHECKS)]
    if unknown:
        return exits.complain(f"There is no check {unknown[0]}. There is: {', '.join(check.id for check in CHECKS)}", exits.USAGE)
    results: Sequence[Result]
    try:
        results = await examine(Site(load_settings(assignments(set_))), chosen, offline=offline)
    except ConfigurationError as error:  # without settings no other check can run
        results = [Result(SETTINGS, State.ERROR, "; ".join(line.removeprefix("- ") for line in str(error).splitlines()[1:-1]))]
    if json_output:
        print(json.dumps({"schema_version": 1, "checks": [_public(each) for each in results]}, indent=2))
    else:
        _tell(results)
    return exit_status(results)


def _covers(name: str, check: Check) -> bool:
    return check.id == name or check.id.startswith(f"{name}.")


def _public(result: Result) -> dict[str, object]:
    check = result.check
    return {
        "id": check.id,
        "state": result.state,
        "found": result.words,
        "what": check.what,
        "why": check.why,
        "fix": check.fix,
        "exit_status": check.exit_status,
    }


def _tell(results: Sequence[Result]) -> None:
    print_table(("CHECK", "STATE", "FOUND"), [(each.check.id, each.state.value, each.words) for each in results])
    troubles = [each for each in results if each.state in TROUBLES]
    for each in troubles:
        print(f"\n{each.check.id}: {each.words}\n  What: {each.check.what}.\n  Why:  {each.check.why}\n  Fix:  {each.check.fix}")
    print(
        f"\n{len(troubles)} of {len(results)} checks need attention."
        if troubles
        else f"\nAll {len(results)} checks passed or aren't needed."
    )
