"""Speed mechanisms of the acknowledgement and of the worker, each switched off in turn and compared with the bot as shipped.

    ./run bench ablation [--rounds 5] [--only 200/s,1000/s,burst,pdfs,large] [--without NAME,NAME] [--flush-ms 5] [--quick]

Every variant is a bot of its own with its own ledger; all run at the same time, and one after another gets the same volley. The
table shows the acknowledgement's p50 and p99 without a mechanism, as a multiple of the same round with all of them: 1.30 means that
the mechanism saves 30 %. "base again" is the bot as shipped once more: its distance from 1 is the noise. The stages: 200 and 1,000
commands per second, 300 at once, 200 per second beside PDFs being rendered, and 50 per second of which four are creations of 100
lines that need approvals: their price and its advice take longest to compute. `--flush-ms` makes each flush of every bot take so
much longer, as on a slow disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

if __name__ == "__main__":  # beside this script a file named ledger.py stands in for the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.acks.children import Bot, run_and_end, slow_fsync_library
from bench.acks.slack import Slack
from bench.acks.verdicts import figures
from bench.acks.without import MECHANISMS
from bench.lifecycle.machine import describe, disk_folder
from bench.lifecycle.report import machine
from bench.pricing import wide_document
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.acks.slack import Shot

BASE, AGAIN, ALL = "base", "base again", "all of them"
STAGES: Final = ("200/s", "1000/s", "burst", "pdfs", "large")
PRODUCTS: Final = wide_document(130)
LARGE_LINES: Final = [price["sku"] for price in PRODUCTS["price_books"][0]["prices"] if price["kind"] != "percent"][:100]
COMMAND: Final = "new for Acme {n}: 1 p0"
LARGE: Final = "new for Acme {n}: " + ", ".join(f"{17 + number} {sku}" for number, sku in enumerate(LARGE_LINES)) + "; discount 25%"
LARGE_RATE, LARGE_EVERY = 50.0, 12  # per second: below the rate at which the workers pause, and four of them are large
PDFS: Final = 30
WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
REFUSED: Final = "SELECT count(*) FROM operations WHERE outcome = 'refused'"
RENDERED: Final = "SELECT count(*) FROM effects WHERE class = 'pdf.render' AND state = 'delivered'"
NEWEST: Final = f"SELECT quote_id FROM quotes ORDER BY length(quote_id) DESC, quote_id DESC LIMIT {PDFS}"  # noqa: S608 -- a number of ours


async def play(slack: Slack, bot: Bot, stage: str, *, quick: bool) -> list[Shot]:
    """Send the volley of a stage to a bot at rest; return the acknowledgements to be measured."""
    seconds = 0.5 if quick else 2.0
    if stage == "burst":
        return await slack.volley(bot.name, [COMMAND] * 300, None)
    if stage == "large":
        commands = [LARGE if number % LARGE_EVERY == 0 else COMMAND for number in range(round(LARGE_RATE * seconds))]
        shots = await slack.volley(bot.name, commands, LARGE_RATE)
        if any(shot.text for shot in shots):  # a recorded command is acknowledged without a text
            raise RuntimeError(f"not recorded: {next(shot.text for shot in shots if shot.text)}")
        return [shot for number, shot in enumerate(shots) if number % LARGE_EVERY]
    if stage == "pdfs":
        await render(slack, bot)
    rate = 1000.0 if stage == "1000/s" else 200.0
    return await slack.volley(bot.name, [COMMAND] * round(rate * seconds), rate)


async def render(slack: Slack, bot: Bot) -> None:
    """Approve some quotes, and wait until the first of their PDFs is rendered."""
    await slack.volley(bot.name, [COMMAND] * PDFS, 100.0)
    await bot.quiet()
    before = bot.rows(RENDERED)
    await slack.volley(bot.name, [f"submit {quote_id}" for (quote_id,) in bot.rows(NEWEST)], 200.0)
    for _ in range(round(WAIT_SECONDS / LOOK_SECONDS)):
        if bot.rows(RENDERED) != before:
            return
        await asyncio.sleep(LOOK_SECONDS)


def slow_flushes(folder: Path, milliseconds: float) -> dict[str, str]:
    """Return the environment of a process whose flushes take longer."""
    library = slow_fsync_library(folder)
    if library is None:
        raise SystemExit("No C compiler here: flushes cannot be slowed down. Nothing was measured.")
    return {"LD_PRELOAD": str(library), "BENCH_FSYNC_MS": f"{milliseconds:g}"}


async def measure(asked: argparse.Namespace, folder: Path) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return p50 and p99 in milliseconds of each round, by stage and variant."""
    variants = [BASE, AGAIN, *asked.without, *([ALL] if len(asked.without) > 1 else [])]
    slack, found = Slack(), dict[tuple[str, str], list[tuple[float, float]]]()
    catalog = folder / "catalog.json"
    catalog.write_text(json.dumps(PRODUCTS), encoding="utf-8")
    shim = slow_flushes(folder, asked.flush_ms) if asked.flush_ms else {}
    await slack.start()
    try:
        async with AsyncExitStack() as stack:
            bots = {name: Bot(slack, folder, f"bot-{place}") for place, name in enumerate(variants)}
            for name, bot in bots.items():
                off = {BASE: (), AGAIN: (), ALL: tuple(asked.without)}.get(name, (name,))
                await stack.enter_async_context(bot.running(without=off, **shim))
                bot.run("catalog", "import", str(catalog), "--activate")
                await slack.volley(bot.name, [COMMAND] * 20, 20.0)  # triggers the imports and compilation of the first use
                await bot.quiet()
            for turn in range(asked.rounds):
                for stage in asked.only:
                    for place in range(len(variants)):
                        name = variants[(place + turn) % len(variants)]
                        shots = await play(slack, bots[name], stage, quick=asked.quick)
                        await bots[name].quiet()
                        row = figures(shots, messages.NOTHING_RECORDED, 0.0, bots[name].problems(shots, messages.NOTHING_RECORDED))
                        if row["problems"] or bots[name].rows(REFUSED) != [(0,)]:
                            raise RuntimeError(f"{name}, {stage}: {row['problems'] or 'commands were refused'}")
                        found.setdefault((stage, name), []).append((row["p50_ms"], row["p99_ms"]))
                        print(f"round {turn + 1} {stage} {name}: p50 {row['p50_ms']:.2f} p99 {row['p99_ms']:.2f}", file=sys.stderr)
    finally:
        await slack.stop()
    return found


