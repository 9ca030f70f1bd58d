"""End-to-end test of the main job: one real deal through every layer."""

from __future__ import annotations

from decimal import Decimal

from tests.rig import FIRST_QUOTE, Deal


async def test_a_deal_runs_from_slash_command_to_pdf_and_crm(deal: Deal) -> None:
    await deal.approved_deal()
    card = await deal.card_text()
    assert "20,400.00 USD" in card
    assert "*17,340.00 USD*" in card
    assert "Approved by <@U0MANAGER> (sales_manager)" in card
    assert '"approval.' not in card
    assert [file["name"] for file in await deal.files()] == [f"{FIRST_QUOTE}-v1.pdf"]
    (quote,) = await deal.crm()
    assert quote["Quotebot_Key__c"].endswith(f"_{FIRST_QUOTE}_v1")
    lines = await deal.crm("QuoteLineItem")
    assert sum(Decimal(str(line["Quotebot_Net__c"])) for line in lines) == Decimal(17340)
    assert Decimal(str(quote["GrandTotal"])) == Decimal(17340)
    assert len(await deal.cards()) == 1
