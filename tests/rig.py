"""The rig of faults/, under the name that tests use."""

from faults.harness.rig import FIRST_QUOTE, GOLDEN, BotProcess, Deal, bot_in, eventually, read_ledger, settings_for

__all__ = ["FIRST_QUOTE", "GOLDEN", "BotProcess", "Deal", "bot_in", "eventually", "read_ledger", "settings_for"]
