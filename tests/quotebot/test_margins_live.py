"""Tests of margins through the bot's socket: a channel sees that one is under its floor, only an approver sees figures."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.approvals.advice import avoidances
from quotebot.domain.approvals.policy import margin_figures
from quotebot.domain.pricing.engine import Pricing, from_stored
from tests.quotebot.parts import POLICY
from tests.quotebot.views.quote_examples import RULESET
from tests.rig import FIRST_QUOTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rig import Deal

# Every margin is under its floor: 12 per seat less 39%, with a cost of 4; support at 305, with a cost of 150.
POOR: Final = "new for Acme: 100 enterprise, 1 support; term 12m; discount 39%"
POSTED: Final = ("chat.postMessage", "chat.update", "chat.postEphemeral", "files.completeUploadExternal", "response_url")
MARGIN: Final = re.compile(r"margin[^.;\n]{0,20}[0-9]", re.IGNORECASE)


def texts(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


def cost_figures(pricing: Pricing) -> set[str]:
    """Return each number that would reveal the products' costs, as it would be formatted."""
    costs = [pricing.cost_total, *(line.cost_amount for line in pricing.lines)]
    found = {f"{cost:,}" for cost in costs}
    found |= {figure for words in margin_figures(pricing, POLICY) for figure in re.findall(r"[0-9]+\.[0-9]+ %", words)}
    found |= {change.words for change in avoidances(pricing, RULESET, POLICY) if change.by_margin}
    return found


async def test_no_channel_reads_a_margin_over_a_quotes_whole_life(deal: Deal) -> None:
    await deal.slash(POOR)
    await deal.settled()
    for text in (
        f"simulate {FIRST_QUOTE}: discount 38%",
        f"explain {FIRST_QUOTE}",
        f"audit {FIRST_QUOTE}",
        f"status {FIRST_QUOTE}",
    ):
        await deal.slash(text)
    await deal.click("quote.submit", user="U0REP")
    await deal.settled()
    await deal.click("approval.approve", user="U0MANAGER")
    await deal.click("approval.approve", user="U0CFO")
    await deal.settled()
    for text in (f"revise {FIRST_QUOTE}: 101 enterprise", f"submit {FIRST_QUOTE}", f"cancel {FIRST_QUOTE}: no budget"):
        await deal.slash(text)
        await deal.settled()
    prices = [from_stored(row["pricing"]) for row in await deal.rows("SELECT pricing FROM quote_versions")]
    secrets = set().union(*(cost_figures(pricing) for pricing in prices))
    assert {"4,800.00", "45.35%", "50.81%"} & secrets
    state = await deal.get("state")
    sent = [sighting for sighting in await deal.get("witness?since=0") if sighting["method"] in POSTED]
    read = "\n".join(texts([state["messages"], state["files"], sent]))
    assert "margin is under the floor" in read
    assert MARGIN.findall(read) == []
    assert {secret for secret in secrets if secret in read} == set()
    records = json.dumps(await deal.crm(), ensure_ascii=False)
    assert {secret for secret in secrets if secret in records} == set()


async def test_only_an_approver_reads_figures_of_a_margin(deal: Deal) -> None:
    await deal.slash(POOR)
    await deal.settled()
    await deal.click("quote.submit", user="U0REP")
    await deal.settled()
    for user in ("U0REP", "U0CFO"):
        await deal.slash(f"simulate {FIRST_QUOTE}: discount 38%", user=user)
    await deal.settled()
    said = {user: " ".join(await deal.whispers(user)) for user in ("U0REP", "U0CFO")}
    assert "margin is under the floor" in said["U0REP"]
    assert not MARGIN.search(said["U0REP"])
    assert "For approvers only: saas margin 46.23% is under 60%" in said["U0CFO"]
    await deal.post("home", user="U0CFO")
    await deal.settled()
    home = json.dumps((await deal.get("state"))["homes"]["U0CFO"], ensure_ascii=False)
    assert "saas margin 45.35% is under 60%" in home
