"""Tests of follow-up effects after settlement, with the real performer's decisions and without any call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from adapters.slack.api import SharedFile
from ledger import recovery
from ledger.claims import POISON_CLAIMS
from ledger.gates import family
from ledger.operator.actions import cancel_effect
from ledger.records import Delivered, Fail, Hold, Retry, Trouble, Uncertain
from quotebot import effects
from quotebot.app.installation import dead_letters
from quotebot.commands.payloads import CancelQuote, DecideApproval, ReviseQuote, SubmitQuote
from quotebot.dispatch.documents import LATE_MS, TICKET, UPLOADED
from quotebot.dispatch.registry import follow_ups
from quotebot.domain.pricing.price_requests import Changes
from quotebot.execution.executor import Executor, failure_answer
from quotebot.store import quotes
from quotebot.views.document import Seller, document_set, seller_of
from tests.quotebot.parts import MATRIX, RULES, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Effect, Settlement
    from quotebot.commands.registry import Payload
    from quotebot.dispatch.services import EffectHandlers
    from tests.quotebot.parts import Bench

SETTLE_MS = 30_000
SELLER = Seller("Seller Before", ())
OUTAGE = Trouble("transient", "Salesforce did not answer.", maybe_sent=True)


def performer_of(bench: Bench) -> EffectHandlers:
    return handlers_of(bench, settle_delay_seconds=SETTLE_MS / 1000)


async def claimed(bench: Bench, effect_class: str) -> Effect:
    """Claim the one due effect of this class."""
    (effect,) = await bench.ledger.claim_effects({effect_class: 1})
    return effect


async def settle(bench: Bench, effect_class: str, settlement: Settlement) -> None:
    await bench.ledger.settle(await claimed(bench, effect_class), settlement, performer_of(bench).follow_ups)


def executor_of(bench: Bench) -> Executor:
    return Executor(bench.ledger, replace(RULES, documents=document_set(SELLER)), lambda low, _: low, MATRIX)


async def approve(bench: Bench, *, submitter: str = "U0REP", card_channel: str | None = None) -> str:
    """Make an approved quote whose card is posted; return its id."""
    executor = executor_of(bench)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    await settle(bench, effects.POST, Delivered("1700000000.000100", {}))
    quote_id: str = bench.row("SELECT quote_id FROM quotes")["quote_id"]
    if card_channel is not None:
        now = bench.clock.now_ms()
        await bench.ledger.database.write("move", lambda tx: quotes.move_card(tx, quote_id, card_channel, now))
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id=quote_id, version=1, actor=submitter))
    await executor.step()
    approval = bench.row("SELECT approval_id FROM approvals")["approval_id"]
    decision = DecideApproval(approval, "approve")
    await bench.ledger.reserve(request_for(decision, "3", quote_id=quote_id, version=1, actor="U0MANAGER"))
    await executor.step()
    return quote_id


@pytest.fixture
async def approved(bench: Bench) -> str:
    """Make an approved quote whose card is posted; return its id."""
    return await approve(bench)


async def drawn(bench: Bench, settlement: Settlement) -> None:
    """Settle the due card."""
    await settle(bench, effects.CARD, settlement)


async def test_the_posted_root_becomes_the_quotes_thread(bench: Bench, approved: str) -> None:
    assert bench.row("SELECT thread_ts FROM quotes WHERE quote_id = ?", approved)["thread_ts"] == "1700000000.000100"


async def test_rendered_pdf_enqueues_its_upload_and_a_new_card(bench: Bench, approved: str) -> None:
    await settle(bench, effects.RENDER, Delivered("f" * 64, {"sha256": "f" * 64}))
    shares = bench.rows("SELECT payload FROM effects WHERE class = 'slack.file'")
    assert len(shares) == 1
    assert approved in shares[0]["payload"]
    assert len(bench.rows("SELECT 1 FROM effects WHERE class = 'slack.card' AND state = 'pending'")) == 1


def thread(bench: Bench) -> list[str]:
    """Return the notices of the approved quote's thread after the one that asked for approval."""
    posts = bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' ORDER BY id")
    return [json.loads(post["payload"])["text"] for post in posts[2:]]


async def test_an_approved_version_keeps_the_policys_names_of_its_special_terms(bench: Bench) -> None:
    executor, asked = executor_of(bench), create_command("5")
    await bench.ledger.reserve(request_for(replace(asked, request=replace(asked.request, terms=("net_60",))), "1"))
    await executor.step()
    await settle(bench, effects.POST, Delivered("1700000000.000100", {}))
    quote_id: str = bench.row("SELECT quote_id FROM quotes")["quote_id"]
    await bench.ledger.reserve(request_for(SubmitQuote(), "2", quote_id=quote_id, version=1))
    await executor.step()
    content = await bench.ledger.database.read(lambda tx: quotes.document_set_of(tx, quote_id, 1))
    assert content is not None
    assert seller_of(content).clauses["net_60"]["de"][0] == "60 Tage Zahlungsziel"


