"""Tests of a chosen opportunity's amount: that of the newest version in Salesforce, also after late results."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from adapters.salesforce.mapping import default_mapping, read_mapping
from quotebot.app.installation import dead_letters
from quotebot.commands.payloads import (
    CreateAnother,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    ReconcileCrm,
    ReviseQuote,
    SubmitQuote,
    SyncCrm,
)
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.price_requests import Changes
from quotebot.domain.quotes.quote import ChosenOpportunity
from quotebot.sandbox.salesforce.schema import SCHEMA
from tests.adapters.test_salesforce_opportunity import MAPPING as WITH_OWN
from tests.adapters.test_salesforce_opportunity import SHIPPED
from tests.quotebot.crm_parts import APPROVE, QUOTE, Crm, crm_at
from tests.quotebot.parts import create_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from adapters.salesforce.mapping import CrmMapping
    from tests.quotebot.parts import Bench

CHEAPER = ReviseQuote(Changes(discount_percent=Decimal(8)))


class Deal:
    """A quote for an opportunity that a person made in the org."""

    def __init__(self, crm: Crm) -> None:
        self.crm = crm
        org = crm.service._org
        account = org.create(SCHEMA["account"], {"Name": "Acme"})
        fields = {"Name": "Renewal", "AccountId": account, "StageName": "Prospecting", "CloseDate": "2027-01-31"}
        self.id = org.create(SCHEMA["opportunity"], fields)
        self.command = replace(create_command(), opportunity=ChosenOpportunity(self.id, account))

    async def approved(self) -> None:
        await self.crm.ask(self.command)
        await self.crm.ask(SubmitQuote())
        assert (await self.crm.ask(APPROVE, "U0MANAGER"))["outcome"] == "applied"

    @property
    def amount(self) -> Any:
        (found,) = self.crm.service.records("Opportunity")
        return found["Amount"]

    def field(self, name: str) -> Any:
        (found,) = self.crm.service.records("Opportunity")
        return found[name]

    def changed(self, **values: object) -> None:
        self.crm.service._org.update(SCHEMA["opportunity"], self.id, values)

    def totals(self) -> list[Any]:
        """Return the totals of the records, oldest version first; every record belongs to the opportunity."""
        records = sorted(self.crm.service.records("Quote"), key=lambda record: str(record["Name"]))
        assert {record["OpportunityId"] for record in records} == {self.id}
        return [record["Quotebot_Total__c"] for record in records]

    def writes(self) -> int:
        seen = [each for each in self.crm.witness.since() if "sobjects/Opportunity" in (each.method or "")]
        return len(seen)


@asynccontextmanager
async def deal_at(bench: Bench, folder: Path, **changes: Any) -> AsyncIterator[Deal]:
    async with crm_at(bench, folder, **changes) as crm:
        yield Deal(crm)


async def test_it_follows_each_version_whose_record_is_made(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.approved()
        await deal.crm.settle()
        assert [deal.amount] == deal.totals()
        await deal.crm.ask(CHEAPER)
        await deal.crm.settle()
        first, second = deal.amount, None
        assert [first] == deal.totals()  # an unapproved version changes nothing
        await deal.crm.ask(SubmitQuote())
        await deal.crm.settle()
        first, second = deal.totals()
        assert first != second == deal.amount
    assert bench.row("SELECT count(*) AS n FROM quote_opportunities")["n"] == 1
    created = bench.row("SELECT after FROM audit_events WHERE event_type = 'quote.created'")["after"]
    assert deal.id in created


async def test_an_amount_that_comes_late_is_the_newest_versions(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.approved()
        await deal.crm.step()  # the record; its amount is pending
        deal.crm.weather.arm("salesforce", "5xx", method="sobjects/Opportunity", times=7)
        await deal.crm.settle()
        (letter,) = bench.rows("SELECT id, last_error FROM effects WHERE state = 'failed'")
        assert deal.amount is None
        await deal.crm.ask(CHEAPER)
        await deal.crm.ask(SubmitQuote())
        await deal.crm.settle()
        after = deal.amount
        await dead_letters(bench.ledger).replay(str(letter["id"]), actor="ops", reason=None, follow=deal.crm.performer.follow_ups)
        await deal.crm.settle()
        assert deal.totals()[1] == after == deal.amount
    assert bench.row("SELECT state FROM effects WHERE id = ?", letter["id"])["state"] == "superseded"
    (told,) = bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%in Salesforce%failed%'")
    assert "The opportunity's amount in Salesforce" in told["payload"]


async def test_one_that_was_closed_keeps_its_amount(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.approved()
        await deal.crm.settle()
        before = deal.amount
        deal.changed(StageName="Closed Won", Amount=Decimal(7))
        await deal.crm.ask(FinalizeQuote())
        await deal.crm.settle()
        assert (deal.amount, before != 7) == (Decimal(7), True)
        assert deal.crm.effect("crm.update", "amount")["state"] == "delivered"


async def test_finalizing_writes_it_again_over_what_was_changed_by_hand(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.approved()
        await deal.crm.settle()
        deal.changed(Amount=Decimal(7))
        await deal.crm.ask(FinalizeQuote())
        await deal.crm.settle()
        assert [deal.amount] == deal.totals()


async def test_our_own_opportunity_gets_it_at_finalizing_too(bench: Bench, tmp_path: Path) -> None:
    async with crm_at(bench, tmp_path, mapping=WITH_OWN) as crm:
        await crm.approved()
        await crm.settle()
        (made,) = crm.service.records("Opportunity")
        crm.service._org.update(SCHEMA["opportunity"], str(made["Id"]), {"Amount": Decimal(7)})
        await crm.ask(FinalizeQuote())
        await crm.settle()
        (after,) = crm.service.records("Opportunity")
    assert after["Amount"] == made["Amount"] != 7


async def test_one_that_was_deleted_is_a_dead_letter_with_words_and_the_record_stays(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.approved()
        await deal.crm.step()
        deal.crm.service._org.delete(SCHEMA["opportunity"], deal.id)
        await deal.crm.settle()
        effect = deal.crm.effect("crm.update", "amount")
        assert (effect["state"], effect["category"], len(deal.crm.service.records("Quote"))) == ("failed", "conflict", 1)
    assert "is not in Salesforce any more" in effect["last_error"]
    assert "Restore it from the recycle bin" in effect["last_error"]


async def test_of_two_that_wait_the_newer_one_stands_for_both(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.approved()
        await deal.crm.step()
        await deal.crm.ask(FinalizeQuote())
        await deal.crm.settle()
        assert [deal.amount] == deal.totals()
    states = [row["state"] for row in bench.rows("SELECT state FROM effects WHERE class = 'crm.update' ORDER BY id")]
    assert states == ["superseded", "delivered"]


async def test_resubmitted_quote_that_is_created_after_all_keeps_its_opportunity(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.crm.ask(deal.command)
        again = await deal.crm.ask(deal.command, quote_id="new", version=0)
        assert again["outcome"] == "refused"
        await deal.crm.ask(CreateAnother(again["operation_key"]), quote_id="new", version=0)
    rows = bench.rows("SELECT quote_id, record_id FROM quote_opportunities ORDER BY quote_id")
    assert [row["record_id"] for row in rows] == [deal.id, deal.id]
    assert rows[0]["quote_id"] == QUOTE


async def test_a_record_names_tax_bill_and_the_only_account_of_that_name(bench: Bench, tmp_path: Path) -> None:
    agreed = CommercialTerms(bill_to="Jo Doe", bill_to_email="jo@acme.example", bill_to_address="1 Main St", payment_days=45)
    command = create_command("5")
    command = replace(command, request=replace(command.request, region="DE", with_tax=True, commercial=agreed))
    mapping = replace(default_mapping(), quote_fields={**default_mapping().quote_fields, "Description": "payment"})
    async with crm_at(bench, tmp_path, mapping=mapping) as crm:
        account = crm.service._org.create(SCHEMA["account"], {"Name": "Acme"})
        crm.service._org.create(SCHEMA["account"], {"Name": "ACME"})  # another name
        sync = {"quote_id": "crm", "version": 0, "source": "scheduler", "actor_type": "system"}
        await crm.ask(SyncCrm(("accounts",)), "quotebot", **sync)
        await crm.settle()
        await crm.ask(command, quote_id="new", version=0)
        await crm.ask(SubmitQuote())
        await crm.settle()
        record = crm.record()
    found = {name: record[name] for name in ("BillingName", "Email", "BillingStreet", "QuoteAccountId", "Description")}
    assert found == {
        "BillingName": "Jo Doe",
        "Email": "jo@acme.example",
        "BillingStreet": "1 Main St",
        "QuoteAccountId": account,
        "Description": "net 45",
    }
    assert record["Tax"] == pytest.approx(float(record["Quotebot_Total__c"]) * 0.19, abs=0.02)  # rounded on each line


async def test_a_record_of_a_quote_without_those_leaves_their_fields_out(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path) as deal:
        await deal.approved()
        await deal.crm.settle()
        record = deal.crm.record()
    assert {record.get(name) for name in ("Tax", "BillingName", "Email", "BillingStreet", "QuoteAccountId")} == {None}
    assert record["OpportunityId"] == deal.id


STAGED = """
[opportunity_fields.stage]
field = "StageName"
owner = "OWNER"
replaces = ["Prospecting"]
approved = "Proposal/Price Quote"
sent = "Negotiation/Review"
accepted = "Closed Won"
lost = "Closed Lost"

