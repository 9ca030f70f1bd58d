"""The ledger with dead letters that tests of commands share."""

from tests.quotebot.cli.conftest import dead_ledger

__all__ = ["dead_ledger"]