APPROVED = "was approved by <@U0MANAGER> (Sales Manager), "
HELD = Hold(Trouble("auth", "Slack refused files.completeUploadExternal (missing_scope)."))
RENDERED = Delivered("f" * 64, {"sha256": "f" * 64})


@dataclass(slots=True)
class Uploads:
    """Slack's completing call; the bytes of its files are there already."""

    comments: list[str] = field(default_factory=list)

    async def may_post(self, _channel: str) -> bool:
        return True

    async def complete_upload(self, *, file_id: str, comment: str, **_: object) -> SharedFile:
        self.comments.append(comment)
        return SharedFile(file_id, "https://files.example/F1")


async def uploaded(bench: Bench) -> str:
    """Perform the due upload and settle it; return the comment of the file."""
    upload, slack = await claimed(bench, effects.FILE), Uploads()
    steps: dict[str, dict[str, Any]] = {TICKET: {"file_id": "F1"}, UPLOADED: {"bytes": 1}}
    for name, value in steps.items():
        upload = await bench.ledger.record_step(upload, name, value)
    performer = handlers_of(bench, slack=slack, channels=slack)
    await bench.ledger.settle(upload, await performer.perform(upload), performer.follow_ups)
    return slack.comments[0]


async def resolved(bench: Bench, *, delivered: bool) -> None:
    """Let an operator tell whether the upload was delivered."""
    row = bench.row("SELECT id FROM effects WHERE class = 'slack.file'")
    follow, letters = performer_of(bench).follow_ups, dead_letters(bench.ledger)
    ref = "F1" if delivered else None
    ruling = await letters.resolve(str(row["id"]), delivered=delivered, actor="ops", reason="seen", follow=follow, external_ref=ref)
    assert ruling.verdict == "done"


async def test_only_the_comment_of_the_pdf_tells_the_approval(bench: Bench, approved: str) -> None:
    await settle(bench, effects.RENDER, RENDERED)
    told, facts = (await uploaded(bench)).split("\n")
    assert told.startswith(f"<@U0REP> ✅ {approved} {APPROVED}")
    assert facts.startswith(f"{approved} v1 · ")
    assert thread(bench) == []


async def test_comment_of_an_uncertain_upload_sent_again_tells_the_approval(bench: Bench, approved: str) -> None:
    await settle(bench, effects.RENDER, RENDERED)
    await settle(bench, effects.FILE, Uncertain(OUTAGE, 1000))
    await resolved(bench, delivered=False)
    assert (await uploaded(bench)).startswith(f"<@U0REP> ✅ {approved} {APPROVED}")
    assert [text for text in thread(bench) if APPROVED in text] == []


async def test_upload_sent_again_long_after_is_not_what_tells_the_approval(bench: Bench, approved: str) -> None:
    await settle(bench, effects.RENDER, RENDERED)
    await settle(bench, effects.FILE, Uncertain(OUTAGE, 1000))
    bench.clock.advance(LATE_MS)
    await resolved(bench, delivered=False)
    (told,) = thread(bench)
    assert told.startswith(f"<@U0REP> ✅ {approved} {APPROVED}")
    assert APPROVED not in await uploaded(bench)


@pytest.mark.parametrize("effect_class", [effects.RENDER, effects.FILE])
@pytest.mark.parametrize("late", [HELD, Retry(OUTAGE, LATE_MS), Retry(Trouble("throttled", "Wait."), LATE_MS, spent=False)])
async def test_a_notice_tells_the_approval_once_if_the_pdf_is_late(
    bench: Bench, approved: str, effect_class: str, late: Settlement
) -> None:
    if effect_class == effects.FILE:
        await settle(bench, effects.RENDER, RENDERED)
    await settle(bench, effect_class, late)
    (told,) = thread(bench)
    assert told.startswith(f"<@U0REP> ✅ {approved} {APPROVED}")
    await bench.ledger.resume(family(effect_class), "ops")
    bench.clock.advance(LATE_MS)
    await settle(bench, effect_class, HELD)
    await bench.ledger.resume(family(effect_class), "ops")
    if effect_class == effects.RENDER:
        await settle(bench, effects.RENDER, RENDERED)
    assert APPROVED not in await uploaded(bench)
    assert thread(bench) == [told]


async def test_a_pdf_that_is_retried_soon_still_tells_the_approval(bench: Bench, approved: str) -> None:
    await settle(bench, effects.RENDER, Retry(OUTAGE, 1000))
    bench.clock.advance(1000)
    await settle(bench, effects.RENDER, RENDERED)
    await settle(bench, effects.FILE, Retry(OUTAGE, 0))
    assert thread(bench) == []
    assert (await uploaded(bench)).startswith(f"<@U0REP> ✅ {approved} {APPROVED}")


