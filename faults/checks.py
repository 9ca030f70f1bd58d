"""What must hold whatever happened. Reads the ledger file and what the outside saw, never the code under test."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

from faults.wakeups import ASLEEP_FOR_GOOD

if TYPE_CHECKING:
    from faults.rig import Deal

NET = Decimal("17340.00")


async def exactly_once(deal: Deal) -> None:
    """Check, at rest, that every acknowledged command had one effect and every owed effect was done once."""
    await nothing_under_way(deal)
    await no_message_twice(deal)
    await every_delivered_post_is_there(deal)
    await every_quote_in_crm_once(deal)
    await every_pdf_once(deal)
    await attempts_have_claims(deal)
    assert await deal.rows(ASLEEP_FOR_GOOD) == []
    assert await deal.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    assert await deal.rows("PRAGMA foreign_key_check") == []


async def golden_deal(deal: Deal) -> None:
    """Check that the golden deal stands, once: one quote, one decision, one PDF, one Salesforce quote, one thread."""
    await exactly_once(deal)
    assert len(await deal.rows("SELECT quote_id FROM quotes")) == 1
    assert [row["state"] for row in await deal.rows("SELECT state FROM quotes")] == ["approved"]
    assert [row["decided_by"] for row in await deal.rows("SELECT decided_by FROM approvals")] == ["U0MANAGER"]
    assert len(await deal.cards()) == 1
    assert "Approved by <@U0MANAGER>" in await deal.card_text()
    assert '"type": "actions"' not in await deal.card_text()
    assert "pending" not in await deal.card_text()
    assert len(await deal.files()) == 1
    assert len(await deal.crm()) == 1
    lines = await deal.crm("QuoteLineItem")
    assert len(lines) == 3
    assert sum(Decimal(str(line["Quotebot_Net__c"])) for line in lines) == NET
    texts = Counter(reply["text"].split(",")[0] for reply in await deal.replies())
    assert max(texts.values()) == 1, texts


async def nothing_under_way(deal: Deal) -> None:
    """Check that every operation and effect reached an end."""
    unfinished = await deal.rows(
        "SELECT 'operation' AS kind, id, state FROM operations WHERE state NOT IN ('completed', 'discarded', 'failed_terminal') "
        "UNION ALL SELECT class, id, state FROM effects WHERE state IN ('pending', 'in_flight', 'uncertain')"
    )
    assert unfinished == []


async def no_message_twice(deal: Deal) -> None:
    """Check that no key of ours is on two messages."""
    keys = Counter(key for message in await deal.messages() if (key := _key(message)) is not None)
    assert all(count == 1 for count in keys.values()), keys


async def every_delivered_post_is_there(deal: Deal) -> None:
    """Check that what the ledger calls delivered is in the channel, under its key and ts."""
    seen = {_key(message): message["ts"] for message in await deal.messages()}
    for row in await deal.rows("SELECT effect_key, external_ref FROM effects WHERE class = 'slack.post' AND state = 'delivered'"):
        assert seen.get(row["effect_key"]) == row["external_ref"], row


async def every_quote_in_crm_once(deal: Deal) -> None:
    """Check that each delivered CRM effect has one record, and the org no other."""
    delivered = await deal.rows("SELECT external_ref FROM effects WHERE class = 'crm.create' AND state = 'delivered'")
    records = await deal.crm()
    assert sorted(row["external_ref"] for row in delivered) == sorted(record["Id"] for record in records)
    assert len({record["Quotebot_Key__c"] for record in records}) == len(records)


async def every_pdf_once(deal: Deal) -> None:
    """Check that each delivered upload is shared once, and nothing else is."""
    delivered = await deal.rows("SELECT external_ref FROM effects WHERE class = 'slack.file' AND state = 'delivered'")
    shared = await deal.files()
    assert sorted(row["external_ref"] for row in delivered) == sorted(file["id"] for file in shared)
    for file in shared:
        assert sum(len(places) for places in file["shares"].values()) == 1


async def attempts_have_claims(deal: Deal) -> None:
    """Check that no attempt ran without a claim of its own: one row per fence, none above the row's fence."""
    stray = await deal.rows("SELECT a.id FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id WHERE a.fence > e.fence")
    assert stray == []


def _key(message: dict[str, object]) -> str | None:
    metadata = message.get("metadata")
    if not isinstance(metadata, dict):
        return None
    payload = metadata.get("event_payload")
    key = payload.get("key") if isinstance(payload, dict) else None
    return key if isinstance(key, str) else None
