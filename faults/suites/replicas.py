"""Faults of replicas under load: three bots share a ledger on PostgreSQL, and one is killed, stopped, or loses its network.

    python -m faults.suites.replicas                      three faults, one of each kind
    python -m faults.suites.replicas --budget nightly     100 of each, and 13 failovers, in chunks that --resume keeps

Each replica is a process of its own: clients, an executor and the dispatcher on the real ledger. Its host is gone when a proxy
swallows every packet, until the server gives its sessions up. At a failover one replica is killed and one stopped as well. What
the disturbed replica had claimed must run elsewhere, and what it reports too late must be refused. At the end every acknowledged
command must be there, executed once, its message sent once, with an audit that verifies. The long run also judges how long all
this took.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faults.cluster.replicas import KEEPALIVE_SECONDS, PATIENCE_SECONDS, Replicas, Server, StandstillError
from faults.cluster.servers import KINDS as FAILOVERS
from faults.cluster.servers import Servers
from faults.report.reports import Report, finish, keep_as, kept_as, merged
from ledger.database import DatabaseError
from quotebot.sandbox.cluster import ClusterError, folder_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faults.cluster.replicas import Row

SUITE: Final = "replicas"
NAMES: Final = ("a", "b", "c")
KILLED, STOPPED, GONE, FAILOVER = "killed", "stopped", "gone", "failover"
ALONE: Final = (KILLED, STOPPED, GONE)
WORDS: Final = {
    KILLED: "replicas killed",
    STOPPED: "replicas stopped for twice their lease",
    GONE: "hosts of a replica gone",
    FAILOVER: "failovers with one replica killed and one stopped",
}
LEASE_SECONDS: Final = 120  # the real one
SHORT_SECONDS: Final = 4  # for tests; the time-outs of calls are in proportion
ENOUGH: Final = 5  # commands that a replica acknowledges before and after a fault
BRIEF_SECONDS: Final = 1.0  # in place of the time after which a server gives up the sessions of a host that is gone
PAUSE_SECONDS: Final = 1.5
GAP_SECONDS: Final = 2.0
TAKEN_SECONDS: Final = {KILLED: 5.0, GONE: 15.0, STOPPED: 10.0}  # after the fault; of a stopped one after its lease


@dataclass(frozen=True, slots=True)
class Chunk:
    """Faults of one run of the processes. `timed`: also judge how long each takes."""

    seed: int
    kinds: tuple[str, ...]
    lease_seconds: int = SHORT_SECONDS
    timed: bool = True

    @property
    def name(self) -> str:
        """Name of its report."""
        return f"{SUITE}-{self.seed}-{self.lease_seconds}-{len(self.kinds)}"

    @property
    def repeat(self) -> str:
        """Command that runs it again."""
        return f"python -m faults.suites.replicas --seed {self.seed} --lease {self.lease_seconds} --faults {','.join(self.kinds)}"


class Stage:
    """Three replicas at work, and the faults that are done to them."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._replicas: Replicas
        self._random = random.Random(chunk.seed)  # noqa: S311 -- repeatable
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.samples: dict[str, list[float]] = {}

    def start(self, replicas: Replicas) -> None:
        """Start the replicas, all at once."""
        self._replicas = replicas
        for name in NAMES:
            replicas.start(name)
        self._settle(*NAMES)

    def disturb(self, kind: str, server: Server) -> None:
        """Do one of the faults to a replica, and wait until its work runs elsewhere and it works again."""
        replicas, victim = self._replicas, self._random.choice(NAMES)
        others = [name for name in NAMES if name != victim]
        self._await_call(victim)
        pid, epoch = replicas.pid(victim), replicas.epoch(victim)
        began = time.monotonic()
        if kind == GONE:
            server.lose(victim)
        else:
            replicas.send(victim, signal.SIGKILL if kind == KILLED else signal.SIGSTOP)
        held = replicas.held_by(epoch)
        given_up = kind != GONE

        def is_taken() -> bool:
            nonlocal given_up
            if not given_up and time.monotonic() - began >= (KEEPALIVE_SECONDS if self._chunk.timed else BRIEF_SECONDS):
                server.give_up(victim)
                given_up = True
            return all(replicas.elsewhere(row, pid, began) or replicas.is_finished(row) for row in held)

        replicas.wait_until(is_taken, f"nobody took over from the replica {victim}, which was {kind}", self._patience)
        taken = {row: line.at for row in held if (line := replicas.elsewhere(row, pid, began))}
        self.counts["rows taken over"] += len(taken)
        self._note_takeover(kind, max(taken.values(), default=began) - began)
        if kind == KILLED:
            replicas.start(victim)
        elif kind == STOPPED:
            time.sleep(max(0.0, began + 2 * self._chunk.lease_seconds - time.monotonic()))
            replicas.send(victim, signal.SIGCONT)
            self._await_refusals(taken, pid, began)
        else:
            server.find(victim)
        self._settle(victim, may_have_ended=kind == GONE)
        for name in others:
            self._note_pause(name, began)
        self.counts[WORDS[kind]] += 1

    def fail_over(self, kind: str, servers: Servers) -> None:
        """Fail the primary over while one replica is killed and one stopped, and let all come back."""
        replicas = self._replicas
        killed, stopped, third = self._random.sample(NAMES, len(NAMES))
        for victim in (killed, stopped):
            self._await_call(victim)
        began = time.monotonic()
        replicas.send(killed, signal.SIGKILL)
        replicas.send(stopped, signal.SIGSTOP)
        servers.fail(kind)
        writable = time.monotonic()
        replicas.acknowledge(third, ENOUGH)
        self._note_gap(next(replicas.by(third, "acknowledged", since=writable)).at - writable)
        servers.bring_back(kind)
        replicas.start(killed)
        time.sleep(max(0.0, began + 2 * self._chunk.lease_seconds - time.monotonic()))
        replicas.send(stopped, signal.SIGCONT)
        self._settle(*NAMES)
        servers.swap()
        self._settle(*NAMES)
        self.counts[WORDS[FAILOVER]] += 1

    def end(self) -> None:
        """Let all work end, and note what was lost, done twice, or cannot be proved."""
        self.violations += self._replicas.end()
        self.counts["acknowledged"] = sum(1 for _ in self._replicas.journal.of("acknowledged"))

    @property
    def _patience(self) -> float:
        """Seconds that taking over may last before the run ends."""
        return PATIENCE_SECONDS + 2 * self._chunk.lease_seconds

    def _settle(self, *names: str, may_have_ended: bool = False) -> None:
        """Wait until these replicas acknowledge. One that was taken for dead may have ended, and is started again."""
        replicas = self._replicas
        for name in names:
            begun = time.monotonic()

            def works(name: str = name, begun: float = begun) -> bool:
                if may_have_ended:
                    replicas.revive(name)
                return sum(1 for _ in replicas.by(name, "acknowledged", since=begun)) >= ENOUGH

            replicas.wait_until(works, f"the replica {name} does not acknowledge", self._patience)
        self.violations += replicas.ended()

    def _await_call(self, victim: str) -> None:
        """Wait until a call of this replica is under way."""
        begun = time.monotonic()
        self._replicas.wait_until(
            lambda: any(self._replicas.by(victim, "call", since=begun)), f"the replica {victim} calls nothing", self._patience
        )

    def _await_refusals(self, taken: dict[Row, float], pid: int, began: float) -> None:
        """Wait until the results of the calls that were under way are refused, and audited."""
        called = {line.what for line in self._replicas.journal.of("call") if line.pid == pid and line.at < began}
        late = [row for row in taken if row.table == "effects" and str(row.id) in called]
        self._replicas.wait_until(
            lambda: all(self._replicas.refused(row) for row in late), "a late result was not refused", self._patience
        )
        self.counts["late results refused"] += len(late)

    def _note_takeover(self, kind: str, seconds: float) -> None:
        self.samples.setdefault(f"work_of_a_replica_{kind}_taken_over_ms", []).append(1000 * seconds)
        limit = TAKEN_SECONDS[kind] + (self._chunk.lease_seconds if kind == STOPPED else 0)
        if self._chunk.timed and seconds > limit:
            self.violations.append(f"work of a replica {kind} ran elsewhere after {seconds:.1f} s")

    def _note_gap(self, seconds: float) -> None:
        """Note how long nothing was acknowledged after there was a writable primary."""
        self.samples.setdefault("gap_ms", []).append(1000 * seconds)
        if self._chunk.timed and seconds > GAP_SECONDS:
            self.violations.append(f"nothing was acknowledged for {seconds:.1f} s after there was a writable primary")

    def _note_pause(self, name: str, began: float) -> None:
        """Note how long another replica acknowledged nothing meanwhile."""
        times = [began, *(line.at for line in self._replicas.by(name, "acknowledged", since=began)), time.monotonic()]
        seconds = max(later - earlier for earlier, later in pairwise(times))
        self.samples.setdefault("pause_of_another_ms", []).append(1000 * seconds)
        if self._chunk.timed and seconds > PAUSE_SECONDS:
            self.violations.append(f"the replica {name} acknowledged nothing for {seconds:.1f} s")


