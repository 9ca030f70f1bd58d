"""The ledger on PostgreSQL compared with single commits, the ledger on SQLite and two frameworks, in one interleaved run.

    ./run bench postgres [--only "postgres c=64,sqlite c=64"] [--rounds N] [--seconds S] [--peers] [--quick] [--json]

One server of its own, without a standby, flushes every commit. Single commits are the same statements, each write in a transaction
of its own on up to 8 connections. Only ratios inside a round are judged. Status 1: a check failed or a goal was missed; 69: there
is no PostgreSQL server, or the frameworks could not be installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench.lifecycle import environment  # noqa: E402 -- after the path
from bench.lifecycle.machine import describe, disk_folder  # noqa: E402 -- after the path
from bench.lifecycle.report import machine  # noqa: E402 -- after the path
from bench.lifecycle.rounds import run_child, why_missing  # noqa: E402 -- after the path
from bench.lifecycle.verdicts import (  # noqa: E402 -- after the path
    ACKS,
    PRODUCT,
    SINGLE,
    SQLITE,
    Goal,
    Rounds,
    noise,
    verdict_of,
    why_not,
)
from quotebot.sandbox.cluster import Cluster, ClusterError  # noqa: E402 -- after the path

FIRST, AGAIN = f"{PRODUCT} c=64", f"{PRODUCT} c=64 again"
PEERS: Final = ("dbos", "procrastinate")
OURS: Final = (
    *(f"{kind} c={clients}" for clients in (1, 16, 64) for kind in (PRODUCT, SINGLE, SQLITE)),
    *(f"{kind} {ACKS} c={clients}" for clients in (1, 16, 64) for kind in (PRODUCT, SINGLE)),
    AGAIN,
)
THEIRS: Final = tuple(f"{peer} c={clients}" for peer in PEERS for clients in (1, 16, 64))
BOUNDS: Final = (
    (f"{PRODUCT} {ACKS} c=64", f"{SINGLE} {ACKS} c=64", 3.0),
    (FIRST, f"{SINGLE} c=64", 1.8),
    (FIRST, f"{SQLITE} c=64", 0.2),
)
SETTINGS: Final = {"shared_buffers": "'128MB'", "max_connections": "150", "max_wal_size": "'1GB'"}
ROUNDS, SECONDS = 5, 2.0
QUICK_ROUNDS, QUICK_SECONDS = 1, 0.5
UNAVAILABLE: Final = 69
COLUMNS: Final = ("ops_per_s", "p50_ms", "p99_ms", "cpu_us_per_op", "server_us_per_op", "commits_per_op", "trips_per_commit")
TITLES: Final = ("per s", "p50 ms", "p99 ms", "cpu us", "server us", "commits", "trips")
DEFINITIONS: Final = """\
One command: reserve; claim; quote + audit + 3 effects + complete. acks: reserve only. Each variant has a process and a database of
its own. cpu, server: processor time of the variant's own process and of the server's, per command; commits per command; trips:
waits for the server per commit, counted. dbos and procrastinate keep their state and the application's rows in the same server."""


def main() -> int:
    """Run the requested variants and print the report."""
    asked = _parser().parse_args()
    if asked.peers:
        try:
            environment.install()
        except environment.CannotInstallError as error:
            print(error, file=sys.stderr)
            return UNAVAILABLE
    wanted = asked.only.split(",") if asked.only else [*OURS, *(THEIRS if asked.peers or not asked.quick else ())]
    variants = [name for name in (*OURS, *THEIRS) if name in wanted]
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=asked.dir) as place:
        Path(place).chmod(0o711)  # to be passed through by the server's user
        try:
            cluster = Cluster(Path(place, "server"), settings=SETTINGS)
            cluster.start()
        except ClusterError as error:
            print(error, file=sys.stderr)
            return UNAVAILABLE
        try:
            header = describe(Path(place), {})
            rounds = _rounds(
                cluster,
                variants,
                asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS),
                asked.seconds or (QUICK_SECONDS if asked.quick else SECONDS),
            )
        finally:
            cluster.remove()
    report: dict[str, Any] = {
        "header": {**header, "load_after": round(os.getloadavg()[0], 2)},
        "rows": [_row(rounds, cell) for cell in rounds[0]],
        "noise": noise(rounds, ((FIRST, AGAIN),)),
        "goals": judge(rounds),
    }
    print(json.dumps(report, indent=2) if asked.json else "\n".join(lines(report)))
    failed = any(row["problems"] for row in report["rows"] if row["variant"].split()[0] not in PEERS)
    return int(failed or any(goal["verdict"] == "missed" for goal in report["goals"]))


