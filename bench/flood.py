"""Cost of a flood for other people: their acknowledgements and cards during it, compared with those without it in the same run.

    ./run bench flood [--only commands,blanks,marks] [--rounds N] [--quick] [--json]

commands    one person gives 1,000 commands in 10 s in one channel; others give theirs elsewhere, and some in that channel
blanks      three guests send messages of 39,900 blanks without pause, each the next one as soon as the last is acknowledged
marks       the same with messages of 40,000 combining characters

Slack is a small server in this process, which measures the times; the bot runs as shipped, with its default settings. Every round
measures other people without the flood, then with it. The times of all rounds are pooled, because one round has too few for a p99.
After each round the ledger is compared with the acknowledgements. Status 1: a check failed or a goal was missed; 64: not started,
with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.acks.crowd import Asked

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # beside this script a file named ledger.py stands in for the package

from bench.acks.children import BOT, Bot, cpu_seconds, run_and_end  # noqa: E402 -- after the path
from bench.acks.crowd import BLANKS, GUEST, MARKS, Crowd  # noqa: E402 -- after the path
from bench.acks.slack import PATIENCE_SECONDS, Shot  # noqa: E402 -- after the path
from bench.acks.verdicts import NO_VERDICT  # noqa: E402 -- after the path
from bench.lifecycle.machine import describe, disk_folder, in_memory, stolen_seconds  # noqa: E402 -- after the path
from bench.lifecycle.measure import percentile  # noqa: E402 -- after the path
from bench.lifecycle.report import machine  # noqa: E402 -- after the path
from quotebot.views import messages  # noqa: E402 -- after the path

STAGES: Final = ("commands", "blanks", "marks")
TEXTS: Final = {"blanks": BLANKS, "marks": MARKS}
ROUNDS: Final = 4
SECONDS: Final = 10.0  # of each measurement
PER_SECOND: Final = 8  # commands of many other people, each far below their own budget
OTHERS: Final = 40
FLOOD_COMMANDS: Final = 1000
GUESTS: Final = 3
NEIGHBOURS_AT: Final = (1.0, 3.5, 6.0, 8.5)  # seconds after the start: a command of another person in the flooded channel
CARD_GIVE_UP_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.05
RATIO_MAX: Final = 2.0
CARD_SECONDS_MAX: Final = 5.0
USAGE: Final = 64
OVER_BUDGET: Final = messages.over_budget(60, 1).split(".")[0]

Row = dict[str, Any]


@dataclass(slots=True)
class Measured:
    """Measurements of all rounds of one stage, without the flood or with it. Times are seconds."""

    acks: list[float] = field(default_factory=list)
    rounds: list[list[float]] = field(default_factory=list)
    cards: list[float] = field(default_factory=list)  # from the acknowledgement to the card
    cards_missing: int = 0
    unacked: int = 0
    late: int = 0
    flood: int = 0  # the flood's envelopes
    flood_refused: int = 0
    flood_seconds: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    stolen_seconds: float = 0.0

    def take(self, shots: Sequence[Shot]) -> None:
        """Add the acknowledgements of other people in one round."""
        acked = [shot.seconds for shot in shots if shot.seconds is not None]
        self.acks += acked
        self.rounds.append(acked)
        self.unacked += len(shots) - len(acked)
        self.late += sum(seconds > PATIENCE_SECONDS for seconds in acked)


class Trial:
    """One run: the bot, its people and the measurements."""

    def __init__(self, slack: Crowd, folder: Path, seconds: float) -> None:
        self._slack = slack
        self._bot = Bot(slack, folder)
        self._seconds = seconds
        self._others = itertools.cycle(f"U0OTHER{number:03}" for number in range(OTHERS))
        self._flooders = (f"U0FLOOD{number:03}" for number in itertools.count())
        self._channels = (f"C{number:08}" for number in itertools.count(1))
        self._floods = (f"C9{number:07}" for number in itertools.count(1))
        self.table: dict[str, dict[str, Measured]] = {}
        self.problems: list[str] = []

    async def run(self, stages: Sequence[str], rounds: int) -> None:
        """Measure every stage in every round, without its flood and with it."""
        async with self._bot.running(QUOTEBOT_COMMANDS_PER_MINUTE="60") as pid:
            await self._warm_up()
            for _ in range(rounds):
                for stage in stages:
                    for kind in ("quiet", "flood"):
                        await self._measure(pid, stage, kind)

    async def _warm_up(self) -> None:
        """Give first commands, so that the bot has read all users and has imported and compiled everything that it needs."""
        people = [next(self._others) for _ in range(OTHERS)]
        await self._slack.evenly(BOT, lambda index: self._slack.command(people[index], next(self._channels)), OTHERS, 4.0)
        for guest, text in itertools.product(range(GUESTS), TEXTS.values()):
            for mention in (False, True):
                asked = self._slack.message(f"{GUEST}{guest}", text, mention=mention)
                await self._slack.send(BOT, asked)
                await self._slack.acknowledged(BOT, asked)
        await self._bot.quiet()

    async def _measure(self, pid: int, stage: str, kind: str) -> None:
        found = self.table.setdefault(stage, {}).setdefault(kind, Measured())
        channel, flooder = next(self._floods), next(self._flooders)
        if stage == "commands":  # the bot has already read this user, as after an earlier command
            await self._slack.evenly(BOT, lambda _: self._slack.command(flooder, next(self._channels)), 1, 0.0)
            await self._bot.quiet()
        began, cpu, stolen = time.perf_counter(), cpu_seconds(pid), stolen_seconds()
        tasks: list[asyncio.Task[list[Shot]]] = []
        if kind == "flood" and stage == "commands":
            count = round(FLOOD_COMMANDS * self._seconds / SECONDS)
            tasks.append(asyncio.create_task(self._commands(flooder, channel, count)))
        elif kind == "flood":
            tasks += [asyncio.create_task(self._messages(f"{GUEST}{guest}", TEXTS[stage])) for guest in range(GUESTS)]
        neighbours = asyncio.create_task(self._neighbours(channel)) if stage == "commands" else None
        count = round(PER_SECOND * self._seconds)
        ask = lambda _: self._slack.command(next(self._others), next(self._channels))  # noqa: E731 -- one line, used once
        others = await self._slack.evenly(BOT, ask, count, self._seconds)
        flood = [shot for task in tasks for shot in await task]
        found.flood_seconds += max((shot.sent_at for shot in flood), default=began) - began
        near = [] if neighbours is None else await neighbours
        found.seconds += time.perf_counter() - began
        found.cpu_seconds += cpu_seconds(pid) - cpu
        found.stolen_seconds += stolen_seconds() - stolen
        found.take([shot for _, shot in (*others, *near)])
        await self._cards(found, near)
        if not await self._bot.quiet():
            self.problems.append(f"{stage}, {kind}: it did not come to rest")
        found.flood += len(flood)
        found.flood_refused += sum(_is_refused(shot) for shot in flood)
        found.unacked += sum(shot.acked_at is None for shot in flood)
        commands = [shot for _, shot in (*others, *near)]
        self.problems += self._untrue([*commands, *(flood if stage == "commands" else ())])
        p99 = percentile(found.rounds[-1], 99) * 1000
        print(f"... {stage} {kind}: {len(flood):,} of the flood, others' p99 {p99:.2f} ms", file=sys.stderr, flush=True)

    async def _commands(self, flooder: str, channel: str, count: int) -> list[Shot]:
        sent = await self._slack.evenly(BOT, lambda _: self._slack.command(flooder, channel), count, self._seconds)
        return [shot for _, shot in sent]

    async def _messages(self, guest: str, text: str) -> list[Shot]:
        """Send messages, alternately direct and as a mention, each as soon as the last one is acknowledged."""
        sent: list[Shot] = []
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            asked = self._slack.message(guest, text, mention=len(sent) % 2 == 1)
            sent.append(await self._slack.send(BOT, asked))
            await self._slack.acknowledged(BOT, asked)
        return sent

    async def _neighbours(self, channel: str) -> list[tuple[Asked, Shot]]:
        """Give commands in the flooded channel, each from a different person."""
        began, sent = time.perf_counter(), []
        for at in NEIGHBOURS_AT:
            await asyncio.sleep(max(0.0, began + at * self._seconds / SECONDS - time.perf_counter()))
            asked = self._slack.command(next(self._others), channel)
            sent.append((asked, await self._slack.send(BOT, asked)))
        for asked, _ in sent:
            await self._slack.acknowledged(BOT, asked)
        return sent

    async def _cards(self, found: Measured, near: Sequence[tuple[Asked, Shot]]) -> None:
        """Wait for the cards of the commands in the flooded channel."""
        for _ in range(round(CARD_GIVE_UP_SECONDS / LOOK_SECONDS)):
            if all(asked.number in self._slack.cards for asked, _ in near):
                break
            await asyncio.sleep(LOOK_SECONDS)
        for asked, shot in near:
            posted_at = self._slack.cards.get(asked.number)
            if posted_at is None or shot.acked_at is None:
                found.cards_missing += 1
            else:
                found.cards.append(max(0.0, posted_at - shot.acked_at))

    def _untrue(self, shots: Sequence[Shot]) -> list[str]:
        """Return the untrue acknowledgements; a refusal for the budget states that nothing was recorded."""
        refused = messages.NOTHING_RECORDED
        told = [Shot(shot.request_id, shot.sent_at, shot.acked_at, refused if _is_refused(shot) else shot.text) for shot in shots]
        return self._bot.problems(told, refused)


def _is_refused(shot: Shot) -> bool:
    return (shot.text or "").startswith(OVER_BUDGET)


def judge(table: dict[str, dict[str, Measured]], problems: Sequence[str], *, busy: bool) -> list[Row]:
    """Return each goal with its result. On a `busy` machine a missed time gives no verdict; an untrue answer always does."""
    timed: list[Row] = []
    who = {
        "commands": f"one person, {FLOOD_COMMANDS:,} commands in {SECONDS:g} s",
        "blanks": "three guests, messages of 39,900 blanks without pause",
        "marks": "three guests, messages of 40,000 combining characters without pause",
    }
    for stage, kinds in table.items():
        quiet, flood = (percentile(kinds[kind].acks, 99) if kinds[kind].acks else None for kind in ("quiet", "flood"))
        ratio = None if not quiet or flood is None else flood / quiet
        timed.append(_goal(f"{who[stage]}: ack p99 of others <= {RATIO_MAX:g}x quiet", ratio, RATIO_MAX, "x"))
        if stage == "commands":
            found = None if kinds["flood"].cards_missing else max(kinds["flood"].cards, default=None)
            goal = f"{who[stage]}: the last card of others in that channel <= {CARD_SECONDS_MAX:g} s after its ack"
            timed.append(_goal(goal, found, CARD_SECONDS_MAX, " s"))
    spared = [{**goal, "verdict": NO_VERDICT} if busy and goal["verdict"] == "missed" else goal for goal in timed]
    rows = [found for kinds in table.values() for found in kinds.values()]
    return [
        *spared,
        _goal("acknowledged and not recorded, or refused and recorded", len(problems), 0, ""),
        _goal("commands and messages without an acknowledgement, cards that did not come", sum(_lost(row) for row in rows), 0, ""),
        _goal(f"others acknowledged after more than {PATIENCE_SECONDS:g} s", sum(row.late for row in rows), 0, ""),
    ]


def _lost(row: Measured) -> int:
    return row.unacked + row.cards_missing


def _goal(goal: str, found: float | None, most: float, unit: str) -> Row:
    verdict = "not measured" if found is None else "ok" if found <= most else "missed"
    return {"goal": goal, "found": found, "unit": unit, "verdict": verdict}


def figures(found: Measured) -> Row:
    """Return the figures of one cell of the table, JSON-ready; times of acknowledgements in milliseconds."""
    acks = found.acks or [float("nan")]
    return {
        "acks": len(found.acks),
        **{f"p{percent}_ms": percentile(acks, percent) * 1000 for percent in (50, 90, 99)},
        "max_ms": max(acks) * 1000,
        "p99_ms_of_rounds": [round(percentile(times, 99) * 1000, 2) for times in found.rounds if times],
        "cards": len(found.cards),
        "card_p50_s": percentile(found.cards, 50) if found.cards else None,
        "card_max_s": max(found.cards, default=None),
        "flood": found.flood,
        "flood_refused": found.flood_refused,
        "flood_per_s": found.flood / found.flood_seconds if found.flood_seconds else 0.0,
        "cpu": found.cpu_seconds / found.seconds if found.seconds else 0.0,
        "stolen_s": found.stolen_seconds,
    }


def main() -> int:
    """Run the requested stages and print the report."""
    asked = _parser().parse_args()
    if in_memory(asked.dir):
        print(f"{asked.dir} is kept in memory, where flushing is free. Nothing was run. Choose another: --dir.", file=sys.stderr)
        return USAGE
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="quotebot-bench-", dir=asked.dir) as place:
        header = describe(Path(place), {"journal_mode": "wal", "synchronous": "FULL"})
        trial = run_and_end(_measure(asked, Path(place)))
    report: dict[str, Any] = {
        "header": {**header, "load_after": round(os.getloadavg()[0], 2)},
        "rows": {stage: {kind: figures(found) for kind, found in kinds.items()} for stage, kinds in trial.table.items()},
        "problems": trial.problems,
        "goals": judge(trial.table, trial.problems, busy=busy),
    }
    print(json.dumps(report, indent=2) if asked.json else "\n".join(_lines(report)))
    return int(any(goal["verdict"] == "missed" for goal in report["goals"]))


async def _measure(asked: argparse.Namespace, folder: Path) -> Trial:
    slack = Crowd()
    await slack.start()
    try:
        trial = Trial(slack, folder, SECONDS / 4 if asked.quick else SECONDS)
        await trial.run(asked.only, 1 if asked.quick else asked.rounds)
    finally:
        await slack.stop()
    return trial


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield from machine(report["header"])
    yield "Times of other people: from envelope to acknowledgement, and from there to the card in the channel of the flood."
    yield "cpu  processors the bot used meanwhile        stolen  seconds of processor time that the host kept for others"
    yield ""
    times = f"{'acks':>5} {'p50 ms':>8} {'p90 ms':>8} {'p99 ms':>8} {'max ms':>8} {'card p50':>9} {'card max':>9}"
    yield f"{'':9} {'':6} {times} {'flood':>7} {'refused':>8} {'per s':>6} {'cpu':>5} {'stolen':>6}  p99 of each round"
    for stage, kinds in report["rows"].items():
        for kind, row in kinds.items():
            yield f"{stage:9} {kind:6} {_figures(row)}"
    yield from report["problems"]
    yield ""
    for goal in report["goals"]:
        found = "" if goal["found"] is None else f"  found {goal['found']:.2f}{goal['unit']}"
        yield f"[{goal['verdict']}] {goal['goal']}{found}"


def _figures(row: Row) -> str:
    times = " ".join(f"{row[name]:8.2f}" for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))
    cards = " ".join(f"{'-':>9}" if row[name] is None else f"{row[name]:7.2f} s" for name in ("card_p50_s", "card_max_s"))
    flood = f"{row['flood']:7,} {row['flood_refused']:8,} {row['flood_per_s']:6,.0f} {row['cpu']:5.2f} {row['stolen_s']:6.1f}"
    return f"{row['acks']:5} {times} {cards} {flood}  {', '.join(f'{p99:g}' for p99 in row['p99_ms_of_rounds'])}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench flood", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=STAGES, help=f"some of: {', '.join(STAGES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--dir", type=Path, default=disk_folder(), help="where files are made and deleted again")
    parser.add_argument("--quick", action="store_true", help="a look: one short round")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
