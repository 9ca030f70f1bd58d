"""End-to-end test of the main job: one real deal through every layer."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Final

from quotebot.sandbox.slack.directory import Directory
from tests.rig import FIRST_QUOTE, Deal

REP: Final = Directory().people["U0REP"]
PAGE: Final = (Path(__file__).resolve().parent.parent / "docs" / "first-deal.md").read_text("utf-8")


async def test_a_deal_runs_from_slash_command_to_pdf_and_crm(deal: Deal) -> None:
    await deal.approved_deal()
    card = await deal.card_text()
    assert "$20,400.00" in card
    assert "*$17,340.00*" in card
    assert "Approved by <@U0MANAGER> (Sales Manager)" in card
    assert '"approval.' not in card
    (contact,) = await deal.rows("SELECT quote_id, version, email, phone FROM document_contacts")
    assert contact == {"quote_id": FIRST_QUOTE, "version": 1, "email": REP.email, "phone": REP.phone}
    assert [file["name"] for file in await deal.files()] == [f"Quote {FIRST_QUOTE} v1 - Acme.pdf"]
    (quote,) = await deal.crm()
    assert quote["Quotebot_Key__c"].endswith(f"_{FIRST_QUOTE}_v1")
    lines = await deal.crm("QuoteLineItem")
    assert sum(Decimal(str(line["Quotebot_Net__c"])) for line in lines) == Decimal(17340)
    assert Decimal(str(quote["GrandTotal"])) == Decimal(17340)
    assert len(await deal.cards()) == 1
    elements = [each for block in (await deal.card())["blocks"] for each in block.get("elements", ())]
    labels = [each["text"]["text"] for each in elements if each["type"] == "button"]
    (told,) = re.findall(r"^4\. .*Its buttons are now (.*?)\. ", PAGE, re.MULTILINE)
    assert re.findall(r"\*\*(.+?)\*\*", told) == labels


async def test_document_is_prepared_by_the_real_name_of_the_profile(deal: Deal) -> None:
    await deal.submitted_deal()
    names = await deal.rows("SELECT q.requester_name, p.name FROM quotes AS q JOIN people AS p ON p.user_id = q.requester")
    assert names == [{"requester_name": "Rep", "name": "Rep"}]  # the handle is "rep"