def judge(rounds: Rounds) -> list[dict[str, Any]]:
    """Return one JSON-ready row per goal."""
    goals = [Goal((0, one), (0, other), ">=", bound) for one, other, bound in BOUNDS]
    error = noise(rounds, ((FIRST, AGAIN),))
    return [
        verdict_of(
            f"{goal.cell[1]}: throughput >= {goal.bound:g}x {goal.other[1]}",
            goal.ratios(rounds),
            goal.met,
            why_not(rounds, goal),
            error,
        )
        for goal in goals
    ]


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the report line by line."""
    yield next(machine(report["header"]))
    yield DEFINITIONS
    yield f"{'variant':24} " + " ".join(f"{title:>10}" for title in TITLES)
    for row in report["rows"]:
        figures = ("-" if row[name] is None else f"{row[name]:,.2f}" for name in COLUMNS)
        yield f"{row['variant']:24} " + ("; ".join(row["problems"]) or " ".join(f"{figure:>10}" for figure in figures))
    error = report["noise"]
    yield "noise between identical runs: " + ("not measured" if error is None else f"{error:.0%}")
    for goal in report["goals"]:
        found = goal["found"]
        told = "" if found is None else f"  found {found['median']:.2f} [{found['min']:.2f} - {found['max']:.2f}]"
        yield f"[{goal['verdict']}] {goal['goal']}{told}"


def _rounds(cluster: Cluster, variants: list[str], count: int, seconds: float) -> Rounds:
    """Run every variant once per round, with the order rotated each round."""
    absent = {
        peer: why
        for peer in PEERS
        if any(each.startswith(peer) for each in variants) and (why := why_missing(environment.interpreter(), peer))
    }
    numbers = itertools.count(1)
    rounds: Rounds = []
    for number in range(count):
        done: dict[tuple[int, str], dict[str, Any]] = {}
        start = number * 3 % len(variants)
        for variant in (*variants[start:], *variants[:start]):
            _whisper(f"round {number + 1} of {count}: {variant}")
            peer = variant.split()[0]
            done[0, variant] = {"problems": [absent[peer]]} if peer in absent else _run(cluster, variant, next(numbers), seconds)
        rounds.append({(0, variant): done[0, variant] for variant in variants})
    _whisper("")
    return rounds


def _run(cluster: Cluster, variant: str, number: int, seconds: float) -> dict[str, Any]:
    import psycopg  # noqa: PLC0415 -- where it is not installed, the table of all benchmarks goes on

    kind, _, clients = variant.partition(" c=")
    with (
        tempfile.TemporaryDirectory(dir=cluster.folder.parent) as folder,
        psycopg.connect(cluster.url("postgres"), autocommit=True) as admin,
    ):
        name = f"bench_{number}"
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            if kind in PEERS:
                return run_child(
                    [environment.interpreter(), "-m", f"bench.peers.with_{kind}", folder, str(seconds), clients, cluster.url(name)]
                )
            place = str(Path(folder, "ledger.db")) if kind == SQLITE else cluster.url(name)
            return run_child([sys.executable, "-m", "bench.lifecycle.servers", variant, place, str(cluster.data), str(seconds)])
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _row(rounds: Rounds, cell: tuple[int, str]) -> dict[str, Any]:
    runs = [done[cell] for done in rounds]
    problems = sorted({problem for run in runs for problem in run["problems"]})
    values = {name: [run[name] for run in runs if run.get(name) is not None] for name in COLUMNS}
    return {
        "variant": cell[1],
        "problems": problems,
        **{name: statistics.median(found) if found else None for name, found in values.items()},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench postgres", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help=f"some of: {', '.join((*OURS, *THEIRS))}")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} unless told; {QUICK_ROUNDS} with --quick")
    parser.add_argument(
        "--seconds", type=float, help=f"per variant and round: {SECONDS:g} unless told; {QUICK_SECONDS:g} with --quick"
    )
    parser.add_argument("--dir", type=Path, default=disk_folder(), help="where the server's files are made and deleted again")
    parser.add_argument("--peers", action="store_true", help="install the frameworks first, and run them even with --quick")
    parser.add_argument("--quick", action="store_true", help="a look: one short round, no frameworks")
    parser.add_argument("--json", action="store_true")
    return parser


def _whisper(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