async def test_a_notice_tells_the_approval_while_uploads_are_paused(bench: Bench, approved: str) -> None:
    await bench.ledger.pause(effects.FILE, "ops", "no room")
    await settle(bench, effects.RENDER, RENDERED)
    (told,) = thread(bench)
    assert told.startswith(f"<@U0REP> ✅ {approved} {APPROVED}")
    await bench.ledger.resume(effects.FILE, "ops")
    assert APPROVED not in await uploaded(bench)


@pytest.mark.parametrize("told_before", [False, True])
async def test_mark_of_a_replaced_pdf_repeats_its_comment_alone(bench: Bench, approved: str, *, told_before: bool) -> None:
    await settle(bench, effects.RENDER, RENDERED)
    if told_before:
        await settle(bench, effects.FILE, HELD)
        await bench.ledger.resume(family(effects.FILE), "ops")
    assert (APPROVED in await uploaded(bench)) is not told_before
    change = ReviseQuote(Changes(discount_percent=Decimal(12)))
    await bench.ledger.reserve(request_for(change, "4", quote_id=approved, version=1))
    await executor_of(bench).step()
    (mark,) = bench.rows("SELECT payload FROM effects WHERE class = 'slack.card' AND payload LIKE '%\"replaced\"%'")
    assert json.loads(mark["payload"]).get("announces", False) is not told_before


async def test_a_notice_tells_the_approval_while_rendering_is_paused(bench: Bench) -> None:
    await bench.ledger.pause(effects.RENDER, "ops", "new templates")
    quote_id = await approve(bench)
    (told,) = thread(bench)
    assert told.startswith(f"<@U0REP> ✅ {quote_id} {APPROVED}")
    await bench.ledger.resume(effects.RENDER, "ops")
    await settle(bench, effects.RENDER, RENDERED)
    assert APPROVED not in await uploaded(bench)
    assert thread(bench) == [told]


@pytest.mark.parametrize("change", [ReviseQuote(Changes(discount_percent=Decimal(12))), CancelQuote("not wanted")])
async def test_pdf_of_a_version_that_is_no_longer_valid_announces_nothing(bench: Bench, approved: str, change: Payload) -> None:
    await settle(bench, effects.RENDER, RENDERED)
    await bench.ledger.reserve(request_for(change, "4", quote_id=approved, version=1))
    await executor_of(bench).step()
    (changed,) = thread(bench)
    assert (await uploaded(bench)).startswith(f"{approved} v1 · ")
    assert thread(bench) == [changed]


@pytest.mark.parametrize("told_before", [False, True])
async def test_submitter_is_told_once_beside_a_card_in_a_direct_message(bench: Bench, *, told_before: bool) -> None:
    quote_id = await approve(bench, submitter="U0PEER", card_channel="D0REP")
    await settle(bench, effects.RENDER, RENDERED)
    await settle(bench, effects.FILE, Fail(replace(OUTAGE, category="uncertain")) if told_before else Uncertain(OUTAGE, 1000))
    if told_before:  # the notices in the thread: of the request, of the approval, of the failure
        for ts in ("1700000000.000200", "1700000000.000300", "1700000000.000400"):
            await settle(bench, effects.POST, Delivered(ts, {}))
    await resolved(bench, delivered=True)
    told = bench.rows("SELECT payload FROM effects WHERE class = 'slack.reply' AND target = 'U0PEER'")
    assert len([reply for reply in told if f"{quote_id} {APPROVED}" in json.loads(reply["payload"])["text"]]) == 1


@pytest.mark.parametrize("effect_class", [effects.RENDER, effects.FILE])
async def test_a_notice_tells_the_approval_once_if_the_pdf_fails_for_good(bench: Bench, approved: str, effect_class: str) -> None:
    if effect_class == effects.FILE:
        await settle(bench, effects.RENDER, Delivered("f" * 64, {"sha256": "f" * 64}))
    await settle(bench, effect_class, Fail(OUTAGE))
    told, failed = thread(bench)
    assert told.startswith(f"<@U0REP> ✅ {approved} was approved by <@U0MANAGER> (Sales Manager), ")
    assert "The PDF for " in failed
    (letter,) = bench.rows("SELECT id FROM dead_letters")
    letters = dead_letters(bench.ledger)
    await letters.discard(str(letter["id"]), actor="ops", reason="no use", follow=performer_of(bench).follow_ups)
    assert thread(bench) == [told, failed]


