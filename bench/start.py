"""Start-up, side by side in one run: bare Python, `quotebot --help`, `quotebot policy`. The ratios are what counts."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 9
COMMANDS = {
    "bare python": [sys.executable, "-c", "pass"],
    "quotebot --help": [sys.executable, "-m", "quotebot", "--help"],
    "quotebot policy": [sys.executable, "-m", "quotebot", "policy", "--json"],
}


def main() -> None:
    """Interleave the commands and print each one's median ratio to bare Python of the same round."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    print(f"{'command':20} {'ratio':>7} {'min s':>8} {'median s':>9} {'max s':>8}   ({ROUNDS} interleaved rounds)")
    for name, times in seconds.items():
        ratio = statistics.median(own / bare for own, bare in zip(times, seconds["bare python"], strict=True))
        print(f"{name:20} {ratio:7.1f} {min(times):8.3f} {statistics.median(times):9.3f} {max(times):8.3f}")


if __name__ == "__main__":
    main()