[opportunity_fields.loss_reason]
field = "Description"
owner = "merge"
price = "Price"
no_decision = "No decision"

[opportunity_fields.amount]
owner = "OWNER"
"""


def staged(owner: str = "merge") -> CrmMapping:
    return read_mapping(SHIPPED + STAGED.replace("OWNER", owner))


async def test_the_stage_follows_the_quote_and_a_loss_has_its_reason(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path, mapping=staged()) as deal:
        await deal.approved()
        await deal.crm.settle()
        assert deal.field("StageName") == "Proposal/Price Quote"
        for command in (FinalizeQuote(), MarkSent("buyer@acme.example")):
            await deal.crm.ask(command)
        await deal.crm.settle()
        assert deal.field("StageName") == "Negotiation/Review"
        deal.crm.weather.arm("salesforce", "reset_after", method="sobjects/Opportunity", times=1)  # the answer is lost
        await deal.crm.ask(LoseQuote("No decision: next year"))
        await deal.crm.settle()
        assert (deal.field("StageName"), deal.field("Description")) == ("Closed Lost", "No decision")
        assert deal.crm.effect("crm.update", "stage")["state"] == "delivered"
    assert bench.rows("SELECT 1 FROM crm_conflicts") == []


@pytest.mark.parametrize(
    ("owner", "after", "queued"),
    [
        ("merge", "Qualification", True),
        ("crm_wins", "Qualification", False),
        ("local_wins", "Negotiation/Review", False),
        ("immutable_after_bind", "Qualification", True),
    ],
)
async def test_the_owner_of_the_stage_decides_about_a_value_of_a_person(
    bench: Bench,
    tmp_path: Path,
    owner: str,
    after: str,
    queued: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    async with deal_at(bench, tmp_path, mapping=staged(owner)) as deal:
        await deal.approved()
        await deal.crm.settle()
        deal.changed(StageName="Qualification")
        for command in (FinalizeQuote(), MarkSent("buyer@acme.example")):
            await deal.crm.ask(command)
        await deal.crm.settle()
        assert deal.field("StageName") == after
    stages = bench.rows("SELECT field, ours, theirs, what FROM crm_conflicts WHERE what = 'stage'")
    asked = {"field": "Opportunity.StageName", "ours": "Negotiation/Review", "theirs": "Qualification", "what": "stage"}
    assert stages == ([asked] if queued else [])


async def test_an_operator_may_overwrite_the_amount_or_the_stage_of_a_person(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path, mapping=staged()) as deal:
        await deal.approved()
        await deal.crm.settle()
        total = deal.amount
        deal.changed(Amount=Decimal(7), StageName="Qualification")
        for command in (FinalizeQuote(), MarkSent("buyer@acme.example")):
            await deal.crm.ask(command)
        await deal.crm.settle()
        assert (deal.amount, deal.field("StageName")) == (Decimal(7), "Qualification")
        for row in bench.rows("SELECT id, theirs FROM crm_conflicts ORDER BY id"):
            terminal: dict[str, Any] = {"source": "cli", "actor_type": "operator", "quote_id": "crm"}
            await deal.crm.ask(ReconcileCrm(row["id"], "ours", row["theirs"], "agreed"), "U0OPS", **terminal)
        await deal.crm.settle()
        assert (deal.amount, deal.field("StageName")) == (total, "Negotiation/Review")
    assert {row["state"] for row in bench.rows("SELECT state FROM crm_conflicts")} == {"ours"}


async def test_a_version_without_a_record_leaves_the_stage_until_it_has_one(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path, mapping=staged()) as deal:
        await deal.approved()
        await deal.crm.settle()
        await deal.crm.ask(CHEAPER)
        await deal.crm.ask(SubmitQuote())
        deal.crm.weather.arm("salesforce", "5xx", method="composite/graph", times=7)
        await deal.crm.settle()
        assert deal.crm.effect("crm.create")["state"] == "failed"
        for command in (FinalizeQuote(), MarkSent("buyer@acme.example"), LoseQuote("No decision: next year")):
            await deal.crm.ask(command)
        await deal.crm.settle()
        assert (deal.field("StageName"), deal.field("Description"), len(deal.totals())) == ("Proposal/Price Quote", None, 1)
        (letter,) = bench.rows("SELECT id FROM effects WHERE state = 'failed'")
        await dead_letters(bench.ledger).replay(str(letter["id"]), actor="ops", reason=None, follow=deal.crm.performer.follow_ups)
        await deal.crm.settle()
        assert (deal.field("StageName"), deal.field("Description"), len(deal.totals())) == ("Closed Lost", "No decision", 2)


async def test_a_version_that_nobody_approved_leaves_the_stage(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path, mapping=staged()) as deal:
        await deal.approved()
        await deal.crm.settle()
        for command in (FinalizeQuote(), MarkSent("buyer@acme.example")):
            await deal.crm.ask(command)
        deal.crm.weather.arm("salesforce", "5xx", method="sobjects/Opportunity", times=1)
        await deal.crm.step()
        await deal.crm.ask(CHEAPER)
        await deal.crm.settle()
        assert deal.field("StageName") == "Proposal/Price Quote"


async def test_a_difference_about_the_opportunity_ends_for_all_versions(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path, mapping=staged()) as deal:
        await deal.approved()
        await deal.crm.settle()
        for change, amount in ((8, 7), (7, 6), (6, None)):
            deal.changed(Amount=None if amount is None else Decimal(amount))
            await deal.crm.ask(ReviseQuote(Changes(discount_percent=Decimal(change))))
            await deal.crm.ask(SubmitQuote())
            await deal.crm.settle()
            asked = bench.rows("SELECT version, theirs FROM crm_conflicts WHERE state = 'open' AND what = 'amount'")
            assert asked == ([] if amount is None else [{"version": 10 - change, "theirs": str(amount)}])


async def test_a_closed_opportunity_keeps_its_stage(bench: Bench, tmp_path: Path) -> None:
    async with deal_at(bench, tmp_path, mapping=staged("local_wins")) as deal:
        await deal.approved()
        await deal.crm.settle()
        deal.changed(StageName="Closed Won")
        await deal.crm.ask(FinalizeQuote())
        await deal.crm.ask(MarkSent("buyer@acme.example"))
        await deal.crm.settle()
        assert deal.field("StageName") == "Closed Won"


async def test_our_own_opportunity_that_was_closed_is_never_changed(bench: Bench, tmp_path: Path) -> None:
    own = replace(WITH_OWN, stage=staged("local_wins").stage)
    async with crm_at(bench, tmp_path, mapping=own) as crm:
        await crm.approved()
        await crm.settle()
        (made,) = crm.service.records("Opportunity")
        crm.service._org.update(SCHEMA["opportunity"], str(made["Id"]), {"StageName": "Closed Lost", "Amount": Decimal(7)})
        for command in (FinalizeQuote(), MarkSent("buyer@acme.example"), CHEAPER, SubmitQuote()):
            await crm.ask(command)
        await crm.settle()
        (after,) = crm.service.records("Opportunity")
        assert len(crm.service.records("Quote")) == 2
    assert (after["StageName"], after["Amount"]) == ("Closed Lost", Decimal(7))


async def test_the_amount_of_our_own_opportunity_heeds_its_owner_too(bench: Bench, tmp_path: Path) -> None:
    async with crm_at(bench, tmp_path, mapping=replace(WITH_OWN, amount_owner="merge")) as crm:
        await crm.approved()
        await crm.settle()
        (made,) = crm.service.records("Opportunity")
        for change, amount in (({}, None), ({"Amount": Decimal(7)}, Decimal(7))):
            crm.service._org.update(SCHEMA["opportunity"], str(made["Id"]), change)
            await crm.ask(ReviseQuote(Changes(discount_percent=Decimal(8 - len(change)))))
            await crm.ask(SubmitQuote())
            await crm.settle()
            (after,) = crm.service.records("Opportunity")
            newest = max(crm.service.records("Quote"), key=lambda record: str(record["Name"]))
            assert after["Amount"] == (newest["Quotebot_Total__c"] if amount is None else amount)
    assert [row["what"] for row in bench.rows("SELECT what FROM crm_conflicts")] == ["amount"]
