"""Failovers under load: the primary of a ledger on PostgreSQL dies or is cut off, and its standby takes over.

    python -m faults.suites.failover                      three failovers, one of each kind that ends a primary
    python -m faults.suites.failover --budget nightly     200 of them, in chunks that --resume keeps

One process goes on through all failovers of a chunk without a restart. Its commands are reserved, executed and settled by the real
ledger, through proxies that can break a connection at a COMMIT. After each failover the former primary comes back on its old
timeline, ready to write, and is then made the standby of the new one. At the end every acknowledged command must be there, executed
once, its message sent once, with an audit that verifies.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faults.cluster.load import CLASS, Clients, outcome_of, wrong
from faults.cluster.servers import KINDS, Servers
from faults.report.reports import Report, finish, keep_as, kept_as, merged
from ledger.audit.events import Audit, Keyring
from ledger.clock import SystemClock
from ledger.database import DatabaseError
from ledger.ledger import Ledger
from ledger.records import Delivered
from ledger.recovery import begin_epoch
from quotebot.app.postgres_storage import PostgresStorage
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.sandbox.cluster import folder_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Database
    from ledger.records import Effect, Operation

SUITE: Final = "failover"
BUDGETS: Final = {"change": 3, "nightly": 200}
ENOUGH: Final = {"change": 30, "nightly": 200}  # acknowledged commands before, between and after the steps of a failover
CHUNK: Final = 20  # failovers of one process
CLIENTS: Final = 8
BEHIND: Final = 2 * CLIENTS  # unsent messages from which on the clients are slower
REST_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 60.0
GAP_SECONDS: Final = 2.0  # until the next acknowledgement after a writable primary exists
BACK_SECONDS: Final = 0.3  # the former primary is there, and its successor's connections are cut


class Load:
    """Clients that reserve commands, and a worker that executes them and sends their messages."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger = ledger
        self.acknowledged: dict[str, str] = {}  # operation key by aggregate
        self.sent: Counter[str] = Counter()  # by aggregate
        self._more = asyncio.Event()  # a client got an acknowledgement
        self._clients = Clients(ledger, f"F-{seed}", CLIENTS, acknowledged=self._note, rest=self._rest)
        self._worker = asyncio.create_task(self._work())

    async def acknowledge(self, count: int) -> float:
        """Wait for further acknowledgements; return the seconds until the first."""
        begun, wanted = time.monotonic(), len(self.acknowledged) + count
        self._more.clear()
        await asyncio.wait_for(self._more.wait(), PATIENCE_SECONDS)
        first = time.monotonic() - begun
        while len(self.acknowledged) < wanted:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), PATIENCE_SECONDS)
        return first

    async def end(self) -> None:
        """Stop the clients, and wait until everything is executed and sent."""
        await self._clients.end()
        await self._worker

    def _note(self, aggregate: str, key: str) -> None:
        self.acknowledged[aggregate] = key
        self._more.set()

    def _rest(self) -> float:
        return REST_SECONDS if len(self.acknowledged) - len(self.sent) > BEHIND else 0.0

    async def _work(self) -> None:
        insist = self._clients.insist
        while True:
            stopping = self._clients.have_ended
            operations = await insist(lambda: self._ledger.claim_operations(64))
            await asyncio.gather(*(self._execute(operation) for operation in operations))
            effects = await insist(lambda: self._ledger.claim_effects({CLASS: 64}))
            await asyncio.gather(*(self._send(effect) for effect in effects))
            if stopping and not operations and not effects:
                return
            await asyncio.sleep(0.01)

    async def _execute(self, operation: Operation) -> None:
        await self._clients.insist(lambda: self._ledger.execute(operation, lambda _: outcome_of(operation)))

    async def _send(self, effect: Effect) -> None:
        self.sent[effect.aggregate_id] += 1
        await self._clients.insist(lambda: self._ledger.settle(effect, Delivered("C01:1.2", {})))


