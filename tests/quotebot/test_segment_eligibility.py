"""Tests of segments that a mirrored Salesforce account opens: from the org's field to the approval, through real parts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from adapters.salesforce.mapping import MappingFileError, read_mapping
from quotebot.app.installation import load_rules
from quotebot.commands.payloads import CloneQuote, CreateQuote, ReviseQuote, SubmitQuote, SyncCrm
from quotebot.domain.pricing.engine import LineRequest, PriceRequest
from quotebot.domain.pricing.price_requests import Changes
from quotebot.domain.quotes.quote import ChosenOpportunity
from quotebot.execution.executor import Executor
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.settings import Settings
from quotebot.slack.queries import Reads
from quotebot.slack.verbs import SimulateRequest
from quotebot.store import quotes as store
from quotebot.store.crm_mirror import with_segments
from quotebot.views import forms
from tests.quotebot.access_parts import viewer
from tests.quotebot.crm_parts import Crm, crm_at
from tests.quotebot.parts import MATRIX, RULES, request_for
from tests.rig import bot_in, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.domain.quotes.quote import Quote
    from quotebot.sandbox.world import World
    from tests.quotebot.parts import Bench

SHIPPED = files("adapters.salesforce").joinpath("salesforce.toml").read_text("utf-8")
MAPPED = re.sub(
    r'# (facts = \{ segment = "Type" \})\n#\n# (\[mirror\.accounts\.segments\])(.*)\n# ("Channel.*)',
    r"\1\n\n\2\3\n\4",
    SHIPPED,
)
RESELLER, DIRECT = "Channel Partner / Reseller", "Customer - Direct"
REQUEST = PriceRequest((LineRequest("pro", 10),), 12, Decimal(0), segment="partner")


@pytest.fixture
async def crm(bench: Bench, tmp_path: Path) -> AsyncIterator[Crm]:
    """Serve an org whose accounts say their segment, beside an executor with the rules of such an installation."""
    own = tmp_path / "salesforce.toml"
    own.write_text(MAPPED, "utf-8")
    settings = Settings(_env_file=None, salesforce_mapping=own, crm_mirror=("accounts",), crm_sync_minutes=15, data_dir=tmp_path)
    rules = replace(RULES, account_segments=load_rules(settings).account_segments)
    async with crm_at(bench, tmp_path / "org", mapping=read_mapping(MAPPED)) as crm:
        crm.executor = Executor(bench.ledger, rules, lambda low, _: low, MATRIX, follow=crm.performer.follow_ups)
        yield crm


def account(crm: Crm, name: str, kind: str | None) -> str:
    return crm.service._org.create(SCHEMA["account"], {"Name": name, "Type": kind})


async def sync(crm: Crm) -> None:
    asked: dict[str, Any] = {"quote_id": "crm", "version": 0, "source": "scheduler", "actor_type": "system"}
    await crm.ask(SyncCrm(("accounts",)), "quotebot", **asked)
    await crm.settle()


async def quoted(crm: Crm, customer: str, opportunity: ChosenOpportunity | None = None) -> Quote:
    row = await crm.ask(CreateQuote(customer, REQUEST, "C0DEALS", opportunity), quote_id="new", version=0)
    return await head(crm, json.loads(row["response"])["quote_id"])


async def head(crm: Crm, quote_id: str) -> Quote:
    quote = await crm.bench.ledger.database.read(lambda tx: store.load(tx, quote_id))
    assert quote is not None
    return quote


async def roles(crm: Crm, quote: Quote) -> tuple[str, ...]:
    await crm.ask(SubmitQuote(), quote_id=quote.quote_id, version=quote.version)
    approval = (await head(crm, quote.quote_id)).approval
    assert approval is not None
    return approval.required_roles


async def test_a_mirrored_partner_needs_no_approval_of_the_segment_and_others_do(crm: Crm) -> None:
    account(crm, "Acme", RESELLER)
    account(crm, "Globex", DIRECT)
    account(crm, "Twin", RESELLER)
    account(crm, "Twin", RESELLER)
    await sync(crm)
    partner = await quoted(crm, "Acme")
    assert (partner.pricing.segment_is_open, await roles(crm, partner)) == (True, ())
    assert partner.pricing.request is not None
    assert partner.pricing.request.segment_value == RESELLER
    reads = Reads(crm.bench.ledger, crm.executor._decider._rules)
    asked = SimulateRequest(partner.quote_id, Changes(term_months=24), None)
    same = SimulateRequest(None, None, REQUEST, "Acme")
    for question in (asked, same):
        assert "Needs no approval" in await reads.answer(question, viewer("U0REP", "T0HOME")), question
    assert "segment partner need" in await reads.answer(replace(same, account="Globex"), viewer("U0REP", "T0HOME"))
    for customer in ("Globex", "ACME", "Twin", "Unknown"):
        other = await quoted(crm, customer)
        assert (other.pricing.segment_is_open, await roles(crm, other)) == (False, ("deal_desk",)), customer


async def test_a_price_is_precomputed_with_the_fact_that_the_transaction_reads(crm: Crm) -> None:
    account(crm, "Acme", RESELLER)
    await sync(crm)
    reserved = await crm.bench.ledger.reserve(request_for(CreateQuote("Acme", REQUEST, "C0DEALS"), "r9", quote_id="new", version=0))
    foreseen = await crm.executor._decider.precompute(reserved.operation)
    assert foreseen.request is not None
    assert foreseen.request.segment_value == RESELLER


async def test_the_account_of_a_chosen_opportunity_decides_and_not_the_name(crm: Crm) -> None:
    partner, other = account(crm, "Acme", RESELLER), account(crm, "Globex", DIRECT)
    await sync(crm)
    opportunity = "006000000000001AAA"
    for account_id, is_open in ((partner, True), (partner[:15], True), (other, False), ("001000000000999AAA", False)):
        quote = await quoted(crm, "Acme", ChosenOpportunity(opportunity, account_id))
        assert quote.pricing.segment_is_open is is_open, account_id


async def test_a_value_that_changes_later_is_read_by_a_revision_and_a_clone(crm: Crm) -> None:
    acme = account(crm, "Acme", RESELLER)
    await sync(crm)
    first = await quoted(crm, "Acme")
    crm.service._org.update(SCHEMA["account"], acme, {"Type": DIRECT})
    await sync(crm)
    assert await head(crm, first.quote_id) == first
    revised = await crm.ask(ReviseQuote(Changes(segment="partner")), quote_id=first.quote_id, version=1)
    assert revised["outcome"] == "applied"
    second = await head(crm, first.quote_id)
    assert (second.version, second.pricing.segment_is_open, await roles(crm, second)) == (2, False, ("deal_desk",))
    crm.service._org.update(SCHEMA["account"], acme, {"Type": RESELLER})
    await sync(crm)
    await crm.ask(CloneQuote(first.quote_id, "C0DEALS"), quote_id="new", version=0)
    assert (await head(crm, "Q-2026-0002")).pricing.segment_is_open


async def test_a_stale_copy_or_one_of_another_mapping_opens_nothing(crm: Crm, bench: Bench) -> None:
    account(crm, "Acme", RESELLER)
    rules = crm.executor._decider._rules
    found = rules.account_segments
    assert found is not None

    async def segments(**changes: Any) -> dict[str, str]:
        asked = replace(rules, account_segments=replace(found, **changes))
        now = bench.clock.now_ms()
        return dict((await bench.ledger.database.read(lambda tx: with_segments(tx, asked, "Acme", None, now))).segments)

    assert await segments() == {}  # never read
    await sync(crm)
    assert await segments() == {"partner": RESELLER}
    assert await segments(read_as="another") == await segments(minutes=None) == {}
    bench.clock.advance(3 * 15 * 60_000 + 1)
    assert await segments() == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MAPPED.replace('segment = "Type"', 'segment = "no name"'), "mirror.accounts.facts must hold paths"),
        (MAPPED.replace('= "partner"', "= 1"), "mirror.accounts.segments must hold a segment"),
        (MAPPED.replace('facts = { segment = "Type" }', ""), "mirror.accounts.segments: facts names no field"),
    ],
)
def test_a_mapping_of_segments_that_cannot_be_used_is_refused(text: str, problem: str) -> None:
    assert read_mapping(MAPPED).mirrors["accounts"].segments == {RESELLER: "partner"}
    with pytest.raises(MappingFileError, match=problem.replace(".", r"\.")):
        read_mapping(text)


async def test_a_partner_buys_from_slack_and_the_form_previews_the_same(world: World, tmp_path: Path) -> None:
    own = tmp_path / "salesforce.toml"
    own.write_text(MAPPED, "utf-8")
    org = world.salesforce._org
    org.create(SCHEMA["account"], {"Name": "Acme", "Type": RESELLER})
    settings: dict[str, Any] = {"salesforce_mapping": own, "crm_sync_minutes": 60, "crm_mirror": ("accounts",)}
    settings["crm_account_lookup"] = True
    async with bot_in(world, tmp_path / "bot", **settings) as deal:

        async def whole() -> bool:
            return bool(await deal.rows("SELECT 1 FROM crm_mirror_cursors WHERE whole_at IS NOT NULL"))

        await eventually(whole, "the first reading of the accounts")
        await deal.slash("new")
        form: dict[str, Any] = {"user": "U0REP", "view_id": (await deal.get("state"))["views"][-1]["view"]["id"]}
        await deal.post("action", **form, action_id="product.0", value="pro")
        typed = {"terms": {"terms": "segment partner"}}
        (chosen,) = (await deal.post("suggest", **form, action_id=forms.FOUND, value="acm"))["options"]
        for field, customer, is_open in ((forms.FOUND, chosen["value"], True), (forms.ACCOUNT, "Globex", False)):
            await deal.post("action", **form, action_id=field, value=customer, values=typed)
            shown = str((await deal.get("state"))["views"][-1]["view"]["blocks"])
            assert ("prices of the segment partner need" not in shown) is is_open, shown
            assert "*Total" in shown, shown
        await deal.slash("new for Acme: 10 pro; term 12m; segment partner")
        await deal.settled()
        assert "no approval" in (await deal.card_text()).casefold()
        await deal.slash("explain Q-2026-0001")
        await deal.settled()
        said = str((await deal.get("state"))["messages"])
    assert "is open to the customer: its account in Salesforce is" in said
