"""Failures of the installation: another process locks the ledger's file, credentials break, the disk is lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Final

from faults.checks import checker
from faults.harness.rig import eventually
from faults.lab.loop import LabClock
from faults.scenarios.stage import Scenario
from ledger import keys
from ledger.clock import SystemClock
from ledger.records import QUOTEBOT, Request, Trouble
from ledger.recovery import begin_epoch
from quotebot import __version__
from quotebot.app.installation import open_ledger
from quotebot.commands.payloads import ExpireApproval, ExpireQuote, NoteStaleDraft
from quotebot.sandbox.slack.directory import TEAM_ID
from quotebot.settings import Settings
from quotebot.views import messages

if TYPE_CHECKING:
    from faults.harness.rig import Deal
    from faults.scenarios.stage import Stage
    from ledger.ledger import Ledger

BUDGET_SECONDS: Final = 1.0
SOON_SECONDS: Final = 0.4
LOCK_WORDS: Final = ("lock", "busy", "sqlite", "database")
ACKED: Final = 4  # quotes requested and acknowledged before the backup begins
MEANWHILE: Final = 4  # and while it is being made
OPS: Final = "C0OPS"
WITHOUT_A_CARD: Final = (
    "dead_letters AS d WHERE d.status = 'pending' AND NOT EXISTS (SELECT 1 FROM ops_cards AS c"
    " WHERE c.closed_at IS NULL AND c.subject = 'cause:' || d.class || '/' || d.category || '/' || d.code)"
)
EACH: Final = 100  # dead letters of one cause
APART_SECONDS: Final = 2.0  # between two of them, so that three hundred take ten minutes
FAILED: Final[tuple[ExpireQuote | NoteStaleDraft | ExpireApproval, ...]] = (
    ExpireQuote(0),
    NoteStaleDraft(0),
    ExpireApproval("A-2020-0001-v1-1", 1),
)
LATER: Final = 2  # and after it: these are lost


async def locked(stage: Stage) -> str:
    """FI-019: the ledger is locked, briefly and for longer than the acknowledgement's budget."""
    deal = await stage.start(QUOTEBOT_ACK_BUDGET_SECONDS=str(BUDGET_SECONDS))
    with stage.locked():
        asked = asyncio.create_task(deal.slash())
        await asyncio.sleep(SOON_SECONDS)
    waited = await asked
    stage.fact("a lock that ends within the budget is waited for", waited["ack"] == {}, waited)
    await deal.settled()
    before = {table: await stage.count(table) for table in ("deliveries", "operations", "effects", "audit_events", "quotes")}
    with stage.locked():
        refused = await deal.slash("new for Brook: 10 pro")
    text = str(refused["ack"] and refused["ack"]["text"])
    stage.equal("a lock that lasts is a clean refusal", text, messages.NOTHING_RECORDED)
    await deal.settled()
    stage.equal("the refused command left nothing at all", {table: await stage.count(table) for table in before}, before)
    shown = " ".join(message["text"] for message in await deal.messages()).casefold()
    stage.fact("no lock error is shown to anybody", not any(word in shown for word in LOCK_WORDS), shown)
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    await deal.complete(deal.click("approval.approve", user="U0MANAGER"))
    await checker.golden_deal(deal)
    await stage.audited("quote.create", "reserved claimed quote.created applied")
    return "a short lock waited for, a long one refused cleanly, no partial write"


async def token_broken(stage: Stage) -> str:
    """D-3: during an upload, Slack's token is revoked and the Salesforce session ends."""
    deal = await stage.start()
    await deal.submitted_deal()
    # a session that expires after the record is written
    await deal.arm("salesforce", "auth_expired", method="sobjects/ContentVersion", times=1)
    await deal.arm("slack", "auth_expired", method="files.completeUploadExternal", seconds=600)
    await deal.click("approval.approve", user="U0MANAGER")
    held = "gates WHERE name = 'slack' AND state = 'held' AND cause = 'auth'"
    await eventually(lambda: stage.count(held), "Slack's classes to be held", holds=lambda count: count == 1)
    (upload,) = await deal.rows(
        "SELECT state, attempts, json_extract(steps, '$.uploaded') IS NOT NULL AS uploaded FROM effects WHERE class = 'slack.file'"
    )
    expected = {"state": "pending", "attempts": 0, "uploaded": True}
    stage.equal("the upload waits half done, its steps recorded, no attempt burnt", upload, expected)
    stage.equal("nobody sees half a file", await deal.files(), [])
    told = (await stage.quotebot("gates")).out
    stage.fact("the operator is told what waits and what to do", "quotebot resume slack" in told, told)
    stage.equal("nothing was given up", await stage.count("dead_letters"), 0)
    await deal.clear_faults()
    stage.equal("the token restored, Slack is resumed", (await stage.quotebot("resume", "slack")).status, 0)
    await deal.settled()
    stage.equal("the bytes went out once", len(await deal.witness("upload")), 1)
    stage.equal("the session that ended was renewed once", len(await deal.witness("oauth2/token")), 2)
    await checker.golden_deal(deal)
    return "held half done with every step recorded, resumed, one file, one record"


