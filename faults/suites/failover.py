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
import contextlib
import random
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlsplit

from faults.cluster.proxy import CommitFault, Proxy
from faults.report.reports import Report, finish, keep_as, kept_as, merged
from ledger.audit.events import Audit, Keyring
from ledger.audit.verification import verify_within
from ledger.clock import SystemClock
from ledger.database import DatabaseError, NotRecorded, OutcomeUnknown
from ledger.ledger import Ledger
from ledger.records import Delivered, EffectIntent, Outcome, Request
from ledger.recovery import begin_epoch
from quotebot.app.postgres_storage import PostgresStorage
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.sandbox.cluster import Cluster, folder_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledger.database import Database, Tx
    from ledger.records import Effect, Operation

T = TypeVar("T")
SUITE: Final = "failover"
KINDS: Final = ("killed", "cut before COMMIT", "cut at COMMIT", "cut after COMMIT", "swallowed")
BUDGETS: Final = {"change": 3, "nightly": 200}
ENOUGH: Final = {"change": 30, "nightly": 200}  # acknowledged commands before, between and after the steps of a failover
CHUNK: Final = 20  # failovers of one process
CLIENTS: Final = 8
BEHIND: Final = 2 * CLIENTS  # unsent messages from which on the clients are slower
REST_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 60.0
GAP_SECONDS: Final = 2.0  # until the next acknowledgement after a writable primary exists
BACK_SECONDS: Final = 0.3  # the former primary is there, and its successor's connections are cut
EVENTS_MAX: Final = 1 << 40
ONCE: Final = ("operation.reserved", "operation.applied", "effect.delivered")
CLASS: Final = "slack.post"
_CUTS: Final = {
    "cut before COMMIT": CommitFault.LOST,
    "cut at COMMIT": CommitFault.SENT,
    "cut after COMMIT": CommitFault.UNANSWERED,
}
_REPLICATION: Final = {"wal_level": "replica", "max_wal_senders": "4"}


class Servers:
    """A primary, whose COMMITs wait for its standby, and the standby. `url` leads to both, through a proxy each."""

    def __init__(self, folder: Path) -> None:
        self.primary, self.standby = (Cluster(folder / name, quick=True, settings=_REPLICATION) for name in ("a", "b"))
        self._proxies: dict[Cluster, Proxy] = {}
        self._open = contextlib.ExitStack()

    def start(self) -> None:
        """Start both."""
        for server in (self.primary, self.standby):
            self._open.callback(server.remove)
        self.primary.start()
        self.standby.follow(self.primary)
        self.primary.wait_for_standbys("ANY 1 (*)")
        for server in (self.primary, self.standby):
            self._proxies[server] = self._open.enter_context(Proxy(server.url()))

    def close(self) -> None:
        """Stop both and delete their files."""
        self._open.close()

    @property
    def url(self) -> str:
        """Address of the database on both servers."""
        addresses = [urlsplit(self._proxies[server].url) for server in (self.primary, self.standby)]
        hosts, ports = (
            quote(",".join(map(str, each)), safe="") for each in zip(*((a.hostname, a.port) for a in addresses), strict=True)
        )
        return (
            f"postgresql://{addresses[0].username}@{addresses[0].path}?host={hosts}&port={ports}&sslmode=disable&gssencmode=disable"
        )

    def fail(self, kind: str) -> None:
        """End the primary in one of the ways, and promote its standby. Returns when the standby takes writes."""
        proxy = self._proxies[self.primary]
        if kind == "swallowed":
            proxy.swallow()
        else:
            if kind in _CUTS:
                proxy.at_next_commit(_CUTS[kind])
                proxy.wait_until_struck()
            self.primary.kill()
        self.standby.promote()

    def bring_back(self, kind: str) -> None:
        """Let the former primary come back, ready to write, and break the connections to the new one."""
        if kind == "swallowed":
            self._proxies[self.primary].come_back()
        else:
            self.primary.start()
        self.primary.wait_for_standbys("")
        self._proxies[self.standby].cut()

    def swap(self) -> None:
        """Make the former primary the standby of the new one."""
        self.primary.kill()
        shutil.rmtree(self.primary.data)
        self.primary.follow(self.standby)
        self.primary, self.standby = self.standby, self.primary
        self.primary.wait_for_standbys("ANY 1 (*)")


@dataclass
class Traffic:
    """Acknowledgements of the clients, and messages that the worker sent."""

    acknowledged: dict[str, str] = field(default_factory=dict)  # operation key by aggregate
    sent: Counter[str] = field(default_factory=Counter)  # by effect key
    unknown: int = 0  # results that a caller got as unknown, and asked for again


