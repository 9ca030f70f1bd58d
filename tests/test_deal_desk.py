"""End-to-end test of a deal desk: own catalogue and policy by files, and the same quote from form, typed text and terminal."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pypdf

from quotebot.app.workers import Ports
from quotebot.sandbox.world import World
from quotebot.views import builder_details
from tests.quotebot.cli.conftest import begun_ledger, command, quotebot
from tests.rig import FIRST_QUOTE, Deal, bot_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

__all__ = ["command", "quotebot"]  # fixtures

CATALOGUE: Final = """
schema: 1
name: acme
version: "1"
currency: USD
products:
  - {sku: seat, name: Seat, family: saas, unit: seat, billing: recurring, cost: 2}
  - {sku: care, name: Care, family: services, unit: month, billing: recurring, cost: 50}
  - {sku: care-plus, name: Care Plus, family: services, unit: month, billing: recurring, cost: 80}
  - sku: storage
    name: Storage
    family: saas
    kind: configurable
    unit: unit
    billing: recurring
    cost: "0.5"
    attributes: [{name: gb, choices: ["10", "100"], default: "10"}, {name: region, choices: [us, eu], default: us}]
  - {sku: setup, name: Setup, family: services, unit: once, billing: one_time, cost: 500}
  - sku: starter
    name: Starter Kit
    family: saas
    kind: bundle
    components: [{sku: seat, quantity: 10}]
    choices: [{name: care, of: [care, care-plus], default: care}]
    bundle_discount_percent: 5
price_books:
  - name: list
    currency: USD
    prices:
      - {sku: seat, price: 10}
      - {sku: care, price: 200}
      - {sku: care-plus, price: 300}
      - {sku: storage, kind: formula, formula: "base + gb * 0.02", inputs: {base: 2}}
      - {sku: setup, price: 1500}
  - name: partners
    currency: USD
    segment: partner
    priority: 10
    prices: [{sku: seat, price: 8}]
