"""The rig of faults/, under the name tests use."""

from faults.rig import GOLDEN, BotProcess, Deal, bot_in, eventually, read_ledger, settings_for

__all__ = ["GOLDEN", "BotProcess", "Deal", "bot_in", "eventually", "read_ledger", "settings_for"]
