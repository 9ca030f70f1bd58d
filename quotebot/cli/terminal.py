"""The person at the terminal, what they may name, and the ledger of their installation.

The person is the system user of the process, independent of the environment.
"""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from adapters.failures import Failure
from adapters.policies import POLICIES, unknown_class
from ledger.gates import family
from ledger.operator.dead_letters import UNKNOWN, parse_reference
from quotebot.app.installation import load_rules, open_ledger, require_ledger, speak, storage_of
from quotebot.cli.tables import UNITS_MS
from quotebot.commands.registry import REGISTRY
from quotebot.dispatch.registry import follow_ups
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.settings import ConfigurationError, load_settings
from quotebot.store import approvals
from quotebot.store.quotes import only_team
from quotebot.store.rulesets import ActiveRuleset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from ledger.ledger import FollowUpDecision, Ledger
    from quotebot.domain.rules import Rules
    from quotebot.settings import Settings

ROW_ID_MAX: Final = 2**63 - 1
ACTOR_CHARACTERS_MAX: Final = 254  # the longest e-mail address
OWN_NAME: Final = "quotebot"  # the audit's name for the system itself
ADAPTERS: Final = {"slack": "slack", "salesforce": "crm", "pdf": "pdf", "llm": "llm"}  # the family of classes of each
CAUSE_PARTS: Final = 3
EPOCHS: Final = 100  # processes checked: those of the command line take epochs too


def user() -> str:
    """Return the name of the real user id, or "uid 10001" for an id without a name.

    Any user may set LOGNAME and USER. Under sudo, the result is the user that sudo switched to.
    """
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def operator(name: str | None) -> str:
    """Return the actor of an operator action, for the audit: `--as NAME`, or the terminal user without it.

    Raises ValueError if the terminal user may not act under another name, or for a name that would mislead.
    """
    if name is not None:
        require_operator()
    return checked_actor(name, user())


def checked_actor(name: str | None, otherwise: str) -> str:
    """Return the actor for the audit. Raises ValueError for a name that would mislead its readers."""
    if name is None:
        return otherwise
    if not name.strip() or not name.isprintable() or len(name) > ACTOR_CHARACTERS_MAX:
        raise ValueError("--as needs a name or an e-mail address of at most 254 printable characters")
    if name.strip().casefold() == OWN_NAME:
        raise ValueError(f"--as cannot be {OWN_NAME}: under that name the audit notes what no person asked for")
    return name.strip()


def require_operator() -> None:
    """Raise ValueError unless the settings allow the terminal user to act in another person's name."""
    if user() not in load_settings().cli_operators:
        raise ValueError(
            f"--as is for operators at the terminal, and the system user {user()} is none of them: "
            f'QUOTEBOT_CLI_OPERATORS names them, e.g. ["{user()}"]. Leave --as out to act under your own name'
        )


def checked_references(references: Sequence[str]) -> tuple[str, ...]:
    """Return the references without duplicates. Raises ValueError for an impossible id, before the first change."""
    for reference in references:
        _, row_id = parse_reference(reference)
        if row_id > ROW_ID_MAX:
            raise ValueError(f"{reference} is larger than any id")
    return tuple(dict.fromkeys(references))


def checked_quote(text: str | None) -> str | None:
    """Return a quote's id in its stored form, for any accepted spelling. Raises ValueError if the text is no quote id."""
    if text is None:
        return None
    quote_id = parse_quote_id(text)
    if quote_id is None:
        raise ValueError(f"{text!r} is no quote: write Q-2026-0042")
    return quote_id