"""
POLICY: Final = """
name: acme
version: "1"
currency: USD
discount: {blocked_over: 40, over: [{percent: 20, role: sales_manager}]}
total: {over: [{amount: 100000, role: deal_desk}]}
margin: {"*": {under: 20, role: cfo}}
term: {over: [{months: 12, role: sales_manager}]}
segment: {partner: nobody}
terms: {legal: [liability_cap], other: [net_60]}
routing: {full_ladder: false, order: parallel, remind_hours: 2, escalate_hours: 4, expire_hours: 72}
"""
LINES: Final = "2 starter (care=care-plus), 100 storage (gb=100, region=eu) -5%, 1 setup -10%"
TERMS: Final = "term 24m; discount 4%; currency USD; segment partner; billing annual"
TYPED: Final = f"{LINES}; {TERMS}; start 2027-02-01; payment net 45; po 4711; language de"
SOLD_BEFORE: Final = {"Deep": "5 seat; term 12m; discount 15%", "Plain": "5 seat; term 12m", "Long": "5 seat; term 24m"}
AS_REP: Final = ("--channel", "C0DEALS", "--as", "U0REP", "--team", "T0QUOTE")
SNAPSHOTS: Final = "SELECT pricing FROM quote_versions WHERE substr(quote_id, -4) > '0003' ORDER BY quote_id"


def told(run: Run, *arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.returncode == 0, (done.stdout, done.stderr)
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def installed(run: Run, folder: Path) -> None:
    """Bring catalogue and policy into force by files, as docs/approvals.md and docs/catalogue.md describe."""
    begun_ledger(folder / "bot")
    (folder / "catalogue.yaml").write_text(CATALOGUE)
    (folder / "policy.yaml").write_text(POLICY)
    told(run, "catalog", "import", "catalogue.yaml", "--activate")
    for customer, text in SOLD_BEFORE.items():
        told(run, "quote", "new", f"for {customer}: {text}", *AS_REP)
    version = told(run, "approval-policy", "import", "policy.yaml", "--note", "our own")["version"]
    preview = told(run, "approval-policy", "preview", str(version))
    assert (preview["quotes"], preview["before"], preview["after"]) == (3, *[{"sales_manager": 1, "nobody": 2}] * 2)
    assert [{name: quote[name] for name in ("account", "total", "before", "after", "reasons")} for quote in preview["changed"]] == [
        {"account": "Deep", "total": "$510.00", "before": "sales_manager", "after": "nobody", "reasons": []},
        {
            "account": "Long",
            "total": "$1,200.00",
            "before": "nobody",
            "after": "sales_manager",
            "reasons": ["term 24 months (limit 12)"],
        },
    ]
    told(run, "catalog", "activate", str(version))
    preview = told(run, "quote", "preview", f"{LINES}; {TERMS}")
    assert preview["required_roles"] == ["sales_manager"]
    bundled = [(line["sku"], line["bundle"], line["choice"]) for line in preview["lines"] if "bundle" in line]
    assert bundled == [("seat", "starter", None), ("care-plus", "starter", "care")]
    assert "Care Plus (care-plus), care of Starter Kit" in run("quote", "price", LINES).stdout


async def by_form(deal: Deal) -> None:
    """Build the quote from products, fields and menus; nothing is typed that has a field."""
    await deal.slash("new")
    ((view_id,),) = [(each["view"]["id"],) for each in (await deal.get("state"))["views"]]
    person: dict[str, Any] = {"user": "U0REP", "view_id": view_id}
    for number, sku in enumerate(("starter", "storage", "setup")):
        await deal.post("action", **person, action_id=f"product.{number}", value=sku)
    for group in (builder_details.TERMS, builder_details.PARTIES):
        await deal.post("action", **person, action_id=group)
    fields = {
        "account": "Globex",
        "row.0.quantity": "2",
        "row.0.=care": "=care-plus",
        "row.1.quantity": "100",
        "row.1.discount": "5",
        "row.1.=gb": "=100",
        "row.1.=region": "=eu",
        "row.2.discount": "10",
        "term": "24m",
        "discount": "4",
        "billing": "annual",
        "segment": "=partner",
        "deal.payment_days": "45",
        "deal.start_date": "2027-02-01",
        "deal.po_number": "4711",
        "deal.language": "de",
    }
    sent = await deal.post("submit", **person, values={name: {name: value} for name, value in fields.items()})
    assert sent["ack"] == {}


async def test_form_text_and_terminal_sell_the_same_configured_bundle(command: Run, quotebot: Run, tmp_path: Path) -> None:
    await asyncio.to_thread(installed, command, tmp_path)
    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(world, tmp_path / "bot", Ports(draw=lambda low, _: low)) as deal,
    ):
        await deal.slash(f"new for Acme: {TYPED}")
        await deal.settled()
        await asyncio.to_thread(told, quotebot, "quote", "new", f"for Bolt Ltd: {TYPED}", *AS_REP)
        await by_form(deal)
        await deal.settled()
        prices = [json.loads(row["pricing"]) for row in await deal.rows(SNAPSHOTS)]
        assert [price["request"].pop("segment_account") for price in prices] == ["Acme", "Bolt Ltd", "Globex"]
        assert prices[0] == prices[1] == prices[2]
        # 20 seats at 8 and 2 Care Plus at 300, less 5% of the bundle; 100 * 4 less 5%; 1500 less 10%; 24 months; all less 4%
        assert [line["net_amount"] for line in prices[0]["lines"]] == ["3502.08", "13132.80", "8755.20", "1296.00"]
        assert prices[0]["net_total"] == "26686.08"

        await deal.complete(deal.slash(f"submit {FIRST_QUOTE[:-1]}6"))
        (asked,) = [each for each in (await deal.get("state"))["messages"] if each["channel"] == "D0MANAGER" and each["blocks"]]
        await deal.complete(
            deal.post("action", user="U0MANAGER", channel="D0MANAGER", message_ts=asked["ts"], action_id="approval.approve")
        )
        await deal.settled()
        (document,) = (tmp_path / "bot").rglob("*.pdf")
        pages = "\n".join(page.extract_text() for page in pypdf.PdfReader(document).pages)
        for said in ("Angebot", "Globex", "1. Februar 2027", "4711", "26.686,08", "care: Care Plus"):
            assert said in pages, (said, pages)
        (record,) = await deal.crm()
        assert Decimal(str(record["GrandTotal"])) == Decimal("26686.08")