async def run_chunk(seed: int, kinds: Sequence[str], enough: int = ENOUGH["change"]) -> Report:
    """Run failovers of these kinds, in this order, on one process."""
    began = time.monotonic()
    folder = folder_for("failover")
    servers = Servers(folder)
    violations: list[str] = []
    gaps: list[float] = []
    keyring = Keyring.of(b"k" * 32)
    try:
        await asyncio.to_thread(servers.start)
        clock = SystemClock()
        audit = Audit(DOMAIN_EVENTS, keyring)
        database = await PostgresStorage(servers.url, None, folder / "marker").open(audit, clock, bot=True)
        epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1.0")
        load = Load(Ledger(database, clock, audit, epoch=epoch), seed)
        for kind in kinds:
            await load.acknowledge(enough)
            await asyncio.to_thread(servers.fail, kind)
            gaps.append(await load.acknowledge(enough))
            await asyncio.to_thread(servers.bring_back, kind)
            await load.acknowledge(enough)
            await asyncio.sleep(BACK_SECONDS)
            await asyncio.to_thread(servers.swap)
        await load.end()
        violations += await database.read(lambda tx: wrong(tx, load.acknowledged, load.sent, keyring))
        violations += [f"{gap:.2f} s without an acknowledgement" for gap in gaps if gap > GAP_SECONDS]
        unknown = commits_without_answer(database)
        await database.close()
    except (DatabaseError, TimeoutError) as error:
        violations.append(f"the process did not go on: {error}")
        return Report(SUITE, {}, tuple(violations), (), (seed,), time.monotonic() - began)
    finally:
        await asyncio.to_thread(servers.close)
        shutil.rmtree(folder, ignore_errors=True)
    repeat = f"(repeat: python -m faults.suites.failover --seed {seed} --failovers {len(kinds)})"
    return Report(
        SUITE,
        {"failovers": len(kinds), "acknowledged": len(load.acknowledged), "commits without an answer": unknown},
        tuple(f"failover {seed}: {words} {repeat}" for words in violations),
        tuple(sorted({f"a primary was {kind}" for kind in kinds})),
        (seed,),
        time.monotonic() - began,
        {"gap_ms": tuple(1000 * gap for gap in gaps)},
    )


def commits_without_answer(database: Database) -> int:
    """Return the number of COMMITs that had to be resolved."""
    return int(getattr(database, "unknown", 0))


def kinds_of(seed: int, count: int) -> list[str]:
    """Return the kinds of a chunk's failovers: each before any a second time, in an order drawn from the seed."""
    drawn = random.Random(seed)  # noqa: S311 -- repeatable
    return [kind for _ in range(-(-count // len(KINDS))) for kind in drawn.sample(KINDS, len(KINDS))][:count]


def run_budget(seed: int, failovers: int, enough: int, resume: Path | None) -> Report:
    """Run chunks until so many failovers have been run; those whose report is in `resume` are left out."""
    reports = []
    for number, first in enumerate(range(0, failovers, CHUNK)):
        kinds = kinds_of(seed + number, min(CHUNK, failovers - first))
        name = f"{SUITE}-{seed + number}-{len(kinds)}"
        report = kept_as(resume, name) or asyncio.run(run_chunk(seed + number, kinds, enough))
        if resume is not None:
            keep_as(resume, name, report)
        reports.append(report)
    return merged(reports)


def main(argv: Sequence[str]) -> int:
    """Run failovers; returns 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m faults.suites.failover", description="Fail primaries over, under load.")
    parser.add_argument("--budget", choices=tuple(BUDGETS), default="change")
    parser.add_argument("--seed", type=int, default=1, help="of the first chunk")
    parser.add_argument("--failovers", type=int, help="how many, in place of a budget")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="keep each chunk's report there, and leave out what is in it")
    options = parser.parse_args(argv)
    report = run_budget(options.seed, options.failovers or BUDGETS[options.budget], ENOUGH[options.budget], options.resume)
    gaps = sorted(report.samples.get("gap_ms", (0.0,)))
    summary = (
        f"{report.counts.get('failovers', 0):,} failovers in {report.seconds:.0f} s, "
        f"{report.counts.get('acknowledged', 0):,} acknowledged, "
        f"{report.counts.get('commits without an answer', 0):,} COMMITs without an answer; next acknowledgement "
        f"{gaps[len(gaps) // 2]:.0f} ms after a writable primary, {gaps[-1]:.0f} ms at most: {len(report.violations)} violations"
    )
    return finish(report, options.json, [*report.violations, summary])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