def table(found: dict[tuple[str, str], list[tuple[float, float]]]) -> list[str]:
    """Return the rows of a Markdown table: each variant's p50 (p99) as a multiple of the base's in the same round, by stage."""
    stages, names = list(dict.fromkeys(stage for stage, _ in found)), list(dict.fromkeys(name for _, name in found))
    rows = [f"| without | {' | '.join(stages)} |", f"|---|{'--:|' * len(stages)}"]
    for name in names:
        cells = []
        for stage in stages:
            if name == BASE:
                cells.append(f"{_median(found[stage, name], 0):.2f} ({_median(found[stage, name], 1):.2f}) ms")
            else:
                pairs = list(zip(found[stage, name], found[stage, BASE], strict=True))
                ratios = [(one[0] / other[0], one[1] / other[1]) for one, other in pairs]
                cells.append(f"{_median(ratios, 0):.2f} ({_median(ratios, 1):.2f})")
        rows.append(f"| {'nothing' if name == BASE else name} | {' | '.join(cells)} |")
    return rows


def _median(values: Sequence[tuple[float, float]], place: int) -> float:
    return statistics.median(value[place] for value in values)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="./run bench ablation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STAGES), help=f"some of: {', '.join(STAGES)}")
    parser.add_argument(
        "--without", type=lambda text: text.split(","), default=list(MECHANISMS), help=f"of: {', '.join(MECHANISMS)}"
    )
    parser.add_argument("--dir", type=Path, default=disk_folder(), help="where files are made and deleted again")
    parser.add_argument("--flush-ms", type=float, default=0.0, help="how much longer each flush takes: 5 for a slow disk")
    parser.add_argument("--quick", action="store_true", help="a look: short volleys")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=asked.dir) as place:
        header = describe(Path(place), {"journal_mode": "wal", "synchronous": "FULL"})
        found = run_and_end(measure(asked, Path(place)))
    print("\n".join([*machine(header), "", *table(found)]))


if __name__ == "__main__":
    main()
