"""Interleaved run: every variant once per round, in its own process, with the order rotated each round."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peers import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 120
PEERS: Final = ("dbos", "huey", "procrastinate")  # variants, and their modules
NOT_INSTALLED: Final = "not installed: ./run bench ledger --peers installs it"
NO_POSTGRES: Final = "PostgreSQL is not installed: apt-get install postgresql"
GRACE_SECONDS: Final = 15  # for a run that took too long: to stop what it started

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a run: the variants, the sizes (finished commands in the file), the number of rounds and their duration."""

    variants: tuple[str, ...]
    sizes: tuple[int, ...]
    rounds: int
    seconds: float
    folder: Path
    peers_python: str

    @property
    def cells(self) -> tuple[tuple[int, str], ...]:
        """Every (size, variant); peers and the bare minimum run without a history."""
        return tuple(
            (size, variant)
            for size in self.sizes
            for variant in self.variants
            if size == 0 or (variant.split()[0] not in PEERS and variant != "bare")
        )


def run_rounds(plan: Plan, files: dict[int, Path], say: Callable[[str], None]) -> list[dict[tuple[int, str], Summary]]:
    """Run everything; `files` has the prepared file of each size that needs one. A failed run is a summary with problems."""
    asked = {variant.split()[0] for variant in plan.variants}
    missing = {peer: why for peer in PEERS if peer in asked and (why := why_missing(plan.peers_python, peer))}
    rounds = []
    for number in range(plan.rounds):
        done = {}
        start = number * 3 % len(plan.cells)  # by three, so that the neighbours change too
        for size, variant in (*plan.cells[start:], *plan.cells[:start]):
            say(f"round {number + 1} of {plan.rounds}: {variant}, {size:,} commands in the file")
            peer = variant.split()[0]
            if peer in missing:
                done[size, variant] = {"problems": [missing[peer]]}
            else:
                done[size, variant] = _run(plan, files.get(size), variant)
        rounds.append(done)
    return rounds


def _run(plan: Plan, grown: Path | None, variant: str) -> Summary:
    with _file(plan, grown) as path:
        kind, _, clients = variant.partition(" c=")
        if kind in PEERS:
            command = [plan.peers_python, "-m", f"bench.peers.with_{kind}", str(path.parent), str(plan.seconds), clients]
        else:
            command = [sys.executable, "-m", "bench.lifecycle.child", variant, str(path), str(plan.seconds)]
        return run_child(command)


def run_child(command: Sequence[str]) -> Summary:
    """Run the process of one variant and return the summary that it prints; that of a failed one says why."""
    try:
        status, out, err = _ended(command)
        summary: Summary = json.loads(out.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"problems": [f"did not end within {SECONDS_MAX} s"]}
    except (ValueError, IndexError):
        last = [line for line in err.splitlines() if line.strip()][-1:]
        return {"problems": [f"failed with status {status}: {' '.join(last)}"]}
    return summary


def _ended(command: Sequence[str]) -> tuple[int, str, str]:
    """Run a command and return its status and its output. One that takes too long is first asked to stop: it may own a server."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=SECONDS_MAX)
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_SECONDS)
            process.kill()
            raise
    return process.returncode, out, err


@contextlib.contextmanager
def _file(plan: Plan, grown: Path | None) -> Iterator[Path]:
    """Yield the file of one run: the prepared one, or else a new one that is deleted afterwards."""
    if grown is not None:
        yield grown
        return
    with tempfile.TemporaryDirectory(dir=plan.folder) as folder:
        yield Path(folder, "ledger.db")


def why_missing(python: str, peer: str) -> str | None:
    """Return why a peer cannot run here, or None."""
    if not _installed(python, peer):
        return NOT_INSTALLED
    return NO_POSTGRES if peer == "procrastinate" and postgres.programs() is None else None


def _installed(python: str, module: str) -> bool:
    probe: Sequence[str] = [python, "-c", f"import {module}"]
    with contextlib.suppress(OSError):
        return subprocess.run(probe, cwd="/", capture_output=True, check=False).returncode == 0
    return False
