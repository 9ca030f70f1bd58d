"""Failures of Slack: it delivers again, refuses, limits, or loses a channel."""

from __future__ import annotations

import asyncio
import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from faults.checks import checker
from faults.harness.rig import FIRST_QUOTE
from faults.scenarios.stage import Scenario
from quotebot.sandbox.slack.directory import BOT_USER_ID
from quotebot.views import messages

if TYPE_CHECKING:
    from faults.harness.rig import Json
    from faults.scenarios.stage import Stage

PROMPT_MS: Final = 1_000  # an ack without waiting; Slack itself waits for 3 s
RETRY_AFTER_SECONDS: Final = 1
FIRST_BACKOFF_MS: Final = 250  # of Slack's classes in the retry matrix, before jitter


async def creation_again(stage: Stage) -> str:
    """FI-001: a creation is delivered again."""
    deal = await stage.start()
    request_id = (await deal.slash())["request_id"]
    racing = await stage.again(request_id)  # the first one is very likely still being executed
    await deal.settled()
    (operation,) = await deal.rows("SELECT json_extract(response, '$.text') AS text FROM operations")
    texts = {str(ack and ack["text"]) for ack in racing}
    pending = all(text == messages.OPERATION_PENDING or FIRST_QUOTE in text for text in texts)
    stage.fact("a duplicate that races its first delivery is told that it is pending, or the quote", pending, texts)
    before = await stage.again(request_id)
    await stage.until_counted(12)
    await stage.bot.kill()
    await stage.start()
    after = await stage.again(request_id)
    await deal.settled()
    text = operation["text"]
    stage.fact("the stored answer names the quote and its price", FIRST_QUOTE in text and "$17,340.00" in text, text)
    answers = [ack and ack["text"] for ack in before + after]
    stage.equal("every later duplicate gets the stored answer, after a restart too", answers, [text] * 12)
    stage.equal("there is one quote", await stage.count("quotes"), 1)
    stage.equal("there is one card", len(await deal.cards()), 1)
    await stage.until_counted(18)
    stage.equal("one delivery, seen as often as it came", await deal.rows("SELECT seen FROM deliveries"), [{"seen": 19}])
    await stage.audited("quote.create", "reserved claimed quote.created applied")
    await stage.audited("slack.post", "claimed delivered")
    return "one quote, one card, 18 duplicates answered from the record and counted"


async def approval_again(stage: Stage) -> str:
    """FI-002: an approval is delivered again."""
    deal = await stage.start()
    await deal.submitted_deal()
    await deal.complete(deal.slash(f"submit {FIRST_QUOTE}"))
    told = await deal.whispers("U0REP")
    stage.fact("a second request is told who asked, and since when", "is already waiting for approval" in told[-1], told)
    click = await deal.click("approval.approve", user="U0MANAGER")
    acks = await stage.again(click["request_id"])
    await deal.settled()
    await stage.until_counted(6)
    await stage.bot.kill()
    await stage.start()
    acks += await stage.again(click["request_id"])
    await deal.complete(deal.click("approval.approve", user="U0VP", stale=True))
    stage.equal("a click's ack carries nothing, however often it comes", acks, [{}] * 12)
    events = await deal.rows("SELECT event_type FROM audit_events WHERE event_type LIKE 'approval.%' ORDER BY id")
    decided = [row["event_type"] for row in events if row["event_type"] != "approval.refused"]
    one = ["approval.requested", "approval.duplicate_suppressed", "approval.approved"]
    stage.equal("one request, one decision", decided, one)
    told = await deal.whispers("U0VP")
    stage.fact("who comes second is told who decided", len(told) == 1 and "already approved by <@U0MANAGER>" in told[0], told)
    await checker.golden_deal(deal)
    await stage.audited("approval.decide", "reserved claimed approval.approved applied")
    return "one decision, who came second was told by whom"