def run_chunk(chunk: Chunk) -> Report:
    """Run a chunk's faults on three new replicas."""
    began = time.monotonic()
    folder = folder_for(SUITE)
    stage = Stage(chunk)
    try:
        with ExitStack() as stack:
            (_fail_over if FAILOVER in chunk.kinds else _disturb)(stage, chunk, folder, stack)
    except (StandstillError, DatabaseError, ClusterError, TimeoutError) as error:
        stage.violations.append(str(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Report(
        SUITE,
        dict(sorted(stage.counts.items())),
        tuple(f"{words} (repeat: {chunk.repeat})" for words in stage.violations),
        (),
        (chunk.seed,),
        time.monotonic() - began,
        {name: tuple(values) for name, values in stage.samples.items()},
    )


def _disturb(stage: Stage, chunk: Chunk, folder: Path, stack: ExitStack) -> None:
    server = stack.enter_context(Server(folder, NAMES))
    stage.start(stack.enter_context(Replicas(folder, NAMES, server, chunk.lease_seconds)))
    for kind in chunk.kinds:
        stage.disturb(kind, server)
    stage.end()


def _fail_over(stage: Stage, chunk: Chunk, folder: Path, stack: ExitStack) -> None:
    servers = Servers(folder)
    stack.callback(servers.close)
    servers.start()
    stage.start(stack.enter_context(Replicas(folder, NAMES, servers, chunk.lease_seconds)))
    for number in range(len(chunk.kinds)):
        stage.fail_over(FAILOVERS[(chunk.seed + number) % len(FAILOVERS)], servers)
    stage.end()


def chunks_of(budget: str, seed: int) -> list[Chunk]:
    """Return the chunks of a budget. In the long run all but the stopped replicas have the real lease, and of those five."""
    if budget == "change":
        return [Chunk(seed, ALONE, timed=False)]
    seeds = count(seed)
    return [
        *(Chunk(next(seeds), (KILLED, GONE) * 10, LEASE_SECONDS) for _ in range(10)),
        *(Chunk(next(seeds), (STOPPED,) * 19) for _ in range(5)),
        Chunk(next(seeds), (STOPPED,) * 5, LEASE_SECONDS),
        Chunk(next(seeds), (FAILOVER,) * 13),
    ]


def run_budget(chunks: Iterable[Chunk], resume: Path | None) -> Report:
    """Run the chunks; those whose report is in `resume` are left out."""
    reports = []
    for chunk in chunks:
        report = kept_as(resume, chunk.name) or run_chunk(chunk)
        if resume is not None:
            keep_as(resume, chunk.name, report)
        reports.append(report)
    return merged(reports)


def main(argv: Sequence[str]) -> int:
    """Run faults of replicas; returns 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.replicas", description="Disturb replicas, under load.")
    parser.add_argument("--budget", choices=("change", "nightly"), default="change")
    parser.add_argument("--seed", type=int, default=1, help="of the first chunk")
    parser.add_argument("--faults", help=f"one chunk in place of a budget: some of {', '.join(WORDS)}, separated by commas")
    parser.add_argument("--lease", type=int, default=SHORT_SECONDS, help="seconds, of that chunk")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each chunk's report there, and leave out what is in it")
    options = parser.parse_args(argv)
    kinds = tuple((options.faults or "").split(","))
    unknown = [kind for kind in kinds if kind not in WORDS and options.faults]
    if unknown or (FAILOVER in kinds and set(kinds) != {FAILOVER}):
        parser.error(f"--faults takes some of {', '.join(ALONE)}, or {FAILOVER} alone")
    asked = [Chunk(options.seed, kinds, options.lease)] if options.faults else chunks_of(options.budget, options.seed)
    report = run_budget(asked, options.resume)
    times = (f"{name.removesuffix('_ms').replace('_', ' ')}: {max(each):,.0f} ms" for name, each in report.samples.items())
    summary = ", ".join([*(f"{number:,} {name}" for name, number in report.counts.items()), f"{report.seconds:.0f} s"])
    return finish(report, options.json, [*report.violations, *times, f"{summary}: {len(report.violations)} violations"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
