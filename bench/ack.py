"""Acknowledgement latency: the bot, which stores a command before its acknowledgement, beside three apps that store nothing.

    ./run bench ack [--rates 1,50,200,1000] [--only rates,burst,pdfs,slow-flush,flood] [--rounds N] [--quick] [--json]

Slack is a small server in this process, which measures the time from sending an envelope to its acknowledgement. Each application
is its own process, the bot as shipped: it also executes every command and posts its card, while it acknowledges the next ones.
After each volley the ledger is compared with the acknowledgements. faults/suites/test_ack_after_fsync.py checks by system calls
that no acknowledgement is sent before its fsync. Status 1: a check failed or a goal was missed; 64: not started, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench.acks.children import BOT, Bot, app, cpu_seconds, run_and_end, slow_fsync_library  # noqa: E402 -- after the path
from bench.acks.slack import Slack  # noqa: E402 -- after the path
from bench.acks.verdicts import SLOW_FLUSH_MS, Row, figures, judge, together  # noqa: E402 -- after the path
from bench.lifecycle.machine import describe, disk_folder, in_memory, stolen_seconds  # noqa: E402 -- after the path
from bench.lifecycle.report import machine  # noqa: E402 -- after the path
from quotebot.views import messages  # noqa: E402 -- after the path

APPS: Final = ("raw", "bolt", "bolt-pbr", BOT)
STAGES: Final = ("rates", "burst", "pdfs", "slow-flush", "flood")
RATES: Final = (1, 50, 200, 1000)
SECONDS, LONE = 2.0, 4  # of one volley; LONE is the number of commands at one per second
BURST_COUNT: Final = 1000
PDF_QUOTES: Final = 40
PDF_RATE: Final = 200.0
FIRST_PDF_LOOKS, FIRST_PDF_LOOK_SECONDS = 300, 0.1
SLOW_RATE: Final = 1000.0
FLOOD_COUNT: Final = 6000
COMMAND: Final = "new for Acme {n}: 1 pro"
USAGE: Final = 64
LEGEND: Final = """\
raw       the SDK's client, acknowledging in its listener         bolt      Bolt as it comes: it looks every 10 ms
bolt-pbr  Bolt with process_before_response                       quotebot  reserved durably, then acknowledged, then executed
cpu       processor time of the application per command, for the bot until the card is posted
stolen    seconds of processor time that the host of this machine kept for others meanwhile: figures suffer from it
"""


class Trial:
    """One run: the applications and the measurements."""

    def __init__(self, slack: Slack, folder: Path, *, quick: bool) -> None:
        self._slack = slack
        self._folder = folder
        self._quick = quick
        self._pids: dict[str, int] = {}
        self.bot = Bot(slack, folder)
        self.table: dict[str, dict[str, list[Row]]] = {}
        self.notes: list[str] = []

    async def start(self, stack: AsyncExitStack) -> None:
        """Start every application."""
        for name in APPS:
            running = self.bot.running() if name == BOT else app(self._slack, name, self._folder)
            self._pids[name] = await stack.enter_async_context(running)
        await self._slack.volley(BOT, [COMMAND] * 20, 20.0)  # triggers the imports and compilation of the first use
        await self.bot.quiet()

    async def rates(self, rates: tuple[int, ...], turn: int) -> None:
        """Measure each application in turn at each rate."""
        for rate in rates:
            count = LONE if rate == 1 else round(rate * (SECONDS / 4 if self._quick else SECONDS))
            for place in range(len(APPS)):
                await self.volley(f"{rate:,}/s", APPS[(place + turn) % len(APPS)], [COMMAND] * count, float(rate))

    async def burst(self) -> None:
        """Measure a thousand commands at once."""
        for name in APPS:
            await self.volley("burst", name, [COMMAND] * (100 if self._quick else BURST_COUNT), None)

    async def flood(self) -> None:
        """Send more at once than can be recorded in time: some are refused, in time, and no acknowledgement is untrue."""
        await self.volley("flood", BOT, [COMMAND] * (600 if self._quick else FLOOD_COUNT), None)

    async def pdfs(self) -> None:
        """Measure acknowledgements while PDFs are rendered one after another."""
        await self._slack.volley(BOT, [COMMAND] * PDF_QUOTES, 20.0)
        await self.bot.quiet()
        newest = f"SELECT quote_id FROM quotes ORDER BY length(quote_id) DESC, quote_id DESC LIMIT {PDF_QUOTES}"  # noqa: S608 -- a number of ours
        await self._slack.volley(BOT, [f"submit {quote_id}" for (quote_id,) in self.bot.rows(newest)], 100.0)
        for _ in range(FIRST_PDF_LOOKS):  # the first one starts the renderer, which then imports its libraries
            if self._rendered():
                break
            await asyncio.sleep(FIRST_PDF_LOOK_SECONDS)
        before = self._rendered()
        row = await self.volley("pdfs", BOT, [COMMAND] * round(PDF_RATE * SECONDS), PDF_RATE, settle=False)
        rendered = self._rendered() - before
        if not rendered:
            row["problems"].append("no PDF was rendered meanwhile")
        self.notes.append(f"pdfs: {rendered} were rendered meanwhile")
        await self.bot.quiet()

    async def slow_flush(self, library: Path) -> None:
        """Measure a second bot, each of whose flushes takes longer."""
        slow = Bot(self._slack, self._folder, "slow-disk")
        shim = {"LD_PRELOAD": str(library), "BENCH_FSYNC_MS": f"{SLOW_FLUSH_MS:g}"}
        async with slow.running(**shim) as pid:
            await self._slack.volley(slow.name, [COMMAND] * 20, 20.0)
            await slow.quiet()
            began, stolen = cpu_seconds(pid), stolen_seconds()
            shots = await self._slack.volley(slow.name, [COMMAND] * round(SLOW_RATE * (0.3 if self._quick else SECONDS)), SLOW_RATE)
            stolen = stolen_seconds() - stolen
            quiet = await slow.quiet()
            problems = slow.problems(shots, messages.NOTHING_RECORDED) + ([] if quiet else ["it did not come to rest"])
            row = figures(shots, messages.NOTHING_RECORDED, cpu_seconds(pid) - began, problems, stolen)
        self.table.setdefault("slow flush", {})[BOT] = [row]
        _progress("slow flush", BOT, row)

    async def volley(self, stage: str, name: str, commands: list[str], per_second: float | None, *, settle: bool = True) -> Row:
        """Send the commands, wait until all work is done, compare with the ledger, and store the figures."""
        began, stolen = cpu_seconds(self._pids[name]), stolen_seconds()
        shots = await self._slack.volley(name, commands, per_second)
        stolen = stolen_seconds() - stolen
        problems: list[str] = []
        if name == BOT:
            if settle and not await self.bot.quiet():
                problems.append("it did not come to rest")
            problems += self.bot.problems(shots, messages.NOTHING_RECORDED)
        row = figures(shots, messages.NOTHING_RECORDED, cpu_seconds(self._pids[name]) - began, problems, stolen)
        self.table.setdefault(stage, {}).setdefault(name, []).append(row)
        _progress(stage, name, row)
        return row

    def _rendered(self) -> int:
        ((count,),) = self.bot.rows("SELECT count(*) FROM effects WHERE class = 'pdf.render' AND state = 'delivered'")
        return int(str(count))


def main() -> int:
    """Run the requested measurements and print the report."""
    asked = _parser().parse_args()
    if in_memory(asked.dir):
        print(f"{asked.dir} is kept in memory, where flushing is free. Nothing was run. Choose another: --dir.", file=sys.stderr)
        return USAGE
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=asked.dir) as place:
        header = describe(Path(place), {"journal_mode": "wal", "synchronous": "FULL"})
        table, notes = run_and_end(_measure(asked, Path(place)))
    rows = {stage: {name: together(found) for name, found in apps.items()} for stage, apps in table.items()}
    report: dict[str, Any] = {
        "header": {**header, "load_after": round(os.getloadavg()[0], 2)},
        "rows": rows,
        "notes": notes,
        "goals": judge(rows, float(str(header["fdatasync_p50_ms"])), busy=busy),
    }
    print(json.dumps(report, indent=2) if asked.json else "\n".join(_lines(report)))
    return int(any(goal["verdict"] == "missed" for goal in report["goals"]))


async def _measure(asked: argparse.Namespace, folder: Path) -> tuple[dict[str, dict[str, list[Row]]], list[str]]:
    slack = Slack()
    await slack.start()
    try:
        async with AsyncExitStack() as stack:
            trial = Trial(slack, folder, quick=asked.quick)
            await trial.start(stack)
            if "rates" in asked.only:
                for turn in range(1 if asked.quick else asked.rounds):
                    await trial.rates(asked.rates, turn)
            if "burst" in asked.only:
                await trial.burst()
            if "pdfs" in asked.only:
                await trial.pdfs()
            if "flood" in asked.only:
                await trial.flood()
        library = slow_fsync_library(folder)
        if "slow-flush" in asked.only and library is not None:
            await trial.slow_flush(library)
        elif library is None:
            trial.notes.append("no C compiler here: flushes were not slowed down")
    finally:
        await slack.stop()
    return trial.table, trial.notes


def _progress(stage: str, name: str, row: Row) -> None:
    """Print the progress on stderr: the whole run takes some minutes."""
    print(f"... {stage} {name}: {row['sent']:,} sent, p50 {row.get('p50_ms', float('nan')):.2f} ms", file=sys.stderr, flush=True)


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield from machine(report["header"])
    yield LEGEND
    counts = f"{'sent':>6} {'refused':>8} {'unacked':>8} {'late':>5} {'stolen':>6}"
    yield f"{'':10} {'':10} {'p50 ms':>9} {'p99 ms':>9} {'max ms':>9} {'cpu ms':>7} {counts}"
    for stage, apps in report["rows"].items():
        for name in sorted(apps, key=APPS.index):
            yield f"{stage:10} {name:10} {_figures(apps[name])}"
    yield from report["notes"]
    yield ""
    for goal in report["goals"]:
        found = "" if goal["found"] is None else f"  found {goal['found']:.2f}{goal['unit']}"
        yield f"[{goal['verdict']}] {goal['goal']}{found}"


def _figures(row: Row) -> str:
    times = " ".join(f"{row[name]:9.2f}" if name in row else f"{'-':>9}" for name in ("p50_ms", "p99_ms", "max_ms"))
    cpu = f"{row['cpu_ms']:7.2f}" if "cpu_ms" in row else f"{'-':>7}"
    counts = f"{row['sent']:6,} {row['refused']:8,} {row['unacked']:8,} {row['late']:5,} {row['stolen_s']:6.1f}"
    return f"{times} {cpu} {counts} {'; '.join(row['problems'])}".rstrip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench ack", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", type=lambda text: tuple(int(part) for part in text.split(",")), default=RATES)
    parser.add_argument("--only", type=lambda text: text.split(","), default=STAGES, help=f"some of: {', '.join(STAGES)}")
    parser.add_argument("--rounds", type=int, default=3, help="of the rates: each application in turn at each of them")
    parser.add_argument("--dir", type=Path, default=disk_folder(), help="where files are made and deleted again")
    parser.add_argument("--quick", action="store_true", help="a look: one short round, small volleys")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