async def slow_before_the_ack(stage: Stage) -> str:
    """FI-003: a slow service, and a slow write, before the acknowledgement."""
    deal = await stage.start(QUOTEBOT_ACK_BUDGET_SECONDS="0.5")
    await deal.arm("slack", "slow", times=2, delay=1.5)
    answer = await deal.slash()
    prompt = answer["ack"] is not None and answer["ack_ms"] < PROMPT_MS
    stage.fact("the ack waits for nothing outside", prompt, answer)
    await deal.settled()
    with stage.written_by_another():
        refused = await deal.slash()
    stage.fact("what cannot be recorded in time is refused in time", refused["ack_ms"] < 2 * PROMPT_MS, refused)
    text = str(refused["ack"] and refused["ack"]["text"])
    stage.equal("the person is told that nothing happened", text, messages.NOTHING_RECORDED)
    await deal.settled()
    stage.equal("the refused command left nothing", await stage.count("operations"), 1)
    page = (stage.folder / "bot" / "metrics.prom").read_text()
    stage.fact("ack latency is among the metrics", "# TYPE quotebot_ack_seconds histogram" in page, page)
    taken, declined = (round(each["ack_ms"]) for each in (answer, refused))
    await stage.audited("quote.create", "reserved claimed quote.created applied")
    return f"acknowledged after {taken} ms beside a slow Slack, refused after {declined} ms beside a busy ledger"


async def too_many_requests(stage: Stage) -> str:
    """FI-006: Slack answers 429."""
    deal = await stage.start()
    await deal.arm("slack", "429", method="chat.postMessage", times=3, retry_after=RETRY_AFTER_SECONDS)
    await deal.complete(deal.slash())
    posts = await deal.witness("chat.postMessage")
    stage.equal("three are refused, the fourth is taken", [post["applied"] for post in posts], [False] * 3 + [True])
    gaps = [later["at"] - earlier["at"] for earlier, later in pairwise(posts)]
    stage.fact("no request before Retry-After is over", all(gap >= RETRY_AFTER_SECONDS for gap in gaps), gaps)
    (post,) = await deal.rows("SELECT attempts FROM effects WHERE class = 'slack.post'")
    stage.fact("being told to wait burns no budget", post["attempts"] <= 1, post)
    stage.equal("there is one card", len(await deal.cards()), 1)
    stage.fact("the card shows the quote's state", "17,340.00" in await deal.card_text(), await deal.card_text())
    await stage.audited("slack.post", "claimed retry_scheduled claimed retry_scheduled claimed retry_scheduled claimed delivered")
    return "three waits kept, one card"


async def one_server_error(stage: Stage) -> str:
    """FI-007: Slack answers 5xx once."""
    deal = await stage.start()
    await deal.arm("slack", "5xx", method="chat.postMessage", times=1)
    await deal.complete(deal.slash())
    attempts = await stage.attempts("slack.post")
    ends = [row["outcome"] for row in attempts]
    stage.equal(
        "it is in doubt first, delivered in the end, given up never",
        (ends[0], ends[-1], "bury" in ends),
        ("doubt", "delivered", False),
    )
    drawn = attempts[0]["delay_ms"]
    stage.fact("the next try waits a drawn time within its backoff", 0 <= drawn <= FIRST_BACKOFF_MS, drawn)
    stage.equal(
        "two requests, one of them taken", [each["applied"] for each in await deal.witness("chat.postMessage")], [False, True]
    )
    stage.equal("there is one card", len(await deal.cards()), 1)
    await stage.audited("slack.post", "claimed uncertain claimed retry_scheduled claimed delivered")
    return f"looked for after {drawn} ms, posted once more, one card"


