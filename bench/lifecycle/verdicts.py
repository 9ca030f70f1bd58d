"""Goals, and the verdicts of a run. Only ratios inside one round are judged; a failed check removes the figure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.lifecycle.rounds import NO_POSTGRES, NOT_INSTALLED, PEERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.lifecycle.rounds import Summary

NOISE_MAX: Final = 0.20  # between identical variants; above this nothing is judged
FIRST, AGAIN = "quotebot c=64", "quotebot c=64 again"
LIMIT, LIMIT_AGAIN = "limit", "limit again"

# The variants of bench/postgres.py.
PRODUCT, SINGLE, SQLITE = "postgres", "single commits", "sqlite"
ACKS: Final = "acks"  # the rest of a variant whose clients reserve only

Cell = tuple[int, str]
Rounds = list[dict[Cell, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` of one cell over `figure` of another in the same round; `sign` defines on which side of `bound` it must be."""

    cell: Cell
    other: Cell
    sign: str
    bound: float
    figure: str = "ops_per_s"

    def ratios(self, rounds: Rounds) -> list[float]:
        """Return the ratio of every round; an empty list if a check failed in any of them."""
        pairs = [(done[self.cell], done[self.other]) for done in rounds if self.cell in done and self.other in done]
        if any(run["problems"] for pair in pairs for run in pair):
            return []
        return [one[self.figure] / two[self.figure] for one, two in pairs]

    def met(self, value: float) -> bool:
        """Tell whether a value meets the goal."""
        return value >= self.bound if self.sign == ">=" else value <= self.bound

    def __str__(self) -> str:
        (size, variant), (other_size, other) = self.cell, self.other
        what = "p50" if self.figure == "p50_ms" else "throughput"
        against = f"the same at {other_size:,} commands" if variant == other else other
        return f"{variant} at {size:,}: {what} {self.sign} {self.bound:g}x {against}"


def goals(sizes: Sequence[int]) -> list[Goal]:
    """Return the goals that these sizes can judge."""
    found = []
    if 0 in sizes:
        bounds = (("quotebot c=1", LIMIT, 0.5), ("quotebot c=16", LIMIT, 2.2), (FIRST, LIMIT, 3.0), (FIRST, "batch 64", 0.47))
        peers = (
            ("quotebot c=1", "dbos c=1", 3.5),
            (FIRST, "dbos c=64", 12.0),
            (FIRST, "huey c=64", 3.5),
            (FIRST, "naive c=64", 9.0),
        )
        found += [Goal((0, variant), (0, other), ">=", bound) for variant, other, bound in (*bounds, *peers)]
        largest = max(sizes)
        if largest:
            found.append(Goal((largest, "quotebot c=1"), (0, "quotebot c=1"), "<=", 1.4, "p50_ms"))
            found.append(Goal((largest, FIRST), (0, FIRST), ">=", 0.4))
    return found


def noise(rounds: Rounds, pairs: Sequence[tuple[str, str]] = ((FIRST, AGAIN), (LIMIT, LIMIT_AGAIN))) -> float | None:
    """Return the difference between two runs of the same variant in one round: the median, of the worst of the pairs.

    None if no pair was run.
    """
    errors = [_differences(rounds, *pair) for pair in pairs]
    return max((statistics.median(found) for found in errors if found), default=None)


def _differences(rounds: Rounds, first: str, again: str) -> list[float]:
    sizes = sorted({size for size, _ in rounds[0]})
    return [abs(ratio - 1) for size in sizes for ratio in Goal((size, first), (size, again), ">=", 0).ratios(rounds)]


def judge(rounds: Rounds, sizes: Sequence[int], payload_bytes: int, bytes_max: float = 2.0) -> list[Summary]:
    """Return one JSON-ready row per goal: the goal, its result, and the verdict."""
    error = noise(rounds)
    lines = [verdict_of(str(goal), goal.ratios(rounds), goal.met, why_not(rounds, goal), error) for goal in goals(sizes)]
    if 0 in sizes:
        runs = [done[0, FIRST] for done in rounds if (0, FIRST) in done]
        sound = not any(run["problems"] for run in runs)
        found = [run["file_per_op"] / payload_bytes for run in runs] if sound else []
        wanted = f"{FIRST} at 0: bytes in the file per command <= {bytes_max:g}x the payload ({payload_bytes:,} B)"
        lines.append(verdict_of(wanted, found, lambda value: value <= bytes_max, "not run" if sound else "a check failed", 0.0))
    return lines


def verdict_of(wanted: str, ratios: list[float], met: Callable[[float], bool], why_not: str, error: float | None) -> Summary:
    """Return the JSON-ready row of one goal; `error` is the noise of the run."""
    if not ratios:
        return {"goal": wanted, "found": None, "verdict": f"no verdict: {why_not}"}
    found = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    if error is None:
        return {"goal": wanted, "found": found, "verdict": "no verdict: noise was not measured"}
    if error > NOISE_MAX:
        return {"goal": wanted, "found": found, "verdict": "too noisy, no verdict"}
    return {"goal": wanted, "found": found, "verdict": "ok" if met(found["median"]) else "missed"}


def why_not(rounds: Rounds, goal: Goal) -> str:
    """Return why there is no verdict on a goal without figures."""
    problems = [
        problem for done in rounds for cell in (goal.cell, goal.other) for problem in done.get(cell, {}).get("problems", [])
    ]
    if problems:
        return next((why for why in (NOT_INSTALLED, NO_POSTGRES) if why in problems), problems[0])
    return "not run"


def table(rounds: Rounds) -> list[Summary]:
    """Return one JSON-ready row per cell: medians over the rounds, and the ratio to the same round's limit at that size."""
    lines = []
    for cell in rounds[0]:
        size, variant = cell
        base = (0 if variant.split()[0] in PEERS or variant == "bare" else size, LIMIT)
        runs = [done[cell] for done in rounds]
        problems = sorted({problem for run in runs for problem in run["problems"]})
        line: Summary = {"size": size, "variant": variant, "problems": problems}
        if not problems:
            line["ratio"] = _spread(Goal(cell, base, ">=", 0).ratios(rounds))
            names = (
                "ops_per_s",
                "p50_ms",
                "p99_ms",
                "lag_p99_ms",
                "cpu_us_per_op",
                "commits_per_op",
                "written_per_op",
                "file_per_op",
            )
            line |= {name: _median(runs, name) for name in names}
            line["ops"] = sum(run["ops"] for run in runs)
        lines.append(line)
    return sorted(lines, key=lambda line: line["size"])


def _spread(values: list[float]) -> Summary | None:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)} if values else None


def _median(runs: list[Summary], name: str) -> float | None:
    values = [run[name] for run in runs if run.get(name) is not None]
    return statistics.median(values) if values else None
