"""The bot as shipped, in a process that writes its number of tasks on SIGUSR1: `python -m bench.lifecycle.watched FILE`."""

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
        """Write the count, in the loop's own thread; collects garbage first, so that only live tasks count."""
        del number, frame
        gc.collect()
        told.write_text(str(len(asyncio.all_tasks())), "ascii")

    signal.signal(signal.SIGUSR1, tell)
    return root.run(["run"])


if __name__ == "__main__":
    sys.exit(main())
