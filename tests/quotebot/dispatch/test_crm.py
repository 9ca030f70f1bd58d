"""Tests of Salesforce effects: the record once, then its status and its PDF, through the real client on real sockets."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pytest

from quotebot.app.installation import dead_letters
from quotebot.commands.payloads import (
    AcceptQuote,
    CancelQuote,
    ExpireQuote,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    ReconcileCrm,
    ReviseQuote,
    SubmitQuote,
    SyncCrm,
)
from quotebot.domain.pricing.price_requests import Changes
from quotebot.domain.quotes.crm_fields import FieldVerdict, judge
from tests.adapters.test_salesforce_opportunity import MAPPING as WITH_OPPORTUNITY
from tests.quotebot.crm_parts import PDF, QUOTE, Crm, crm_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.commands.registry import Payload
    from tests.quotebot.parts import Bench

TERMINAL: dict[str, Any] = {"source": "cli", "actor_type": "operator", "quote_id": "crm"}
SENT = (FinalizeQuote(), MarkSent("buyer@acme.example"))


@pytest.fixture
async def crm(bench: Bench, tmp_path: Path) -> AsyncIterator[Crm]:
    async with crm_at(bench, tmp_path / "org") as crm:
        yield crm


@pytest.mark.parametrize(
    ("commands", "status"),
    [
        ((), "Approved"),
        ((FinalizeQuote(),), "Approved"),
        (SENT, "Presented"),
        ((*SENT, AcceptQuote()), "Accepted"),
        ((*SENT, LoseQuote("too expensive")), "Denied"),
        ((CancelQuote("not wanted"),), "Rejected"),
        ((ReviseQuote(Changes(discount_percent=Decimal(8))),), "Rejected"),
    ],
)
async def test_salesforce_is_told_how_far_the_version_is(crm: Crm, commands: tuple[Payload, ...], status: str) -> None:
    await crm.approved()
    for command in commands:
        assert (await crm.ask(command))["outcome"] == "applied"
    await crm.settle()
    assert crm.record()["Status"] == status
    assert {row["state"] for row in crm.bench.rows("SELECT state FROM effects WHERE class LIKE 'crm.%'")} <= {
        "delivered",
        "superseded",
    }


async def test_a_quote_that_expires_is_told_too(crm: Crm) -> None:
    await crm.approved()
    await crm.settle()
    until = crm.bench.row("SELECT valid_until FROM quotes")["valid_until"]
    crm.bench.clock.ms = until + 60_000
    expired = await crm.ask(ExpireQuote(until), "quotebot", source="scheduler", actor_type="system")
    await crm.settle()
    assert (expired["outcome"], crm.record()["Status"]) == ("applied", "Denied")


async def test_a_lost_answer_to_the_graph_write_ends_with_exactly_one_quote(crm: Crm) -> None:
    crm.weather.arm("salesforce", "reset_after", method="composite/graph", times=1)
    await crm.approved()
    await crm.settle()
    effect = crm.effect("crm.create")
    assert (effect["state"], effect["external_ref"]) == ("delivered", crm.record()["Id"])
    assert json.loads(effect["result"])["already_there"] is True
    assert crm.requests("composite/graph") == ["None", "200"]  # the write whose answer was lost, then the refusal of a duplicate
    assert len(crm.service.records("QuoteLineItem")) == 3


async def test_the_pdf_is_a_file_of_the_record_once_also_when_the_answer_is_lost(crm: Crm) -> None:
    crm.weather.arm("salesforce", "reset_after", method="sobjects/ContentVersion", times=1)
    await crm.approved()
    sha256 = await crm.rendered()
    await crm.settle()
    (document,) = crm.service.records("ContentVersion")
    assert base64.b64decode(str(document["VersionData"])) == PDF
    assert document["Title"] == f"{QUOTE} v1 (sha256 {sha256[:12]})"
    assert document["FirstPublishLocationId"] == crm.record()["Id"]
    assert crm.effect("crm.update", "document")["external_ref"] == document["Id"]


async def test_a_pdf_of_an_earlier_version_says_so_in_its_title_and_keeps_its_bytes(crm: Crm) -> None:
    await crm.approved()
    await crm.rendered()
    await crm.settle()
    await crm.ask(ReviseQuote(Changes(discount_percent=Decimal(8))))
    await crm.settle()
    (document,) = crm.service.records("ContentVersion")
    assert (document["Title"], base64.b64decode(str(document["VersionData"]))) == (f"{QUOTE} v1 (superseded)", PDF)


async def test_all_versions_hang_on_one_opportunity_with_the_amount_of_the_newest_one(bench: Bench, tmp_path: Path) -> None:
    async with crm_at(bench, tmp_path / "org", mapping=WITH_OPPORTUNITY) as crm:
        await crm.approved()
        crm.weather.arm("salesforce", "5xx", method="composite/graph", times=7)
        await crm.settle()
        (letter,) = crm.bench.rows("SELECT id FROM effects WHERE state = 'failed'")
        await crm.ask(ReviseQuote(Changes(discount_percent=Decimal(8))))
        await crm.ask(SubmitQuote())
        await crm.settle()
        (made,) = crm.service.records("Opportunity")
        await dead_letters(bench.ledger).replay(str(letter["id"]), actor="ops", reason=None, follow=crm.performer.follow_ups)
        await crm.settle()
        first, second = sorted(crm.service.records("Quote"), key=lambda quote: str(quote["Name"]))
        (after,) = crm.service.records("Opportunity")
    assert first["OpportunityId"] == second["OpportunityId"] == after["Id"] == made["Id"]
    assert first["Quotebot_Total__c"] != second["Quotebot_Total__c"] == after["Amount"]
    assert after["Name"] == f"{QUOTE} Acme"


async def test_a_status_that_was_given_up_and_comes_late_does_not_undo_a_newer_one(crm: Crm) -> None:
    await crm.approved()
    await crm.settle()
    crm.weather.arm("salesforce", "5xx", method="sobjects/Quote", times=7)
    for command in SENT:
        await crm.ask(command)
    await crm.settle()
    (letter,) = crm.bench.rows("SELECT id FROM effects WHERE state = 'failed'")
    await crm.ask(AcceptQuote())
    await crm.settle()
    await dead_letters(crm.bench.ledger).replay(str(letter["id"]), actor="ops", reason=None, follow=crm.performer.follow_ups)
    await crm.settle()
    assert crm.record()["Status"] == "Accepted"


async def test_a_record_that_somebody_deleted_is_a_dead_letter_with_words(crm: Crm) -> None:
    await crm.approved()
    await crm.settle()
    crm.service._org.delete(crm.service._org.sobject("Quote"), crm.record()["Id"])
    for command in SENT:
        await crm.ask(command)
    await crm.settle()
    effect = crm.effect("crm.update")
    assert (effect["state"], effect["category"]) == ("failed", "conflict")
    assert "recycle bin" in effect["last_error"]


@pytest.mark.parametrize("field", ["Quotebot_Hash__c", "Quotebot_Version__c"])
async def test_a_record_of_other_content_or_of_a_newer_version_is_never_touched(crm: Crm, field: str) -> None:
    await crm.approved()
    await crm.settle()
    crm.changed_by_hand(**{field: "another" if field == "Quotebot_Hash__c" else 9})
    for command in SENT:
        await crm.ask(command)
    await crm.settle()
    effect = crm.effect("crm.update")
    assert (effect["state"], effect["category"], crm.record()["Status"]) == ("failed", "conflict", "Approved")
    assert "PATCH" not in effect["last_error"]


async def left_alone(crm: Crm) -> None:
    """Bring a quote to a state in which a person's status in Salesforce was kept."""
    await crm.approved()
    await crm.settle()
    crm.changed_by_hand(Status="In Review")
    for command in SENT:
        await crm.ask(command)
    await crm.settle()


