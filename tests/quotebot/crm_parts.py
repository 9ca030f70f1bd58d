"""Shared parts: a ledger, the real executor, dispatcher and Salesforce client on a served org. Slack and PDFs stay pending."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from adapters.artefacts import Artefacts
from adapters.policies import POLICIES, Matrix
from adapters.salesforce.api import Salesforce
from adapters.salesforce.mapping import CrmMapping, default_mapping
from ledger.records import Delivered
from quotebot.commands.payloads import DecideApproval, SubmitQuote
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.registry import HANDLERS
from quotebot.dispatch.services import Adapters, EffectHandlers
from quotebot.execution.executor import Executor
from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import Witness
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.views.document import Seller
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.commands.registry import Payload
    from tests.quotebot.parts import Bench
    from tests.rig import Deal

QUOTE = "Q-2026-0001"
OPERATORS = ("U0OPS", "U0OPERATOR")
PDF = b"%PDF-1.7 of the quote"
APPROVE = DecideApproval("A-2026-0001-v1-1", "approve")


class Crm:
    """Harness for one quote. `step` executes the due Salesforce effects only."""

    service: SalesforceService
    weather: ArmedFaults
    witness: Witness

    def __init__(self, bench: Bench, client: Salesforce, *, highest: bool = False) -> None:
        """`highest`: every delay is the longest possible."""
        self.bench, self.client = bench, client
        self.artefacts = Artefacts(bench.path.parent / "artefacts")
        nobody = cast("Any", None)
        adapters = Adapters(slack=nobody, pdf=nobody, artefacts=self.artefacts, salesforce=client)
        rules = replace(RULES, operators=OPERATORS)
        self.performer = EffectHandlers(bench.ledger, adapters, rules, Seller("Us", ()), handlers=HANDLERS, settle_delay_seconds=1)
        self.executor = Executor(bench.ledger, rules, lambda low, _: low, MATRIX, follow=self.performer.follow_ups)
        lines = Matrix({name: line for name, line in POLICIES.items() if name.startswith(("crm.", "default"))})
        self.dispatcher = Dispatcher(
            bench.ledger, self.performer, lambda low, high: high if highest else low, lines, settle_delay_seconds=1
        )
        self._asked = 0

    async def ask(self, payload: Payload, actor: str = "U0REP", **changes: Any) -> dict[str, Any]:
        """Reserve and execute one command; return its operation's row."""
        self._asked += 1
        target = {"quote_id": QUOTE, "version": None} if self._asked > 1 else {}
        values = {"source": "slack_slash", "received_at": self.bench.clock.now_ms(), **target, **changes}
        operation = (await self.bench.ledger.reserve(request_for(payload, f"r{self._asked}", actor=actor, **values))).operation
        while await self.executor.step():
            pass
        return self.bench.row("SELECT * FROM operations WHERE id = ?", operation.id)

    async def approved(self) -> None:
        """Bring the golden quote to its approval."""
        await self.ask(create_command())
        await self.ask(SubmitQuote())
        assert (await self.ask(APPROVE, "U0MANAGER"))["outcome"] == "applied"

    async def rendered(self) -> str:
        """Record the PDF as rendered, without a renderer; return its checksum."""
        sha256 = self.artefacts.put(PDF)
        (effect,) = await self.bench.ledger.claim_effects({"pdf.render": 1})
        done = Delivered(sha256, {"sha256": sha256, "pages": 1, "render_key": "k" * 64})
        await self.bench.ledger.settle(effect, done, self.performer.follow_ups)
        return sha256

    async def step(self) -> int:
        """Execute the effects that are due now."""
        started = await self.dispatcher.step()
        await self.dispatcher.drain(10)
        return started

    async def settle(self) -> None:
        """Advance the clock and execute effects until none is pending."""
        while True:
            while await self.step():
                pass
            due = await self.bench.ledger.next_effect_due_at(("crm.create", "crm.update", "crm.read"))
            if due is None:
                return
            self.bench.clock.ms = max(due, self.bench.clock.ms)

    def effect(self, effect_class: str, what: str | None = None) -> dict[str, Any]:
        """Return the newest effect of a class."""
        rows = self.bench.rows("SELECT * FROM effects WHERE class = ? ORDER BY id DESC", effect_class)
        return next(row for row in rows if what is None or f'"what":"{what}"' in row["payload"])

    def record(self) -> dict[str, Any]:
        """Return the only Quote in the org."""
        (found,) = self.service.records("Quote")
        return found

    def changed_by_hand(self, **values: object) -> None:
        """Change the only Quote in the org, as a person in Salesforce does."""
        self.service._org.update(SCHEMA["quote"], self.record()["Id"], values)

    def requests(self, verb_of: str) -> list[str]:
        """Return the outcomes of the org's requests of a method."""
        return [f"{seen.status}" for seen in self.witness.since() if seen.method == verb_of]


@asynccontextmanager
async def crm_at(
    bench: Bench, folder: Path, *, owner: str = "merge", mapping: CrmMapping | None = None, **changes: Any
) -> AsyncIterator[Crm]:
    """Serve an org and connect to it; `owner` owns the status, unless a whole mapping is given."""
    witness, weather = Witness(), ArmedFaults()
    service = SalesforceService(witness, weather, folder)
    await service.start()
    environment = service.environment()
    client = Salesforce(
        environment["SALESFORCE_INSTANCE_URL"],
        environment["SALESFORCE_CLIENT_ID"],
        environment["SALESFORCE_CLIENT_SECRET"],
        mapping=mapping or owned_by(owner),
        ca_file=environment["SALESFORCE_CA_FILE"],
        **{"timeout_seconds": 5.0, **changes},
    )
    try:
        crm = Crm(bench, client)
        crm.service, crm.weather, crm.witness = service, weather, witness
        yield crm
    finally:
        await client.close()
        await service.stop()


def owned_by(owner: str) -> CrmMapping:
    """Return the mapping with another owner of the status."""
    mapping = default_mapping()
    return replace(mapping, status=replace(mapping.status, owner=cast("Any", owner)))


async def recorded(deal: Deal, record_id: str, quote_id: str) -> None:
    """Make a record in Salesforce known as that of a quote."""

    def write() -> None:
        with contextlib.closing(sqlite3.connect(deal.data_dir / "ledger.db", timeout=20)) as connection, connection:
            connection.execute("INSERT INTO crm_records (record_id, quote_id) VALUES (?, ?)", (record_id, quote_id))

    await asyncio.to_thread(write)
