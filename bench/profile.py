"""Profile of the processor time of a command, with 64 at once.

    ./run bench profile [SECONDS]

Prints microseconds of processor time per command: each statement of the ledger, the rest of the writer's thread, the event loop.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench.lifecycle.machine import disk_folder  # noqa: E402 -- after the path
from bench.lifecycle.product import run_product  # noqa: E402 -- after the path
from ledger.sqlite.batch import BatchRunner, SqliteTx  # noqa: E402 -- after the path

CLIENTS: Final = 64
SECONDS: Final = 5.0
ON_THE_WRITER: Final = "the writer's thread, all"


def watched(spent: defaultdict[str, float], method: Any, name_of: Any) -> Any:
    """Return a method that adds its thread's processor time to `spent`."""

    def run(*arguments: Any, **named: Any) -> Any:
        began = time.thread_time()
        try:
            return method(*arguments, **named)
        finally:
            spent[name_of(arguments)] += time.thread_time() - began

    return run


def main() -> None:
    """Run, then print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    spent: defaultdict[str, float] = defaultdict(float)
    for name in ("one", "all", "many"):
        setattr(SqliteTx, name, watched(spent, getattr(SqliteTx, name), lambda arguments: arguments[1]))
    BatchRunner.run = watched(spent, BatchRunner.run, lambda _: ON_THE_WRITER)  # type: ignore[method-assign] # it is being measured
    with tempfile.TemporaryDirectory(dir=disk_folder()) as folder:
        began = time.process_time()
        run = asyncio.run(run_product(Path(folder) / "ledger.db", seconds, CLIENTS, 0))
        whole = time.process_time() - began
    commands = run.submitted
    writer = spent.pop(ON_THE_WRITER)
    statements = sum(spent.values())
    print(f"{commands} commands, {CLIENTS} at once; processor time per command in microseconds, watching included")
    for name, found in sorted(spent.items(), key=lambda item: -item[1])[:14]:
        print(f"  {found / commands * 1e6:7.1f}  {name}")
    print(f"  {statements / commands * 1e6:7.1f}  statements, together")
    print(f"  {(writer - statements) / commands * 1e6:7.1f}  the rest of the writer's thread: COMMIT, signing, Python")
    print(f"  {(whole - writer) / commands * 1e6:7.1f}  the event loop: clients, executor, identities, futures")
    print(f"  {whole / commands * 1e6:7.1f}  all")


if __name__ == "__main__":
    main()
