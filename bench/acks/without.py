"""The bot without some of its speed mechanisms: `python -m bench.acks.without NAME,NAME run`. For bench/ablation.py alone."""

from __future__ import annotations

import sys
from typing import Final

from ledger.sqlite.engine import SqliteDatabase
from quotebot.__main__ import main as run
from quotebot.execution import executor
from quotebot.execution.run import NOTHING

MECHANISMS: Final[dict[str, tuple[object, str, object]]] = {  # where each is, and what replaces it
    # Prices and hashes are computed before the transaction.
    "precompute": (executor, "precompute", lambda *_: NOTHING),
    # A lone short write of the worker runs on its loop.
    "brief": (SqliteDatabase, "_alone_and_brief", lambda _: False),
}


def main() -> None:
    """Switch the mechanisms off, then run the bot with the remaining arguments."""
    for name in sys.argv[1].split(","):
        owner, attribute, replacement = MECHANISMS[name]
        setattr(owner, attribute, replacement)
    del sys.argv[1]
    run()


if __name__ == "__main__":
    main()