async def test_a_status_a_person_changed_is_left_alone_and_put_to_the_operators_once(crm: Crm) -> None:
    await left_alone(crm)
    (conflict,) = crm.bench.rows("SELECT * FROM crm_conflicts")
    assert crm.record()["Status"] == "In Review"
    assert (conflict["field"], conflict["ours"], conflict["theirs"], conflict["state"]) == (
        "Quote.Status",
        "Presented",
        "In Review",
        "open",
    )
    (notice,) = crm.bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%someone changed%'")
    assert "quotebot crm reconcile apply 1" in notice["payload"]
    assert crm.bench.row("SELECT count(*) AS n FROM audit_events WHERE event_type = 'crm.conflict_found'")["n"] == 1


@pytest.mark.parametrize(("take", "status"), [("ours", "Presented"), ("theirs", "In Review")])
async def test_an_operator_settles_it_once_and_the_audit_knows_who(crm: Crm, take: Literal["ours", "theirs"], status: str) -> None:
    await left_alone(crm)
    decided = await crm.ask(ReconcileCrm(1, take, "In Review", "asked the owner"), "U0OPS", **TERMINAL)
    again = await crm.ask(ReconcileCrm(1, "ours", "In Review", "me too"), "U0OPERATOR", **TERMINAL)
    await crm.settle()
    assert (decided["outcome"], again["outcome"], crm.record()["Status"]) == ("applied", "refused", status)
    assert "settled by <@U0OPS>" in json.loads(again["response"])["text"]
    row = crm.bench.row("SELECT state, decided_by, reason FROM crm_conflicts")
    assert row == {"state": take, "decided_by": "U0OPS", "reason": "asked the owner"}
    assert crm.bench.row("SELECT count(*) AS n FROM audit_events WHERE event_type = 'crm.reconciled'")["n"] == 1


async def test_in_slack_a_person_who_is_no_operator_settles_nothing_and_is_told(crm: Crm) -> None:
    await left_alone(crm)
    refused = await crm.ask(ReconcileCrm(1, "ours", "In Review", "mine"), "U0VP", quote_id="crm", source="slack_interactive")
    await crm.settle()
    assert (json.loads(refused["response"])["code"], crm.record()["Status"]) == ("not_operator", "In Review")
    assert crm.bench.row("SELECT state FROM crm_conflicts")["state"] == "open"
    assert "Only Quotebot operators" in crm.effect("slack.reply")["payload"]


