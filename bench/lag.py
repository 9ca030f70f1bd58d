"""Lag of the event loop while Salesforce answers byte by byte and 20 PDFs are rendered.

    ./run bench lag [--json]

A probe asks to be called every 2 ms and records how late it is called, three times in one run: on an idle loop; with the PDFs and
the slow calls in another process, which measures the cost of the machine itself; and with them in this process, through the real
client and the real renderer. Goal: p99 below 10 ms, or on a busy machine at most 2 ms above the cost of the machine itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if __name__ == "__main__":  # beside this script a file named ledger.py stands in for the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from adapters.failures import AdapterError
from adapters.pdf.renderer import PdfRenderer
from adapters.salesforce.api import Salesforce, SalesforceLine, SalesforceQuote
from quotebot.sandbox.salesforce.tls import make_server_context
from tests.adapters.test_pdf import DOCUMENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

PROBE_SECONDS: Final = 0.002
REST_SECONDS: Final = 3.0
PDFS: Final = 20
CALLS: Final = 4  # at once, as in the bot
CALL_SECONDS: Final = 2.0
DRIP_SECONDS: Final = 0.02
GOAL_MS: Final = 10.0
MARGIN_MS: Final = 2.0
TOKEN: Final = b'{"access_token": "00D!token"}'
LINE: Final = SalesforceLine("pro", "Pro", 1, 12, Decimal(1), Decimal(0), Decimal(1), 1)
QUOTE: Final = SalesforceQuote("k", "Q", "Acme", 1, "USD", Decimal(1), "h", "2026-12-31", (LINE,))


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of the probe's calls, in milliseconds."""

    name: str
    calls: int
    p50: float
    p99: float
    worst: float


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a login at once, and every other request one byte at a time without end."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length.group(1)) if length else 0)
            if b"oauth2/token" in head:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(TOKEN) + TOKEN
                )
                continue
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(DRIP_SECONDS)
            return


async def serve(folder: Path) -> None:
    """Serve the slow org until killed; prints its port first."""
    context, _ = make_server_context(folder)
    server = await asyncio.start_server(drip, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def probe(lags: list[float]) -> None:
    """Ask to be called every 2 ms, and record the lag in milliseconds."""
    while True:
        due = time.perf_counter() + PROBE_SECONDS
        await asyncio.sleep(PROBE_SECONDS)
        lags.append((time.perf_counter() - due) * 1000)


async def weather(port: int, folder: Path) -> None:
    """Render the PDFs one after another, while slow calls are cut at their deadline and repeated."""
    client = Salesforce(f"https://127.0.0.1:{port}", "id", "secret", ca_file=str(folder / "ca.pem"), timeout_seconds=CALL_SECONDS)
    renderer = PdfRenderer(timeout_seconds=60)

    async def call() -> None:
        while True:
            with contextlib.suppress(AdapterError):
                await client.create_quote(QUOTE, correlation_id="lag")

    calls = [asyncio.create_task(call()) for _ in range(CALLS)]
    try:
        for number in range(PDFS):
            await renderer.render(replace(DOCUMENT, quote_id=f"Q-2026-{number:04}"))
    finally:
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await client.close()
        await renderer.close()


async def measured(name: str, work: Any) -> Lag:
    """Probe the loop while `work` runs."""
    lags: list[float] = []
    probing = asyncio.create_task(probe(lags))
    await work
    probing.cancel()
    lags.sort()
    return Lag(name, len(lags), lags[len(lags) // 2], lags[int(len(lags) * 0.99)], lags[-1])


@contextlib.asynccontextmanager
async def child(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run this script again as its own process, and end it with the block."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def run(folder: Path) -> tuple[Lag, Lag, Lag]:
    """Measure all three cases."""
    async with child("--serve", str(folder)) as org:
        assert org.stdout is not None  # noqa: S101 -- it was asked for
        port = int(await org.stdout.readline())
        idle = await measured("nothing to do", asyncio.sleep(REST_SECONDS))
        async with child("--weather", str(port), str(folder)) as other:
            machine = await measured("the same in another process", other.wait())
        return idle, machine, await measured("20 PDFs, 4 dripping calls", weather(port, folder))


def verdict(machine: Lag, ours: Lag) -> str:
    """Return the verdict on the goal."""
    if ours.p99 < GOAL_MS:
        return f"met: p99 {ours.p99:.2f} ms < {GOAL_MS:g} ms"
    if ours.p99 < machine.p99 + MARGIN_MS:
        return f"met but for the machine, which is busy: p99 {ours.p99:.2f} ms, of which {machine.p99:.2f} ms are not ours"
    return f"missed: p99 {ours.p99:.2f} ms, goal {GOAL_MS:g} ms; another process costs {machine.p99:.2f} ms here"


def goal(machine: Lag, ours: Lag) -> dict[str, Any]:
    """Return the goal and its result in the form of the table of all benchmarks."""
    said = verdict(machine, ours)
    short = "missed" if said.startswith("missed") else "ok" if ours.p99 < GOAL_MS else "too noisy, no verdict"
    words = f"beside PDFs and slow calls the loop is less than {GOAL_MS:g} ms late, p99"
    return {"goal": words, "found": ours.p99, "unit": " ms", "verdict": short}


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns 0 if the goal is met."""
    if arguments[:1] == ["--serve"]:
        asyncio.run(serve(Path(arguments[1])))
        return 0
    if arguments[:1] == ["--weather"]:
        asyncio.run(weather(int(arguments[1]), Path(arguments[2])))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        lags = asyncio.run(run(Path(folder)))
    said = verdict(*lags[1:])
    if "--json" in arguments:
        rows = [{name: getattr(lag, name) for name in Lag.__slots__} for lag in lags]
        print(json.dumps({"lags_ms": rows, "verdict": said, "goals": [goal(*lags[1:])]}))
    else:
        print(f"{'how late the loop is, ms':32}{'calls':>8}{'p50':>8}{'p99':>8}{'worst':>8}")
        for lag in lags:
            print(f"{lag.name:32}{lag.calls:>8}{lag.p50:>8.2f}{lag.p99:>8.2f}{lag.worst:>8.2f}")
        print(said)
    return 0 if said.startswith("met") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