def checked_class(name: str | None, adapter: str | None = None) -> str | None:
    """Return the name if dead letters can be of it: an effect class, a command kind, or a family of either (crm, quote).

    `adapter` names the family of its effect classes instead. Raises ValueError naming the classes or the adapters.
    """
    if adapter is not None:
        if name is not None:
            raise ValueError("Give --class or --adapter, not both: an adapter is a family of classes")
        if adapter not in ADAPTERS:
            raise ValueError(f"{adapter}: there is no such adapter; the adapters are {', '.join(ADAPTERS)}")
        return ADAPTERS[adapter]
    if name is None or any(name in (known, family(known)) for known in (*POLICIES, *REGISTRY)):
        return name
    close = get_close_matches(name, REGISTRY, n=1) or ["quote.create"]
    raise ValueError(f"{name}: {unknown_class(name)}; a command is listed under its kind, e.g. {close[0]}")


def checked_cause(cause: str | None) -> str | None:
    """Return a cause if it has a known class and category. Raises ValueError for any other text."""
    if cause is None:
        return None
    effect_class, *rest = cause.split("/", 2)
    if len(rest) != CAUSE_PARTS - 1 or not all(rest):
        raise ValueError(f"{cause!r} is no cause: write CLASS/CATEGORY/CODE, e.g. crm.create/mapping/INVALID_FIELD")
    checked_class(effect_class)
    if rest[0] != UNKNOWN:
        checked_category(rest[0])
    return cause


def checked_category(name: str | None) -> str | None:
    """Return the name if it is a failure category. Raises ValueError naming the categories."""
    if name is None or name in set(Failure):
        return name
    close = get_close_matches(name, list(Failure), n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    raise ValueError(f"{name}: there is no such category{meant}; the categories are {', '.join(Failure)}")


def duration_ms(text: str | None) -> int | None:
    """Parse "2h" to milliseconds. Raises ValueError."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is no duration: write 90s, 30m, 2h or 7d")
    return int(match[1]) * UNITS_MS[match[2]]


def follow(ledger: Ledger) -> FollowUpDecision:
    """Return the follow-up decision for a replayed, discarded or resolved row: it redraws the quote's card."""
    return lambda tx, effect: follow_ups(tx, effect, ledger.clock.now_ms())


def reason_of(text: str) -> str:
    """Return a reason without surrounding blanks. Raises ValueError for an empty one."""
    if not text.strip():
        raise ValueError("--reason needs words: they are what the audit will say")
    return text.strip()


def existing_site() -> Settings:
    """Return the settings of an installation that has a ledger. Raises ConfigurationError."""
    settings = load_settings()
    require_ledger(settings)
    storage = storage_of(settings)
    if not storage.exists():
        setting = (
            "QUOTEBOT_LEDGER_URL to the bot's database" if storage.path is None else "QUOTEBOT_DATA_DIR to the bot's data folder"
        )
        raise ConfigurationError(f"There is no ledger at {storage.place}. Nothing was done. Set {setting}.")
    speak(settings.language)
    return settings


def existing_ledger() -> AbstractAsyncContextManager[Ledger]:
    """Open the configured ledger. Raises ConfigurationError if there is none: an operator command never creates one."""
    return open_ledger(existing_site(), terminal_user=user())


async def active_rules() -> Rules:
    """Return the rules with the active ruleset: the ledger's active version, or the built-in one without a ledger.

    Role holders whom Slack last reported as no full members are left out.
    """
    settings = load_settings()
    rules = load_rules(settings)
    if not storage_of(settings).exists():
        return rules
    async with open_ledger(settings) as ledger:
        active = replace(rules, ruleset=await ledger.database.read(ActiveRuleset(rules.ruleset).read))
        return await ledger.database.read(lambda tx: approvals.present(tx, active, only_team(tx)))


async def bot_runs(ledger: Ledger) -> bool:
    """Return true if the process that last took the bot's lock is alive. Trying the lock could stop a starting bot."""
    holder = storage_of(load_settings()).holder()
    if holder is None or not holder.alive:
        return False
    rows = await ledger.database.read(lambda tx: tx.all("last_epochs", limit=EPOCHS))
    return any(row["pid"] == holder.pid and row["ended_at"] is None for row in rows)
