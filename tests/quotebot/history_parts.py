"""A ledger with a row in every table that the audit binds, made by commands and by the store."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ledger.audit.anchors import write_anchor
from quotebot.commands.payloads import (
    CancelQuote,
    CreateQuote,
    DecideApproval,
    DelegateApprovals,
    FinalizeQuote,
    MarkSent,
    ReviseQuote,
    SubmitQuote,
)
from quotebot.domain.pricing.price_requests import Changes, PriceRequest
from quotebot.domain.quotes.crm_fields import CrmDifference
from quotebot.domain.quotes.quote import ChosenOpportunity
from quotebot.execution.executor import Executor
from quotebot.jobs.rulesets import RulesetChanges, Who
from quotebot.store import crm
from quotebot.store import quotes as store
from quotebot.store.columns import TABLES
from quotebot.views.document import Seller, document_set
from tests.quotebot.parts import MATRIX, RULES, Bench, bench_at, create_command, request_for
from tests.quotebot.views.quote_examples import GOLDEN

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from ledger.database import Tx
    from quotebot.commands.registry import Payload

QUOTE: Final = "Q-2026-0001"
HOUR: Final = 3_600_000


class Desk:
    """Harness that executes commands one after another."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
        self._asked = 0

    async def ask(self, payload: Payload, quote_id: str = QUOTE, version: int | None = 1, **changes: Any) -> None:
        """Execute a command that must be applied."""
        self._asked += 1
        await self.bench.ledger.reserve(request_for(payload, f"r{self._asked}", quote_id=quote_id, version=version, **changes))
        assert await self._executor.step()
        assert self.bench.row("SELECT outcome FROM operations ORDER BY id DESC LIMIT 1")["outcome"] == "applied"

    async def step(self) -> bool:
        """Execute the next pending command."""
        return bool(await self._executor.step())

    async def decide(self, decision: Any, quote_id: str = QUOTE, version: int = 1) -> None:
        """Give the sales manager's decision about the pending request."""
        (row,) = self.bench.rows("SELECT approval_id FROM approvals WHERE state = 'pending'")
        no = DecideApproval(row["approval_id"], decision, "The price is too low for this account.")
        await self.ask(no, quote_id, version, actor="U0MANAGER")


async def rejected_quote(path: Path) -> None:
    """Make a ledger with a quote that its approver rejected."""
    async with bench_at(path) as bench:
        desk = Desk(bench)
        await desk.ask(create_command(), "new", 0)
        await desk.ask(SubmitQuote())
        await desk.decide("reject")


async def everything(path: Path) -> None:
    """Make a ledger with a row in every bound table."""
    async with bench_at(path) as bench:
        desk = Desk(bench)
        await RulesetChanges(bench.ledger).begin(RULES.ruleset)
        await RulesetChanges(bench.ledger).discard(99, Who("ops", "q1"))
        await desk.ask(create_command(), "new", 0)
        await desk.ask(SubmitQuote())
        await desk.decide("reject")
        await desk.ask(ReviseQuote(changes=Changes(discount_percent=Decimal(5))))
        await desk.ask(SubmitQuote(), version=2)
        await desk.ask(FinalizeQuote(), version=2)
        await desk.ask(MarkSent("buyer@acme.example"), version=2)
        await desk.ask(CancelQuote("The project was stopped."), version=2)
        chosen = ChosenOpportunity("006000000000001", "001000000000001")
        wanted = CreateQuote("Globex", PriceRequest(GOLDEN, 24, Decimal(20)), "C0SALES", chosen)
        await desk.ask(wanted, "new", 0, received_at=bench.clock.now_ms() + HOUR)
        await desk.ask(SubmitQuote(), "Q-2026-0002")
        away = DelegateApprovals("U0MANAGER", "U0CFO", bench.clock.now_ms() + 9 * HOUR)
        await desk.ask(away, "delegation:U0MANAGER", None, actor="U0MANAGER")

        def others(tx: Tx) -> None:
            now = bench.clock.now_ms()
            store.record_artefact(tx, store.Artefact("a" * 64, "b" * 64, QUOTE, 2, 1, now))
            store.pin_documents(tx, QUOTE, 2, document_set(Seller("Seller", ())), now)
            store.pin_contact(tx, QUOTE, 2, "rep@acme.example", "+1 555 0100")
            store.use_token(tx, "t" * 64, QUOTE, now)
            store.replace_root(tx, QUOTE, "1.2", "c" * 64, now)
            crm.keep(tx, CrmDifference(QUOTE, 2, "0Q0", "Quote.Status", "Approved", "Denied"), now)
            hours = '{"days":["mon"],"from":"09:00","holidays":[],"until":"17:00","zone":"UTC"}'
            tx.one("insert_approval_calendar", approval_id=f"{QUOTE.replace('Q-', 'A-')}-v1-1", calendar=hours)
            roles = '{"beside":["legal"],"ladder":["sales_manager","cfo"]}'
            tx.one("insert_approval_roles", approval_id=f"{QUOTE.replace('Q-', 'A-')}-v1-1", roles=roles)
            tx.one("insert_approval_note", approval_id=f"{QUOTE.replace('Q-', 'A-')}-v1-1", note="as agreed")
            tx.one("insert_ruleset_request", request_id="q", fingerprint="d" * 64, answer="{}", requested_by="o", requested_at=now)
            tx.one(
                "insert_generation",
                generation=2,
                now=now,
                backup_made_at=now,
                backup_sha256="e" * 64,
                doubt_until=now,
                started_by="ops",
            )

        await bench.ledger.database.write("others", others)
        await bench.ledger.database.write("rest", a_row_in_every_other_table)
        await write_anchor(bench.ledger, path.parent, bench.clock.now_ms())


def a_row_in_every_other_table(tx: Any) -> None:
    """Insert a row of QUOTE into each bound table that is still empty. A table with narrower checks needs its own row above."""
    connection: sqlite3.Connection = tx._connection
    for name, table in TABLES.items():
        if not table.bound or connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone():  # noqa: S608 -- of the classification
            continue
        kinds = {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({name})")}
        values = {column: QUOTE if column == "quote_id" else 1 if kind == "INTEGER" else "x" for column, kind in kinds.items()}
        connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", list(values.values()))  # noqa: S608 -- as above