async def twice(deal: Deal) -> list[str]:
    """Return the keys and names that exist more than once in the external services."""
    keys = Counter(message["metadata"]["event_payload"]["key"] for message in await deal.messages() if message.get("metadata"))
    names = Counter(file["name"] for file in await deal.files())
    records = Counter(record["Quotebot_Key__c"] for record in await deal.crm())
    return [name for counted in (keys, names, records) for name, times in counted.items() if times > 1]


async def restored(stage: Stage) -> str:
    """D-5: the disk is lost and the ledger restored from a backup."""
    deal = await stage.start()
    await deal.submitted_deal()
    await deal.arm("slack", "slow", method="chat.postMessage", delay=2, times=6)
    await deal.arm("salesforce", "slow", delay=2, times=1)
    await deal.click("approval.approve", user="U0MANAGER")
    told = [await deal.slash(f"new for Early {number}: 5 pro") for number in range(ACKED)]
    stage.fact("what came before the backup was acknowledged", all(answer["ack"] is not None for answer in told), told)
    backing = asyncio.create_task(stage.quotebot("backup", "--to", str(stage.folder / "kept"), "--json"))
    await asyncio.gather(*(deal.slash(f"new for Meanwhile {number}: 5 pro") for number in range(MEANWHILE)))
    made = await backing
    stage.equal("it was backed up while it worked", made.status, 0)
    await deal.clear_faults()
    for number in range(LATER):
        await deal.slash(f"new for Later {number}: 5 pro")
    await deal.settled()
    cards = len(await deal.cards())
    stage.equal("everything asked for was done before the disk is lost", cards, 1 + ACKED + MEANWHILE + LATER)
    await stage.bot.kill()
    for file in stage.ledger_path.parent.glob("ledger.db*"):
        file.unlink()
    done = await stage.quotebot("restore", made.data["path"], "--yes", "--json")
    stage.equal("the backup is put back", (done.status, done.status or done.data["generation"]), (0, 2))
    await stage.start()
    await deal.settled()
    early = "quotes WHERE account LIKE 'Early%'"
    stage.equal("no command that was acknowledged before the backup is lost", await stage.count(early), ACKED)
    stage.equal("nothing outside is there twice", await twice(deal), [])
    stage.equal("and no card was posted again", len(await deal.cards()), cards)
    stage.equal("nothing had to be given up", await stage.count("dead_letters"), 0)
    await deal.complete(deal.slash("new for After: 5 pro"))
    (row,) = await deal.rows("SELECT quote_id FROM quotes WHERE account = 'After'")
    shown = json.dumps([message["text"] for message in await deal.cards()][:-1])
    stage.fact("a new quote has a number that nobody saw before", row["quote_id"] not in shown, row)
    return f"{made.data['tables']['operations']} commands back, each deed outside once, new numbers above all that were seen"


async def login_refused(stage: Stage) -> str:
    """D-6: Salesforce refuses the login for an hour; the operator mends it."""
    deal = await stage.start(QUOTEBOT_OPS_CHANNEL=OPS)
    await deal.submitted_deal()
    await deal.arm("salesforce", "auth_expired", method="oauth2/token", seconds=3600)
    await deal.click("approval.approve", user="U0MANAGER")

    async def cards() -> list[str]:
        return [message["text"] for message in (await deal.get("state"))["messages"] if message["channel"] == OPS]

    await eventually(cards, "the card of the pause")
    paused = await cards()
    stage.fact("the card names the service and the cause", paused[0].startswith("Salesforce is paused: login refused"), paused)
    stage.equal("the pause is audited once", await stage.count("audit_events WHERE event_type = 'class.paused'"), 1)
    alerts = [line for line in stage.bot.said().splitlines() if "class.paused" in line and "error" in line]
    stage.equal("one line of the log alerts the operator", len(alerts), 1)
    stage.equal("nothing was given up", await stage.count("dead_letters"), 0)
    await deal.clear_faults()
    stage.equal("the login mended, Salesforce is resumed", (await stage.quotebot("resume", "crm")).status, 0)
    await eventually(cards, "the card to be closed", holds=lambda texts: texts == ["Salesforce works again"])
    await deal.settled()
    await checker.golden_deal(deal)
    return "one alert, one card that follows the resume, everything delivered once"