async def test_a_notice_tells_the_approval_if_the_pdf_is_cancelled(bench: Bench, approved: str) -> None:
    pdf, follow = bench.row("SELECT id FROM effects WHERE class = 'pdf.render'")["id"], performer_of(bench).follow_ups

    def cancel(tx: Tx) -> None:
        cancel_effect(bench.ledger, tx, pdf, actor="ops", reason="no use", now=bench.clock.now_ms(), follow=follow)

    await bench.ledger.database.write("cancel", cancel)
    (told,) = thread(bench)
    assert told.startswith(f"<@U0REP> ✅ {approved} was approved by ")


async def test_first_failure_updates_the_card_to_pending_retry_and_later_ones_do_not(bench: Bench, approved: str) -> None:
    waiting = "SELECT 1 FROM effects WHERE class = 'slack.card' AND state = 'pending'"
    await drawn(bench, Delivered(None, {}))
    await settle(bench, effects.CRM, Retry(Trouble("throttled", "Too many requests."), 0, spent=False))
    assert bench.rows(waiting) == []
    await settle(bench, effects.CRM, Retry(OUTAGE, 0))
    assert len(bench.rows(waiting)) == 1
    await drawn(bench, Delivered(None, {}))
    await settle(bench, effects.CRM, Retry(OUTAGE, 500))
    assert bench.rows(waiting) == []
    assert approved


async def test_a_pause_is_shown_on_the_card(bench: Bench, approved: str) -> None:
    await drawn(bench, Delivered(None, {}))
    await settle(bench, effects.CRM, Hold(Trouble("auth", "The login expired.")))
    assert len(bench.rows("SELECT 1 FROM effects WHERE class = 'slack.card' AND state = 'pending'")) == 1
    assert approved


async def test_dead_letter_enqueues_a_card_and_one_notice_in_the_thread(bench: Bench, approved: str) -> None:
    before = len(bench.rows("SELECT 1 FROM effects WHERE class = 'slack.post'"))
    await settle(bench, effects.CRM, Fail(OUTAGE))
    notices = bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' ORDER BY id")
    assert len(notices) == before + 1
    assert " failed: " in notices[-1]["payload"]
    assert approved in notices[-1]["payload"]


async def test_card_is_drawn_again_after_the_settle_delay_when_an_update_was_lost(bench: Bench, approved: str) -> None:
    await drawn(bench, Retry(Trouble("transient", "No answer.", maybe_sent=True), 0))
    await drawn(bench, Delivered(None, {}))
    again = bench.row("SELECT * FROM effects WHERE class = 'slack.card' AND state = 'pending'")
    assert again["not_before"] == bench.clock.now_ms() + SETTLE_MS
    assert again["supersede_key"] is None  # a card drawn meanwhile must not supersede it
    assert json.loads(again["payload"])["always"]  # sent though it is unchanged
    await settle(bench, effects.CRM, Delivered("0Q0", {}))  # enqueues another card, which the later one does not block
    await drawn(bench, Delivered(None, {}))
    bench.clock.advance(SETTLE_MS)
    await drawn(bench, Delivered(None, {}))
    assert bench.rows("SELECT 1 FROM effects WHERE class = 'slack.card' AND state = 'pending'") == []
    assert approved


async def test_requester_is_notified_in_private_when_the_card_cannot_be_posted(bench: Bench) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    await settle(bench, effects.POST, Fail(Trouble("not_found", "Slack refused chat.postMessage (not_in_channel).")))
    (told,) = bench.rows("SELECT target, payload FROM effects WHERE class = 'slack.reply'")
    assert told["target"] == "U0REP"
    assert "couldn't be posted here" in told["payload"]
    assert "Type `/invite @Quotebot`" in told["payload"]


async def test_poisoned_crm_write_posts_a_notice(bench: Bench, approved: str) -> None:
    ledger = bench.ledger
    for _ in range(POISON_CLAIMS):
        await ledger.claim_effects({effects.CRM: 1})
        ledger = await bench.another_bot()
        await recovery.take_back(ledger, follow=lambda tx, effect: follow_ups(tx, effect, bench.clock.now_ms()))
    assert bench.row("SELECT state, category FROM effects WHERE class = 'crm.create'") == {"state": "failed", "category": "poison"}
    notices = bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' ORDER BY id")
    assert " failed: " in notices[-1]["payload"]
    assert approved


async def test_the_person_of_a_poisoned_command_is_answered(bench: Bench) -> None:
    await bench.ledger.reserve(request_for(create_command(), "1"))
    ledger = bench.ledger
    for _ in range(POISON_CLAIMS):
        await ledger.claim_operation()
        ledger = await bench.another_bot()
        await recovery.take_back(ledger, answer=lambda tx, op: failure_answer(tx, op, "it died", bench.clock.now_ms()))
    assert bench.row("SELECT state, category FROM operations") == {"state": "failed_terminal", "category": "poison"}
    answer = bench.row("SELECT class, target, payload FROM effects")
    assert (answer["class"], answer["target"]) == ("slack.reply", "U0REP")
    assert "Something went wrong" in answer["payload"]
