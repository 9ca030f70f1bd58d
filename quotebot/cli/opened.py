"""What operator commands share: the ledger of an existing installation, opened in the name of the terminal user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.cli import terminal

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ledger.ledger import Ledger
    from quotebot.handlers.quotes import Rules


def existing_ledger() -> AbstractAsyncContextManager[Ledger]:
    """Open the configured ledger. Raises ConfigurationError when there is none: an operator's command never makes a new one."""
    from quotebot.beginning import require_ledger  # noqa: PLC0415 -- see root.py
    from quotebot.opening import open_ledger  # noqa: PLC0415 -- see root.py
    from quotebot.settings import ConfigurationError, load_settings  # noqa: PLC0415 -- see root.py

    settings = load_settings()
    require_ledger(settings)
    if not settings.ledger_path.exists():
        raise ConfigurationError(
            f"There is no ledger at {settings.ledger_path.absolute()}. Nothing was done. "
            "Set QUOTEBOT_DATA_DIR to the bot's data folder."
        )
    return open_ledger(settings, terminal_user=terminal.user())


async def active_rules() -> Rules:
    """Return the rules with the ruleset that prices now: the ledger's active version, or without a ledger the built-in one."""
    from dataclasses import replace  # noqa: PLC0415 -- see root.py

    from quotebot.opening import load_rules, open_ledger  # noqa: PLC0415 -- see root.py
    from quotebot.settings import load_settings  # noqa: PLC0415 -- see root.py
    from quotebot.store.rulesets import ActiveRuleset  # noqa: PLC0415 -- see root.py

    settings = load_settings()
    rules = load_rules(settings)
    if not settings.ledger_path.exists():
        return rules
    async with open_ledger(settings) as ledger:
        return replace(rules, ruleset=await ledger.database.read(ActiveRuleset(rules.ruleset).read))