class Load:
    """Clients that reserve commands one after another, and a worker that executes them and sends their messages."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger = ledger
        self._seed = seed
        self.traffic = Traffic()
        self._stop = False
        self._more = asyncio.Event()  # a client got an acknowledgement
        self._clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
        self._worker = asyncio.create_task(self._work())

    async def acknowledge(self, count: int) -> float:
        """Wait for further acknowledgements; return the seconds until the first."""
        begun, wanted = time.monotonic(), len(self.traffic.acknowledged) + count
        self._more.clear()
        await asyncio.wait_for(self._more.wait(), PATIENCE_SECONDS)
        first = time.monotonic() - begun
        while len(self.traffic.acknowledged) < wanted:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), PATIENCE_SECONDS)
        return first

    async def end(self) -> None:
        """Stop the clients, and wait until everything is executed and sent."""
        self._stop = True
        await asyncio.gather(*self._clients, self._worker)

    async def _client(self, client: int) -> None:
        number = 0
        while not self._stop:
            number += 1
            aggregate = f"F-{self._seed}-{client}-{number}"
            request = Request(
                source="slack_slash",
                source_request_id=f"T01:{aggregate}",
                action_kind="quote.submit",
                aggregate_id=aggregate,
                aggregate_version=1,
                payload={"schema": 1},
                fingerprint=aggregate,
                actor="U0REP",
                actor_type="user",
                team_id="T01",
                received_at=self._ledger.clock.now_ms(),
            )
            reserved = await self._insist(lambda request=request: self._ledger.reserve(request))  # type: ignore[misc] # bound
            self.traffic.acknowledged[aggregate] = reserved.operation.operation_key
            self._more.set()
            if len(self.traffic.acknowledged) - len(self.traffic.sent) > BEHIND:
                await asyncio.sleep(REST_SECONDS)

    async def _work(self) -> None:
        while True:
            stopping = self._stop and all(client.done() for client in self._clients)
            operations = await self._insist(lambda: self._ledger.claim_operations(64))
            await asyncio.gather(*(self._execute(operation) for operation in operations))
            effects = await self._insist(lambda: self._ledger.claim_effects({CLASS: 64}))
            await asyncio.gather(*(self._send(effect) for effect in effects))
            if stopping and not operations and not effects:
                return
            await asyncio.sleep(0.01)

    async def _execute(self, operation: Operation) -> None:
        message = EffectIntent(CLASS, "append", operation.aggregate_id, operation.aggregate_id, {"text": "hello"})
        await self._insist(lambda: self._ledger.execute(operation, lambda _: Outcome("applied", {"code": "ok"}, (message,))))

    async def _send(self, effect: Effect) -> None:
        self.traffic.sent[effect.effect_key] += 1
        await self._insist(lambda: self._ledger.settle(effect, Delivered("C01:1.2", {})))

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except OutcomeUnknown:
                self.traffic.unknown += 1
            except NotRecorded:
                await asyncio.sleep(0.05)


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
        violations += await database.read(lambda tx: wrong(tx, load.traffic, keyring))
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
        {"failovers": len(kinds), "acknowledged": len(load.traffic.acknowledged), "commits without an answer": unknown},
        tuple(f"failover {seed}: {words} {repeat}" for words in violations),
        tuple(sorted({f"a primary was {kind}" for kind in kinds})),
        (seed,),
        time.monotonic() - began,
        {"gap_ms": tuple(1000 * gap for gap in gaps)},
    )


def commits_without_answer(database: Database) -> int:
    """Return the number of COMMITs that had to be resolved."""
    return int(getattr(database, "unknown", 0))


def wrong(tx: Tx, traffic: Traffic, keyring: Keyring) -> list[str]:
    """Return what the ledger lost, did twice or cannot prove."""
    found = []
    for aggregate, key in traffic.acknowledged.items():
        row = tx.one("operation_by_key", operation_key=key)
        if row is None:
            found.append(f"the acknowledged command of {aggregate} is lost")
            continue
        events = Counter(event["event_type"] for event in tx.all("audit_chain", aggregate_id=aggregate, limit=100))
        found += [f"{aggregate} has {events[kind]} events {kind}" for kind in ONCE if events[kind] != 1]
    found += [f"{key} was sent {times} times" for key, times in traffic.sent.items() if times != 1]
    if len(traffic.sent) != len(traffic.acknowledged):
        found.append(f"{len(traffic.sent)} messages were sent for {len(traffic.acknowledged)} commands")
    report = verify_within(tx, keyring, events_max=EVENTS_MAX)
    if report is None or report.finding is not None:
        found.append(f"the audit does not verify: {None if report is None else report.finding}")
    return found


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
