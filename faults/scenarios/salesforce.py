"""Failures of Salesforce: it hangs, refuses the login, refuses a field, refuses half a quote."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import aiohttp

from faults.checks import checker
from faults.harness.rig import FIRST_QUOTE
from faults.scenarios.stage import Scenario, amended
from quotebot.sandbox.salesforce.login import CLIENT_ID, CLIENT_SECRET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from faults.scenarios.stage import Stage

RETRIES: Final = 2
CALL_SECONDS: Final = 2
MAPPING: Final = "adapters/salesforce/salesforce.toml"
# Settings that an installation may choose: few retries with short delays, so that a drill does not take a minute.
IMPATIENT: Final = json.dumps(
    {
        "crm.create": {
            "timeout_seconds": CALL_SECONDS,
            "retries": RETRIES,
            "base_seconds": 0.05,
            "cap_seconds": 0.1,
            "jitter": "none",
        }
    }
)


async def hanging(stage: Stage) -> str:
    """FI-009: Salesforce hangs."""
    deal = await stage.start(QUOTEBOT_RETRY=IMPATIENT)
    await deal.submitted_deal()
    await deal.arm("salesforce", "slow", method="composite/graph", seconds=600, delay=600.0)
    await deal.click("approval.approve", user="U0MANAGER")
    await stage.until_card_says("Salesforce isn't responding")
    await deal.settled()
    ends = await stage.ends("crm.create")
    stage.equal("one try and as many retries as the matrix grants", ends, [*[("retry", "timeout")] * RETRIES, ("bury", "timeout")])
    asked = await deal.hits()
    stage.fact("none of them asks twice", 1 <= asked <= 1 + RETRIES, asked)
    listed = await stage.quotebot("dead", "list", "--category", "timeout", "--json")
    stage.equal("it is listed as a time-out", [each["class"] for each in listed.data["dead_letters"]], ["crm.create"])
    await _given_up_and_replayed(stage)
    await stage.audited(
        "crm.create", "claimed retry_scheduled claimed retry_scheduled claimed system.error replayed claimed delivered"
    )
    return f"{1 + RETRIES} tries of {CALL_SECONDS} s, one dead letter, delivered once by the replay"


async def stopped(stage: Stage) -> str:
    """D-1: Salesforce is down."""
    deal = await stage.start(QUOTEBOT_RETRY=IMPATIENT)
    await deal.submitted_deal()
    await deal.arm("salesforce", "reset_before", seconds=600)
    await deal.complete(deal.click("approval.approve", user="U0MANAGER"))
    ends = [row["outcome"] for row in await stage.attempts("crm.create")]
    stage.equal("it is retried, then given up", ends, [*["retry"] * RETRIES, "bury"])
    await _given_up_and_replayed(stage)
    return f"{RETRIES} retries, one dead letter, delivered once by the replay"


async def _given_up_and_replayed(stage: Stage) -> None:
    """Check that the deal stands without its record; restore Salesforce, replay, and check the whole deal."""
    deal = stage.deal
    stage.fact("the card says what failed", "Not in Salesforce yet" in await deal.card_text(), await deal.card_text())
    stage.equal("the quote is approved all the same", await deal.rows("SELECT state FROM quotes"), [{"state": "approved"}])
    stage.equal("the PDF is there all the same", len(await deal.files()), 1)
    letter = await stage.dead_letter()
    stage.equal("it is a dead letter", (letter["class"], letter["aggregate_id"]), ("crm.create", FIRST_QUOTE))
    await deal.clear_faults()
    told = await stage.quotebot("replay", letter["id"], "--wait")
    stage.fact("the replay delivers", told.status == 0 and "delivered" in told.out, told)
    await deal.settled()
    await checker.golden_deal(deal)


async def login_refused(stage: Stage) -> str:
    """FI-010: Salesforce refuses the login."""
    deal = await stage.start()
    await deal.submitted_deal()
    await deal.arm("salesforce", "auth_expired", method="oauth2/token", seconds=600)
    await deal.click("approval.approve", user="U0MANAGER")
    await stage.until_card_says("Salesforce sync is paused")
    (effect,) = await deal.rows("SELECT state, attempts FROM effects WHERE class = 'crm.create'")
    stage.equal("the write waits and no attempt is burnt", effect, {"state": "pending", "attempts": 0})
    (gate,) = (await stage.quotebot("gates", "--json")).data["gates"]
    stage.equal("the operator sees the class held by its login", (gate["name"], gate["cause"], gate["waiting"]), ("crm", "auth", 1))
    lines = (stage.folder / "bot.log").read_text("utf-8").splitlines()
    told = [line for line in lines if '"class.paused"' in line and "then resume the CRM" in line]
    stage.equal("one line of the log alerts the operator", len(told), 1)
    stage.equal("the quote is approved all the same", await deal.rows("SELECT state FROM quotes"), [{"state": "approved"}])
    await deal.clear_faults()
    stage.equal("it is resumed", (await stage.quotebot("resume", "crm")).status, 0)
    await deal.settled()
    stage.equal("nothing was ever given up", await stage.count("dead_letters"), 0)
    await checker.golden_deal(deal)
    await stage.audited("crm.create", "claimed released claimed delivered")
    return "paused without burning an attempt, resumed, one record"


async def field_refused(stage: Stage) -> str:
    """FI-011: Salesforce refuses a field."""
    deal = await stage.start(None, **amended(stage.folder, MAPPING, 'approved = "Approved"', 'approved = "USD"'))
    await deal.approved_deal()
    (effect,) = await deal.rows("SELECT state, attempts, category, last_error FROM effects WHERE class = 'crm.create'")
    stage.equal(
        "it is given up at the first refusal", (effect["state"], effect["attempts"], effect["category"]), ("failed", 1, "mapping")
    )
    said = effect["last_error"]
    stage.fact("the error names the object, the field and the value", 'Quote.Status = "USD"' in said, said)
    stage.equal("Salesforce holds nothing", await deal.crm(), [])
    stage.equal(
        "the quote is untouched", await deal.rows("SELECT state, version FROM quotes"), [{"state": "approved", "version": 1}]
    )
    stage.equal("the PDF is there", len(await deal.files()), 1)
    await stage.audited("crm.create", "claimed system.error")
    return 'one dead letter that names Quote.Status = "USD", the quote untouched'


async def half_a_quote(stage: Stage) -> str:
    """FI-012: Salesforce refuses a part of a quote."""
    deal = await stage.start(QUOTEBOT_RETRY=IMPATIENT)
    (ledger,) = await deal.rows("SELECT value AS id FROM meta WHERE name = 'ledger_id'")
    async with somebody_else(stage) as org:
        stray = await org("POST", "Quote", {"Name": "half an import"})
        # The key of the third line is taken: the quote and two lines are written before it is refused.
        taken = {"QuoteId": stray, "Quotebot_Key__c": f"{ledger['id']}_{FIRST_QUOTE}_v1_L3", "Quantity": 1, "UnitPrice": 1}
        await org("POST", "QuoteLineItem", taken)
        await deal.approved_deal()
        letter = await stage.dead_letter()
        stage.equal("it is retried, then given up", (letter["class"], letter["attempts"]), ("crm.create", 1 + RETRIES))
        (effect,) = await deal.rows("SELECT last_error FROM effects WHERE class = 'crm.create'")
        stage.fact("a line is what was refused", "QuoteLineItem" in effect["last_error"], effect)
        stage.equal("nothing of the quote is visible", [record["Id"] for record in await deal.crm()], [stray])
        stage.equal("none of its lines is visible", len(await deal.crm("QuoteLineItem")), 1)
        await org("DELETE", f"Quote/{stray}")
    told = await stage.quotebot("replay", letter["id"], "--wait")
    stage.fact("the org mended, the replay delivers", told.status == 0 and "delivered" in told.out, told)
    await deal.settled()
    for alone in ("pdf.render", "slack.file"):
        stage.equal(f"{alone} was not done again", len(await stage.attempts(alone)), 1)
    await checker.golden_deal(deal)
    await stage.audited(
        "crm.create", "claimed retry_scheduled claimed retry_scheduled claimed system.error replayed claimed delivered"
    )
    return "nothing half-visible, the record alone was replayed, whole"


@asynccontextmanager
async def somebody_else(stage: Stage) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Yield another program's access to the org: a call with a method, a resource and a body, which returns the new record's id."""
    url = stage.world.salesforce.plain_url
    async with aiohttp.ClientSession() as session:
        credentials = {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        async with session.post(f"{url}/services/oauth2/token", data=credentials) as answer:
            token = (await answer.json())["access_token"]

        async def ask(method: str, resource: str, body: object = None) -> str:
            place, headers = f"{url}/services/data/v65.0/sobjects/{resource}", {"Authorization": f"Bearer {token}"}
            async with session.request(method, place, json=body, headers=headers) as answer:
                stage.fact(f"Salesforce takes {method} {resource}", answer.ok, await answer.text())
                return str((await answer.json())["id"]) if method == "POST" else ""

        yield ask


async def replayed_totals(stage: Stage) -> str:
    """D-4: several dead letters of Salesforce are replayed, and the totals match."""
    deal = await stage.start(QUOTEBOT_RETRY=IMPATIENT)
    await deal.arm("salesforce", "5xx", seconds=600)
    await deal.approved_deal()
    await deal.approved_deal()
    stage.equal("two dead letters", await stage.count("dead_letters WHERE status = 'pending'"), 2)
    await deal.clear_faults()
    told = await stage.quotebot("replay", "--class", "crm.create", "--yes", "--wait", "--json")
    ends = [result["outcome"] for result in told.data["results"]]
    stage.equal("the replay says what became of each", (told.status, ends), (0, ["redone", "redone"]))
    await deal.settled()
    stage.equal("two records", len(await deal.crm()), 2)
    stage.equal("none is open", await stage.count("dead_letters WHERE status <> 'replayed'"), 0)
    again = await stage.quotebot("replay", "--class", "crm.create", "--yes")
    stage.equal("a second replay finds nothing to do", (again.status, again.out), (4, ""))
    return "two replayed, two told, two records; a second replay finds nothing"


SCENARIOS: Final = (
    Scenario(
        "FI-009",
        "P1",
        ("timeout",),
        "Salesforce hangs",
        "Every write of a quote to Salesforce runs into its time-out.",
        "The card says pending, the retries are bounded, the end is a dead letter, and its replay delivers one record.",
        hanging,
    ),
    Scenario(
        "FI-010",
        "P0",
        ("always_fail",),
        "the Salesforce login is refused",
        "Salesforce takes the bot's secret no longer; later it does again, and an operator resumes.",
        "The class is paused, no attempt is burnt, the quote stays approved, the operator sees it, and nothing is given up.",
        login_refused,
    ),
    Scenario(
        "FI-011",
        "P0",
        ("always_fail",),
        "a field does not fit",
        "The installation maps a value to a field that refuses it.",
        "It is given up at the first refusal with object, field and value named; the quote is untouched.",
        field_refused,
    ),
    Scenario(
        "FI-012",
        "P1",
        ("fail_n",),
        "some records written, then a refusal",
        "Salesforce refuses the third line of a quote, after the quote and two lines were written.",
        "Nothing of it is visible; with the org mended the record alone is replayed, whole.",
        half_a_quote,
    ),
    Scenario(
        "D-1",
        "P1",
        ("always_fail",),
        "Salesforce is stopped during a deal",
        "Every connection to Salesforce is cut while a quote is approved; later it is back.",
        "It is retried, then a dead letter; the rest of the deal is done; a replay delivers one record.",
        stopped,
    ),
    Scenario(
        "D-4",
        "P1",
        ("always_fail", "duplicate_replay"),
        "dead letters are replayed, twice",
        "Two records were given up in an outage; an operator replays them, and then once more.",
        "The totals are right after the first replay, and the second finds nothing to do.",
        replayed_totals,
    ),
)