async def test_decision_on_an_outdated_crm_value_is_refused_or_reopens_the_conflict(crm: Crm) -> None:
    await left_alone(crm)
    stale = await crm.ask(ReconcileCrm(1, "ours", "Needs Review", "it was that"), "U0OPS", **TERMINAL)
    crm.changed_by_hand(Status="Needs Review")
    decided = await crm.ask(ReconcileCrm(1, "ours", "In Review", "ours counts"), "U0OPS", **TERMINAL)
    await crm.settle()
    assert (stale["outcome"], decided["outcome"], crm.record()["Status"]) == ("refused", "applied", "Needs Review")
    assert [row["state"] for row in crm.bench.rows("SELECT state FROM crm_conflicts ORDER BY id")] == ["ours", "open"]


@pytest.mark.parametrize("owner", ["merge", "crm_wins", "local_wins", "immutable_after_bind"])
async def test_each_owner_of_the_status_gets_its_way_in_the_org(bench: Bench, tmp_path: Path, owner: str) -> None:
    async with crm_at(bench, tmp_path / "org", owner=owner) as crm:
        await left_alone(crm)
        asked = bool(bench.rows("SELECT 1 FROM crm_conflicts"))
        assert (crm.record()["Status"], asked) == {
            "merge": ("In Review", True),
            "crm_wins": ("In Review", False),
            "local_wins": ("Presented", False),
            "immutable_after_bind": ("In Review", True),
        }[owner]


async def sync(crm: Crm) -> dict[str, Any]:
    """Run the scheduled sync; return its result."""
    await crm.ask(SyncCrm(), "quotebot", quote_id="crm", source="scheduler", actor_type="system")
    await crm.settle()
    found: dict[str, Any] = json.loads(crm.effect("crm.read")["result"])
    return found


async def test_the_inbound_sync_finds_what_people_changed_and_reads_on_from_there(crm: Crm) -> None:
    await crm.approved()
    await crm.settle()
    first = await sync(crm)
    crm.changed_by_hand(Status="In Review")
    second = await sync(crm)
    third = await sync(crm)
    assert [len(each["found"]) for each in (first, second, third)] == [0, 1, 1]  # consecutive syncs overlap a little
    assert first["modstamp"] < second["modstamp"] == third["modstamp"] == third["came_from"]
    assert crm.bench.row("SELECT modstamp FROM crm_cursors")["modstamp"] == second["modstamp"]
    assert crm.bench.row("SELECT count(*) AS n FROM crm_conflicts")["n"] == 1  # and reported once
    assert crm.bench.row("SELECT count(*) AS n FROM effects WHERE payload LIKE '%someone changed%'")["n"] == 1


async def test_a_difference_that_goes_away_by_itself_is_closed(crm: Crm) -> None:
    await left_alone(crm)
    crm.changed_by_hand(Status="Presented")
    await sync(crm)
    assert crm.bench.row("SELECT state FROM crm_conflicts")["state"] == "over"


async def test_the_sync_leaves_the_last_tenth_of_the_allowance_to_quotes(crm: Crm) -> None:
    await crm.approved()
    await crm.settle()
    crm.service._rest.served = 90_000
    await crm.client.describe("Quote")
    before = len(crm.witness.since())
    await crm.ask(SyncCrm(), "quotebot", quote_id="crm", source="scheduler", actor_type="system")
    assert await crm.step() == 1
    effect = crm.effect("crm.read")
    assert (effect["state"], effect["category"], effect["attempts"]) == ("pending", "throttled", 0)
    assert effect["next_attempt_at"] - crm.bench.clock.now_ms() == 900_000
    assert len(crm.witness.since()) == before


@pytest.mark.parametrize(
    ("owner", "theirs", "verdict"),
    [
        ("merge", "Presented", FieldVerdict.THERE),
        ("merge", "Approved", FieldVerdict.WRITE),
        ("merge", None, FieldVerdict.WRITE),
        ("merge", "On hold", FieldVerdict.ASK),
        ("crm_wins", "Presented", FieldVerdict.THERE),
        ("crm_wins", "Approved", FieldVerdict.WRITE),
        ("crm_wins", "On hold", FieldVerdict.KEEP),
        ("local_wins", "Presented", FieldVerdict.THERE),
        ("local_wins", "Approved", FieldVerdict.WRITE),
        ("local_wins", "On hold", FieldVerdict.WRITE),
        ("immutable_after_bind", "Presented", FieldVerdict.THERE),
        ("immutable_after_bind", "Approved", FieldVerdict.KEEP),
        ("immutable_after_bind", "On hold", FieldVerdict.ASK),
    ],
)
def test_owner_setting_decides_how_a_field_conflict_is_resolved(owner: str, theirs: str | None, verdict: FieldVerdict) -> None:
    assert judge(owner, "Presented", theirs, {"Approved"}) is verdict  # type: ignore[arg-type] # the table names real owners