async def give_up(ledger: Ledger, payload: ExpireQuote | NoteStaleDraft | ExpireApproval, number: int) -> None:
    """Reserve a command of the scheduler about a quote that does not exist, and give it up as a bug."""
    request_id = f"{payload.kind}:{number}"
    await ledger.reserve(
        Request(
            source="scheduler",
            source_request_id=request_id,
            action_kind=payload.kind,
            aggregate_id=f"Q-2020-{number:04}",
            aggregate_version=None,
            payload=payload.canonical(),
            fingerprint=keys.digest(["quotebot/drill/1", request_id]),
            actor=QUOTEBOT,
            actor_type="system",
            team_id=TEAM_ID,
            received_at=ledger.clock.now_ms(),
        )
    )
    command = await ledger.claim_operation()
    assert command is not None  # noqa: S101 -- it was just reserved
    trouble = Trouble("internal", "The command could not be executed.", code="bug")
    await ledger.fail_operation(command, trouble, {"code": "failed"}, ())


async def three_hundred_dead_letters(stage: Stage) -> str:
    """D-7: three hundred commands fail within ten minutes, for three causes; an operator replays each cause."""
    deal = await stage.start(QUOTEBOT_OPS_CHANNEL=OPS)
    await deal.settled()
    await stage.bot.stop()
    clock = LabClock(SystemClock().now_ms() - round(len(FAILED) * EACH * APART_SECONDS * 1000))
    async with open_ledger(
        Settings(_env_file=None, data_dir=stage.ledger_path.parent, ledger_url=stage.database, ledger_durability="local"), clock
    ) as ledger:
        ledger.epoch = await begin_epoch(ledger.database, clock.now_ms(), role="cli", build=__version__)
        for number in range(EACH):
            for offset, payload in enumerate(FAILED):
                clock.advance(APART_SECONDS)
                await give_up(ledger, payload, number * len(FAILED) + offset)
    await stage.start(QUOTEBOT_OPS_CHANNEL=OPS)
    causes = [f"{payload.kind}/internal/bug" for payload in FAILED]

    async def cards(words: str) -> int:
        return sum(words in message["text"] for message in (await deal.get("state"))["messages"] if message["channel"] == OPS)

    await eventually(lambda: cards(f"{EACH} jobs: "), "a card of each cause", holds=lambda count: count == len(FAILED))
    stage.equal("every dead letter is on the card of its cause", await stage.count(WITHOUT_A_CARD), 0)
    stage.equal("all of them wait", await stage.count("dead_letters WHERE status = 'pending'"), EACH * len(FAILED))
    for cause in causes:
        done = await stage.quotebot("replay", "--cause", cause, "--yes", "--json")
        stage.equal(f"{cause} is replayed", done.status, 0)
    await eventually(lambda: cards("all done"), "the cards to be closed", holds=lambda count: count == len(FAILED))
    await deal.settled()
    stage.equal("no dead letter is left", await stage.count("dead_letters WHERE status = 'pending'"), 0)
    stage.equal("each command was executed once", await stage.count("operations WHERE cycle = 2 AND state = 'completed'"), 300)
    return "one card per cause, every letter on one, each cause emptied by one replay"


SCENARIOS: Final = (
    Scenario(
        "FI-019",
        "P1",
        ("timeout",),
        "somebody else locks the ledger",
        "Another program holds SQLite's exclusive lock, first for a moment, then for longer than an ack may take.",
        "The moment is waited for, the long lock is a clean refusal: no partial write, and nobody reads of a lock.",
        locked,
    ),
    Scenario(
        "D-3",
        "P1",
        ("fail_once",),
        "a token breaks during a deal",
        "Slack's token is revoked between two calls of an upload and Salesforce ends the session; an operator restores the token.",
        "What is half done is recorded and held, nothing is given up, and after the resume everything is there once.",
        token_broken,
    ),
    Scenario(
        "D-5",
        "P1",
        ("crash_after",),
        "the disk is lost, a backup is put back",
        "A backup is made while quotes are asked for and owed deeds are under way; all of it is done, then the bot dies and its "
        "ledger is gone. The backup is put back.",
        "No command acknowledged before the backup is lost, nothing outside is done twice, no quote number is given out again.",
        restored,
        needs_file=True,
    ),
    Scenario(
        "D-6",
        "P1",
        ("always_fail",),
        "Salesforce refuses the login",
        "The login is refused for an hour while a quote is approved; an operator mends it and resumes the class.",
        "One alert and one card in the operators' channel, nothing is given up, and after the resume everything is there once.",
        login_refused,
    ),
    Scenario(
        "D-7",
        "P1",
        ("always_fail",),
        "three hundred dead letters",
        "Three hundred commands are given up within ten minutes, for three causes; an operator replays one cause after the other.",
        "One card per cause with its count, no dead letter without a card, and three replays empty everything.",
        three_hundred_dead_letters,
    ),
)
