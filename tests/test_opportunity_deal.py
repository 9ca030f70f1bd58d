"""Test of a deal with an opportunity, from the form's menus to the amount, through the real bot on real sockets."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.sandbox.world import World
from quotebot.views import forms
from tests.rig import Deal, bot_in, eventually

if TYPE_CHECKING:
    from pathlib import Path

LOOKUPS: dict[str, Any] = {
    "crm_account_lookup": True,
    "crm_opportunity_lookup": True,
    "crm_sync_minutes": 60,
    "crm_mirror": ("accounts", "opportunities"),
}


async def suggested(deal: Deal, view_id: str, menu: str, typed: str) -> list[Any]:
    options: list[Any] = (await deal.post("suggest", user="U0REP", view_id=view_id, action_id=menu, value=typed))["options"]
    return options


async def whole(deal: Deal) -> bool:
    return len(await deal.rows("SELECT 1 FROM crm_mirror_cursors WHERE whole_at IS NOT NULL")) == 2


async def open_form(deal: Deal) -> str:
    await deal.slash("new")
    view_id: str = (await deal.get("state"))["views"][-1]["view"]["id"]
    return view_id


async def test_a_quote_is_asked_for_under_an_opportunity_that_the_form_offers(tmp_path: Path) -> None:
    async with World(tmp_path / "world").serve() as world:
        org = world.salesforce._org
        account = org.create(SCHEMA["account"], {"Name": "Acme Corp"})
        fields = {"Name": "Renewal", "AccountId": account, "StageName": "Prospecting", "CloseDate": "2030-01-31"}
        chosen = org.create(SCHEMA["opportunity"], fields)
        async with bot_in(world, tmp_path / "bot", **LOOKUPS) as deal:
            await eventually(lambda: whole(deal), "the first reading of what is kept")
            view_id = await open_form(deal)
            (offered,) = await suggested(deal, view_id, forms.FOUND, "acm")
            await deal.post("action", user="U0REP", view_id=view_id, action_id=forms.FOUND, value=offered["value"])
            await deal.arm("salesforce", "5xx", method="query")
            menu = forms.block_of("Acme Corp")
            (renewal,) = await suggested(deal, view_id, menu, "")  # from the mirror: the org does not answer
            await deal.clear_faults()
            values = {
                "terms": {"terms": "150 pro, 150 sso, 1 support"},
                "discount": {"discount": "15"},
                menu: {menu: renewal["value"]},
            }
            sent = await deal.post("submit", user="U0REP", view_id=view_id, values=values)
            assert "errors" not in (sent["ack"] or {})
            await deal.settled()
            await deal.click("quote.submit", user="U0REP")
            await deal.settled()
            await deal.click("approval.approve", user="U0MANAGER")
            await deal.settled()
            (record,), (opportunity,) = await deal.crm(), await deal.crm("Opportunity")
    assert (record["OpportunityId"], record["Quotebot_Account__c"]) == (chosen, "Acme Corp")
    assert Decimal(str(opportunity["Amount"])) == Decimal(17340)