async def channel_gone(stage: Stage) -> str:
    """FI-008: the bot is removed from the channel."""
    deal, channels = stage.deal, stage.world.slack.directory.channels
    deals = channels["C0DEALS"]
    await stage.start()
    channels["C0DEALS"] = dataclasses.replace(deals, members=tuple(who for who in deals.members if who != BOT_USER_ID))
    await deal.complete(deal.slash())
    letter = await stage.dead_letter()
    stage.equal("the post alone is given up, at the first refusal", (letter["class"], letter["attempts"]), ("slack.post", 1))
    told = " ".join(await deal.whispers("U0REP"))
    stage.fact("the requester is told what to do", "Type `/invite @Quotebot`" in told and FIRST_QUOTE in told, told)
    stage.equal("the quote stands", await deal.rows("SELECT state FROM quotes"), [{"state": "priced"}])
    channels["C0DEALS"] = deals
    status = (await stage.quotebot("replay", letter["id"], "--wait")).status
    stage.equal("invited back, a replay posts the card", (status, len(await deal.cards())), (0, 1))
    await deal.settled()
    await stage.audited("slack.post", "claimed system.error replayed claimed delivered")
    return "one dead letter with words that help, the quote untouched, one card after the replay"


async def everything_again(stage: Stage) -> str:
    """D-2: every request is delivered again."""
    deal = await stage.start()
    requests: list[str] = []

    async def repeated(answer: Json) -> None:
        requests.append(answer["request_id"])
        await stage.again(answer["request_id"])
        await deal.settled()

    await repeated(await deal.slash())
    await repeated(await deal.click("quote.submit", user="U0REP"))
    await repeated(await deal.click("approval.approve", user="U0MANAGER"))
    await stage.until_counted(18)
    await stage.bot.kill()
    await stage.start()
    await asyncio.gather(*(stage.again(request_id) for request_id in requests))
    await deal.settled()
    await stage.until_counted(36)
    seen = await deal.rows("SELECT seen FROM deliveries")
    stage.equal("one row for each request, seen thirteen times", seen, [{"seen": 13}] * 3)
    stage.equal("one operation for each request", await stage.count("operations"), 3)
    await checker.golden_deal(deal)
    return "three requests delivered thirteen times each: three rows, one deal"


SCENARIOS: Final = (
    Scenario(
        "FI-001",
        "P0",
        ("duplicate_replay",),
        "the creation arrives again",
        "Slack delivers one `/quote new` nineteen times: racing, afterwards, and after a crash of the bot.",
        "There is one quote and one card; every duplicate is answered from the record, and counted.",
        creation_again,
    ),
    Scenario(
        "FI-002",
        "P0",
        ("duplicate_replay",),
        "the approval click arrives again",
        "Slack delivers one click on Approve thirteen times, and a second approver clicks too late.",
        "There is one decision; the late one is told who decided; the rest of the deal happens once.",
        approval_again,
    ),
    Scenario(
        "FI-003",
        "P1",
        ("timeout",),
        "something slow before the ack",
        "Slack's API hangs while a command comes in; then somebody else keeps the ledger busy for longer than an ack may take.",
        "An ack waits for nothing outside; what cannot be recorded in time is refused in time and leaves nothing.",
        slow_before_the_ack,
    ),
    Scenario(
        "FI-006",
        "P1",
        ("fail_n",),
        "Slack limits the rate three times",
        "The post of a card is answered 429 with Retry-After three times in a row.",
        "No request comes early, waiting burns no budget, and there is one card in the end.",
        too_many_requests,
    ),
    Scenario(
        "FI-007",
        "P1",
        ("fail_once",),
        "one server error of Slack",
        "The post of a card is answered 503 once.",
        "It is looked for after a drawn delay, posted once more because it is not there, and there is one card.",
        one_server_error,
    ),
    Scenario(
        "FI-008",
        "P1",
        ("always_fail",),
        "the channel is gone for the bot",
        "The bot was put out of the channel in which a quote is asked for.",
        "The post alone is a dead letter at the first refusal, with words that help; the quote stands, a replay posts its card.",
        channel_gone,
    ),
    Scenario(
        "D-2",
        "P1",
        ("duplicate_replay",),
        "every request of a deal arrives again",
        "Each request of a whole deal is delivered thirteen times, some of them after a crash of the bot.",
        "There is one row for each request and one deal.",
        everything_again,
    ),
)
