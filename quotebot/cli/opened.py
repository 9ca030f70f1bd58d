"""Shared parts of operator commands: the ledger of an existing installation, opened in the name of the terminal user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quotebot.app.first_start import require_ledger
from quotebot.app.installation import load_rules, open_ledger
from quotebot.cli import terminal
from quotebot.settings import ConfigurationError, load_settings
from quotebot.store.rulesets import ActiveRuleset

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ledger.ledger import Ledger
    from quotebot.domain.rules import Rules


def existing_ledger() -> AbstractAsyncContextManager[Ledger]:
    """Open the configured ledger. Raises ConfigurationError if there is none: an operator command never creates one."""
    settings = load_settings()
    require_ledger(settings)
    if not settings.ledger_path.exists():
        raise ConfigurationError(
            f"There is no ledger at {settings.ledger_path.absolute()}. Nothing was done. "
            "Set QUOTEBOT_DATA_DIR to the bot's data folder."
        )
    return open_ledger(settings, terminal_user=terminal.user())


async def active_rules() -> Rules:
    """Return the rules with the active ruleset: the ledger's active version, or the built-in one without a ledger."""
    settings = load_settings()
    rules = load_rules(settings)
    if not settings.ledger_path.exists():
        return rules
    async with open_ledger(settings) as ledger:
        return replace(rules, ruleset=await ledger.database.read(ActiveRuleset(rules.ruleset).read))
