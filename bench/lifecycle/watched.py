"""The bot as shipped, in a process that says on SIGUSR1 how many tasks its loop has: `python -m bench.lifecycle.watched FILE`."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from quotebot.cli import root

if TYPE_CHECKING:
    from types import FrameType


def main() -> int:
    """Run `quotebot run` until it ends."""
    told = Path(sys.argv[1])

    def tell(number: int, frame: FrameType | None) -> None:
        """Count in the loop's own thread, where a handler runs; the collector first, so that only what is held is counted."""
        del number, frame
        gc.collect()
        told.write_text(str(len(asyncio.all_tasks())), "ascii")

    signal.signal(signal.SIGUSR1, tell)
    return root.run(["run"])


if __name__ == "__main__":
    sys.exit(main())
