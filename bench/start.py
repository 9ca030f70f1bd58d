"""Start-up time in one run: bare Python, `quotebot --help`, `quotebot policy`. Only the ratios are judged.

    ./run bench start [--quick] [--json]

Status 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any, Final

ROUNDS: Final = 9
QUICK_ROUNDS: Final = 3
BARE: Final = "bare python"
COMMANDS: Final = {
    BARE: [sys.executable, "-c", "pass"],
    "quotebot --help": [sys.executable, "-m", "quotebot", "--help"],
    "quotebot policy": [sys.executable, "-m", "quotebot", "policy", "--json"],
}
GOALS: Final = {"quotebot --help": 16.0}  # at most this many times the start of bare Python


def main() -> int:
    """Interleave the commands and print each one's median ratio to bare Python in the same round."""
    parser = argparse.ArgumentParser(prog="./run bench start", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a look: few rounds")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rounds = QUICK_ROUNDS if asked.quick else ROUNDS
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    ratios = {name: [own / bare for own, bare in zip(times, seconds[BARE], strict=True)] for name, times in seconds.items()}
    goals = [_goal(name, most, ratios[name]) for name, most in GOALS.items()]
    if asked.json:
        print(json.dumps({"rounds": rounds, "seconds": seconds, "goals": goals}, indent=2))
    else:
        print(f"{'command':20} {'ratio':>7} {'min s':>8} {'median s':>9} {'max s':>8}   ({rounds} interleaved rounds)")
        for name, times in seconds.items():
            ratio = statistics.median(ratios[name])
            print(f"{name:20} {ratio:7.1f} {min(times):8.3f} {statistics.median(times):9.3f} {max(times):8.3f}")
    return int(any(goal["verdict"] == "missed" for goal in goals))


def _goal(name: str, most: float, ratios: list[float]) -> dict[str, Any]:
    found = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return {
        "goal": f"{name} starts within {most:g}x a bare Python",
        "found": found,
        "unit": "x",
        "verdict": "ok" if found["median"] <= most else "missed",
    }


if __name__ == "__main__":
    sys.exit(main())
