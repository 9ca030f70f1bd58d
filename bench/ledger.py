"""Lifecycle of a command compared with the physical limit, a naive program and two frameworks, in one interleaved run.

    ./run bench ledger [--size 0,100k,1M] [--only "quotebot c=64,limit"] [--peers] [--peers-python PATH] [--quick] [--json]

The frameworks live in an environment of their own (.venv-peers), which --peers makes from bench/requirements-peers.lock; it is
used from then on. Only ratios inside the run are judged. Status 1: a check failed or a goal was missed; 64: not started, with the
reason; 69: the frameworks could not be installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # run as a script, this file would stand in for the package `ledger`

from bench.lifecycle import environment  # noqa: E402 -- after the path
from bench.lifecycle.deed import open_ledger  # noqa: E402 -- after the path
from bench.lifecycle.footprint import Footprint, record  # noqa: E402 -- after the path
from bench.lifecycle.history import build  # noqa: E402 -- after the path
from bench.lifecycle.machine import count, describe, disk_folder, in_memory  # noqa: E402 -- after the path
from bench.lifecycle.report import lines  # noqa: E402 -- after the path
from bench.lifecycle.rounds import PEERS, Plan, run_rounds  # noqa: E402 -- after the path
from bench.lifecycle.verdicts import AGAIN, FIRST, LIMIT, LIMIT_AGAIN, judge, noise, table  # noqa: E402 -- after the path
from ledger.clock import SystemClock  # noqa: E402 -- after the path

OURS: Final = (
    *(LIMIT, "bare", "batch 64", "naive c=1", "naive c=16", "naive c=64", "naive c=256"),
    *("quotebot c=1", "quotebot c=16", FIRST, "quotebot c=256", AGAIN, LIMIT_AGAIN),
)
THEIRS: Final = tuple(f"{peer} c={clients}" for peer in PEERS for clients in (1, 16, 64, 256))
ROUNDS, SECONDS = 5, 1.0
QUICK_ROUNDS, QUICK_SECONDS = 2, 0.3
USAGE: Final = 64
UNAVAILABLE: Final = 69


def main() -> int:
    """Run the requested variants and print the report."""
    asked = _parser().parse_args()
    if in_memory(asked.dir) and not asked.force:
        print(
            f"{asked.dir} is kept in memory, where flushing is free. Nothing was run. Choose another: --dir, or --force.",
            file=sys.stderr,
        )
        return USAGE
    if asked.peers:
        try:
            environment.install()
        except environment.CannotInstallError as error:
            print(error, file=sys.stderr)
            return UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=asked.dir) as place:
        report = _measure(_plan(asked, Path(place)), _whisper)
    _whisper("")
    print(json.dumps(report, indent=2) if asked.json else "\n".join(lines(report)))
    failed = any(row["problems"] for row in report["rows"] if row["variant"].split()[0] not in PEERS)
    return int(failed or any(goal["verdict"] == "missed" for goal in report["goals"]))


def _measure(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    footprint = asyncio.run(record())
    header = describe(plan.folder, footprint.pragmas)
    files = {size: _grown(plan.folder / f"{size}.db", footprint, size, say) for size in plan.sizes if size}
    rounds = run_rounds(plan, files, say)
    return {
        "header": {**header, "load_after": round(os.getloadavg()[0], 2)},
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "payload_bytes": footprint.payload_bytes,
        "rows": table(rounds),
        "noise": noise(rounds),
        "goals": judge(rounds, plan.sizes, footprint.payload_bytes),
    }


def _grown(path: Path, footprint: Footprint, size: int, say: Callable[[str], None]) -> Path:
    async def make() -> None:
        _, database = await open_ledger(path, SystemClock())
        await database.close()

    say(f"building a file of {size:,} finished commands")
    asyncio.run(make())
    build(path, footprint, size)
    return path


def _plan(asked: argparse.Namespace, folder: Path) -> Plan:
    wanted = asked.only.split(",") if asked.only else [*OURS, *(THEIRS if asked.peers or not asked.quick else ())]
    return Plan(
        variants=tuple(name for name in (*OURS, *THEIRS) if name in wanted),
        sizes=(0,) if asked.quick else asked.size,
        rounds=asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS),
        seconds=asked.seconds or (QUICK_SECONDS if asked.quick else SECONDS),
        folder=folder,
        peers_python=asked.peers_python or environment.interpreter(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench ledger", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--size", type=_sizes, default=(0,), help="finished commands in the file: 0,100k,1M (1M takes minutes and GB)"
    )
    parser.add_argument("--only", help=f"some of: {', '.join((*OURS, *THEIRS))}")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} unless told; {QUICK_ROUNDS} with --quick")
    parser.add_argument(
        "--seconds", type=float, help=f"per variant and round: {SECONDS:g} unless told; {QUICK_SECONDS:g} with --quick"
    )
    parser.add_argument("--dir", type=Path, default=disk_folder(), help="where files are made and deleted again")
    parser.add_argument("--force", action="store_true", help="run even in memory")
    parser.add_argument("--peers", action="store_true", help="install the frameworks first, and run them even with --quick")
    parser.add_argument("--peers-python", help="an interpreter that has bench/requirements-peers.txt, instead of .venv-peers")
    parser.add_argument("--quick", action="store_true", help="a look: short rounds, an empty file, no frameworks")
    parser.add_argument("--json", action="store_true")
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(count(part) for part in text.split(","))


def _whisper(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
