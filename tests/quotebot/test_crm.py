"""What Salesforce gets of a quote's life: the record once, then its status and its PDF, through the real client on real sockets."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from quotebot.commands import ReviseQuote
from quotebot.domain.changes import Changes
from quotebot.domain.crm_fields import FieldVerdict, judge
from quotebot.lifecycle_commands import AcceptQuote, CancelQuote, ExpireQuote, FinalizeQuote, LoseQuote, MarkSent
from quotebot.opening import dead_letters
from tests.quotebot.crm_parts import PDF, QUOTE, Crm, crm_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quotebot.commands import Payload
    from tests.quotebot.parts import Bench

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
def test_who_has_the_last_word_about_a_field(owner: str, theirs: str | None, verdict: FieldVerdict) -> None:
    assert judge(owner, "Presented", theirs, {"Approved"}) is verdict  # type: ignore[arg-type] # the table names real owners
