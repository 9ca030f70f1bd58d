"""Tests of the lifecycle commands on a real ledger: one transaction each, executed once despite redeliveries and replays."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.records import DedupeResult, Delivered
from ledger.retention import purge
from quotebot import effects
from quotebot.app.installation import dead_letters
from quotebot.commands.payloads import (
    AcceptQuote,
    CancelQuote,
    CloneQuote,
    DecideApproval,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    ReviseQuote,
    SubmitQuote,
)
from quotebot.dispatch.registry import follow_ups
from quotebot.dispatch.slack_card import QuoteCards
from quotebot.domain.pricing.price_requests import Changes
from quotebot.domain.rules import KEEP_CLOSED_MS, KEEP_REFUSED_MS
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.execution.executor import Executor
from quotebot.store import quotes as store
from tests.quotebot.access_parts import viewer
from tests.quotebot.parts import MATRIX, RULES, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from ledger.records import Effect, Request
    from quotebot.commands.registry import Payload
    from tests.quotebot.parts import Bench

QUOTE = "Q-2026-0001"
DISCOUNT_8 = ReviseQuote(Changes(discount_percent=Decimal(8)))

# The steps to a state, then each command with its final state, version and effects.
TO_SENT: tuple[tuple[Payload, str], ...] = (
    (SubmitQuote(), "U0REP"),
    (DecideApproval("A-2026-0001-v1-1", "approve"), "U0MANAGER"),
    (FinalizeQuote(), "U0REP"),
    (MarkSent("buyer@acme.example"), "U0REP"),
)
COMMANDS: dict[str, tuple[int, Payload, str, int]] = {
    "revise what is priced": (0, DISCOUNT_8, "priced", 2),
    "revise what waits for approval": (1, DISCOUNT_8, "priced", 2),
    "revise what is approved": (2, DISCOUNT_8, "priced", 2),
    "revise what is sent": (4, DISCOUNT_8, "priced", 2),
    "cancel": (1, CancelQuote("not wanted"), "cancelled", 1),
    "finalize": (2, FinalizeQuote(), "finalized", 1),
    "mark sent": (3, MarkSent("buyer@acme.example"), "sent", 1),
    "accept": (4, AcceptQuote(), "accepted", 1),
    "lose": (4, LoseQuote("too expensive"), "lost", 1),
}
CLOSES = ("cancel", "accept", "lose")


@pytest.fixture
def executor(bench: Bench) -> Executor:
    return Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)


async def done(bench: Bench, executor: Executor, request: Request) -> dict[str, Any]:
    """Reserve and execute one command; return its operation's row."""
    operation = (await bench.ledger.reserve(request)).operation
    while await executor.step():
        pass
    return bench.row("SELECT * FROM operations WHERE id = ?", operation.id)


def typed(bench: Bench, payload: Payload, request_id: str, **changes: Any) -> Request:
    values = {"source": "slack_slash", "received_at": bench.clock.now_ms(), **changes}
    return request_for(payload, request_id, quote_id=QUOTE, version=None, **values)


async def brought(bench: Bench, executor: Executor, steps: int) -> None:
    """Create the golden quote and take it `steps` steps towards sent."""
    await done(bench, executor, request_for(create_command(), "create"))
    for number, (payload, actor) in enumerate(TO_SENT[:steps]):
        row = await done(bench, executor, typed(bench, payload, f"step {number}", actor=actor))
        assert row["outcome"] == "applied", row


def standing(bench: Bench) -> tuple[str, int]:
    row = bench.row("SELECT state, version FROM quotes WHERE quote_id = ?", QUOTE)
    return row["state"], row["version"]


def rows(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    """Return all rows that a command may change, without the counts of deliveries."""
    tables = (
        "quotes",
        "quote_versions",
        "superseded_versions",
        "quote_freezings",
        "quote_sendings",
        "quote_closings",
        "approvals",
        "effects",
    )
    return {table: bench.rows(f"SELECT * FROM {table}") for table in tables}  # noqa: S608 -- own table names


# ------------------------------------------------------------------------------------------------------------------- once


@pytest.mark.parametrize("case", COMMANDS)
async def test_a_command_is_applied_in_one_transaction_with_its_card_and_notice(
    bench: Bench, executor: Executor, case: str
) -> None:
    steps, payload, state, version = COMMANDS[case]
    await brought(bench, executor, steps)
    row = await done(bench, executor, typed(bench, payload, "it"))
    assert (row["state"], row["outcome"]) == ("completed", "applied")
    assert standing(bench) == (state, version)
    owed = bench.rows("SELECT class FROM effects WHERE operation_id = ? ORDER BY id", row["id"])
    asked = ["slack.direct_card"] if steps == 1 else []  # the direct message to the approver follows
    told = [] if state in ("finalized", "sent") else ["slack.post"]  # these two are on the card alone
    assert [effect["class"] for effect in owed] == ["slack.card", *told, *asked]


@pytest.mark.parametrize("case", COMMANDS)
async def test_a_command_that_is_delivered_five_times_is_applied_once(bench: Bench, executor: Executor, case: str) -> None:
    steps, payload, state, version = COMMANDS[case]
    await brought(bench, executor, steps)
    request = typed(bench, payload, "it")
    sightings = [(await bench.ledger.reserve(request)).sighting for _ in range(3)]
    while await executor.step():
        pass
    after = rows(bench)
    sightings += [(await bench.ledger.reserve(request)).sighting for _ in range(2)]
    assert not await executor.step()
    assert sightings == [DedupeResult.NEW, *[DedupeResult.DUPLICATE] * 4]
    assert (rows(bench), standing(bench)) == (after, (state, version))
    await bench.ledger.noted()


@pytest.mark.parametrize("case", COMMANDS)
async def test_the_same_command_under_another_request_is_refused_or_changes_nothing_more(
    bench: Bench, executor: Executor, case: str
) -> None:
    steps, payload, state, version = COMMANDS[case]
    await brought(bench, executor, steps)
    await done(bench, executor, typed(bench, payload, "it"))
    again = await done(bench, executor, typed(bench, payload, "again"))
    assert (again["outcome"], standing(bench)) == ("refused", (state, version))
    assert json.loads(again["response"])["code"] in ("wrong_state", "no_change")


async def _given_up(bench: Bench, executor: Executor, request: Request) -> str:
    """Fail the command for good, with a simulated bug; return its reference."""
    bench.rows("CREATE TRIGGER a_bug BEFORE UPDATE ON quotes BEGIN SELECT RAISE(ABORT, 'a bug'); END")
    row = await done(bench, executor, request)
    bench.clock.advance(600_000)
    while await executor.step():
        pass
    assert bench.row("SELECT state FROM operations WHERE id = ?", row["id"])["state"] == "failed_terminal"
    bench.rows("DROP TRIGGER a_bug")
    return f"op{row['id']}"


async def _replayed(bench: Bench, executor: Executor, reference: str) -> dict[str, Any]:
    await dead_letters(bench.ledger).replay(
        reference, actor="operator", reason="fixed", follow=lambda tx, effect: follow_ups(tx, effect, bench.clock.now_ms())
    )
    while await executor.step():
        pass
    return bench.row("SELECT * FROM operations WHERE id = ?", int(reference.removeprefix("op")))


@pytest.mark.parametrize("case", COMMANDS)
async def test_a_command_that_failed_is_applied_once_by_its_replay(bench: Bench, executor: Executor, case: str) -> None:
    steps, payload, state, version = COMMANDS[case]
    await brought(bench, executor, steps)
    before = standing(bench)
    reference = await _given_up(bench, executor, typed(bench, payload, "it"))
    assert standing(bench) == before
    row = await _replayed(bench, executor, reference)
    assert (row["outcome"], standing(bench)) == ("applied", (state, version))


async def test_a_replay_after_the_last_day_accepts_nothing(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 4)
    reference = await _given_up(bench, executor, typed(bench, AcceptQuote(), "it"))
    bench.clock.advance(30 * DAY_MS)
    row = await _replayed(bench, executor, reference)
    assert (row["outcome"], json.loads(row["response"])["code"]) == ("refused", "expired")
    assert standing(bench) == ("sent", 1)


async def test_a_yes_that_came_in_time_counts_however_late_it_is_executed(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 4)
    until = bench.row("SELECT valid_until FROM quotes")["valid_until"]
    bench.clock.ms = until - 1
    reserved = await bench.ledger.reserve(typed(bench, AcceptQuote(), "it"))
    bench.clock.ms = until + DAY_MS
    while await executor.step():
        pass
    assert bench.row("SELECT outcome FROM operations WHERE id = ?", reserved.operation.id)["outcome"] == "applied"


async def test_of_two_simultaneous_customer_answers_only_the_first_counts(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 4)
    for payload, name in ((LoseQuote("too expensive"), "no"), (AcceptQuote(), "yes")):
        await bench.ledger.reserve(typed(bench, payload, name))
    while await executor.step():
        pass
    ends = bench.rows("SELECT outcome FROM operations WHERE action_kind IN ('quote.lose', 'quote.accept') ORDER BY id")
    assert [row["outcome"] for row in ends] == ["applied", "refused"]
    assert bench.row("SELECT state, reason FROM quote_closings") == {"state": "lost", "reason": "too expensive"}


async def test_a_typed_change_is_about_the_version_that_was_the_head_when_it_was_typed(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 2)
    await bench.ledger.reserve(typed(bench, DISCOUNT_8, "first"))
    late = await bench.ledger.reserve(typed(bench, FinalizeQuote(), "second"))
    while await executor.step():
        pass
    row = bench.row("SELECT outcome, response FROM operations WHERE id = ?", late.operation.id)
    assert (row["outcome"], json.loads(row["response"])["code"]) == ("refused", "stale")
    assert standing(bench) == ("priced", 2)


async def test_a_click_on_an_approval_of_a_superseded_version_decides_nothing(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 1)
    await done(bench, executor, typed(bench, DISCOUNT_8, "it"))
    click = request_for(DecideApproval("A-2026-0001-v1-1", "approve"), "click", quote_id=QUOTE, version=1, actor="U0MANAGER")
    row = await done(bench, executor, click)
    assert (row["outcome"], json.loads(row["response"])["code"]) == ("refused", "stale")
    again = await done(bench, executor, typed(bench, SubmitQuote(), "submit"))
    assert (again["outcome"], standing(bench)) == ("applied", ("approved", 2))  # 8% needs no approval


async def test_who_made_a_version_does_not_approve_it_even_if_somebody_else_submits_it(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    twelve = ReviseQuote(Changes(discount_percent=Decimal(12)))
    await done(bench, executor, typed(bench, twelve, "revise", actor="U0MANAGER"))
    await done(bench, executor, typed(bench, SubmitQuote(), "submit"))
    approval = bench.row("SELECT approval_id FROM approvals")["approval_id"]
    decision = DecideApproval(approval, "approve")
    own = await done(bench, executor, typed(bench, decision, "own", actor="U0MANAGER"))
    assert json.loads(own["response"])["code"] == "own_request"
    other = await done(bench, executor, typed(bench, decision, "other", actor="U0VP"))
    assert other["outcome"] == "applied"


def discount(percent: int) -> ReviseQuote:
    return ReviseQuote(Changes(discount_percent=Decimal(percent)))


async def decided(bench: Bench, executor: Executor, actor: str, number: str, **changes: Any) -> str:
    """Submit the quote, approve it as `actor`, and return the code of the answer."""
    await done(bench, executor, typed(bench, SubmitQuote(), f"s{number}", **changes))
    quote_id = changes.get("aggregate_id", QUOTE)
    approval = bench.row(
        "SELECT approval_id FROM approvals WHERE quote_id = ? ORDER BY requested_at DESC, 1 DESC LIMIT 1", quote_id
    )
    decision = DecideApproval(approval["approval_id"], "approve")
    row = await done(bench, executor, typed(bench, decision, f"d{number}", actor=actor, **changes))
    code: str = json.loads(row["response"])["code"]
    bench.clock.advance(1)
    return code


async def test_a_maker_of_any_version_does_not_approve_a_later_one(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    await done(bench, executor, typed(bench, discount(35), "r1", actor="U0CFO"))
    await done(bench, executor, typed(bench, ReviseQuote(Changes(term_months=24)), "r2", actor="U0OTHER"))
    assert await decided(bench, executor, "U0CFO", "1") == "own_request"
    quote = await bench.ledger.database.read(lambda tx: store.load(tx, QUOTE))
    assert quote is not None
    assert (quote.makers, quote.authors) == (("U0REP", "U0OTHER", "U0CFO"), ("U0REP", "U0OTHER"))


async def test_an_automatic_approval_does_not_reset_the_makers(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    await done(bench, executor, typed(bench, discount(9), "r1", actor="U0CFO"))
    await done(bench, executor, typed(bench, SubmitQuote(), "s0"))
    assert standing(bench) == ("approved", 2)
    await done(bench, executor, typed(bench, discount(35), "r2", actor="U0OTHER"))
    assert await decided(bench, executor, "U0CFO", "1") == "own_request"


async def test_an_approval_by_a_person_resets_the_makers(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    await done(bench, executor, typed(bench, discount(12), "r1", actor="U0CFO"))
    assert await decided(bench, executor, "U0MANAGER", "1") == "approved"
    await done(bench, executor, typed(bench, discount(35), "r2", actor="U0OTHER"))
    assert await decided(bench, executor, "U0CFO", "2") == "approved"


async def test_a_reused_approval_does_not_reset_the_makers(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    assert await decided(bench, executor, "U0MANAGER", "1") == "approved"
    await done(bench, executor, typed(bench, discount(14), "r1", actor="U0CFO"))
    await done(bench, executor, typed(bench, ReviseQuote(Changes(discount_percent=Decimal(15))), "r2", actor="U0OTHER"))
    await done(bench, executor, typed(bench, SubmitQuote(), "s2"))
    assert bench.row("SELECT earlier FROM approvals WHERE quote_version = 3")["earlier"] == "A-2026-0001-v1-1"
    await done(bench, executor, typed(bench, discount(35), "r3", actor="U0OTHER"))
    assert await decided(bench, executor, "U0CFO", "3") == "own_request"


async def test_a_clone_inherits_the_makers_of_its_source(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    await done(bench, executor, typed(bench, discount(35), "r1", actor="U0CFO"))
    await done(bench, executor, typed(bench, ReviseQuote(Changes(term_months=24)), "r2"))
    for number, source in enumerate((QUOTE, "Q-2026-0002"), start=2):
        row = await done(bench, executor, request_for(CloneQuote(source, "C0SALES"), f"clone{number}", actor="U0OTHER"))
        assert row["outcome"] == "applied"
        copy = f"Q-2026-000{number}"
        assert await decided(bench, executor, "U0CFO", f"c{number}", aggregate_id=copy) == "own_request"
    inherited = bench.rows("SELECT maker FROM inherited_makers WHERE quote_id = 'Q-2026-0003' ORDER BY maker")
    assert [row["maker"] for row in inherited] == ["U0CFO", "U0OTHER", "U0REP"]
    event = bench.row("SELECT after FROM audit_events WHERE aggregate_id = 'Q-2026-0002' AND event_type = 'quote.created'")
    assert set(json.loads(event["after"])["makers"]) == {"U0CFO", "U0REP"}


async def test_who_acted_for_the_author_of_a_source_does_not_approve_its_clone(bench: Bench, executor: Executor) -> None:
    await done(bench, executor, request_for(create_command(), "create", transport={"edited_by": "U0CFO"}))
    for number, source in enumerate((QUOTE, "Q-2026-0002"), start=2):
        at = bench.clock.now_ms()
        await done(bench, executor, request_for(CloneQuote(source, "C0SALES"), f"clone{number}", received_at=at))
        copy = f"Q-2026-000{number}"
        assert await decided(bench, executor, "U0CFO", f"c{number}", aggregate_id=copy) == "acted_for_others"
    bench.clock.advance(1)
    later = typed(bench, discount(20), "later", transport={"edited_by": "U0MANAGER"})
    await done(bench, executor, later)
    assert await decided(bench, executor, "U0MANAGER", "m", aggregate_id="Q-2026-0002") != "acted_for_others"


async def test_a_change_from_the_terminal_is_answered_there_and_nowhere_else(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    row = await done(bench, executor, typed(bench, AcceptQuote(), "it", source="cli", actor_type="operator"))
    assert row["outcome"] == "refused"
    assert bench.rows("SELECT class FROM effects WHERE operation_id = ? AND class = 'slack.reply'", row["id"]) == []


# ------------------------------------------------------------------------------------------------------------------ clone


def cloning(bench: Bench, request_id: str, **changes: Any) -> Request:
    payload = CloneQuote(QUOTE, "C0SALES", changes.pop("of_version", None), changes.pop("account", None))
    return request_for(payload, request_id, received_at=bench.clock.now_ms(), **changes)


async def test_a_clone_is_made_once_and_asked_back_when_it_is_typed_again(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    request = cloning(bench, "clone")
    first = await done(bench, executor, request)
    assert (await bench.ledger.reserve(request)).sighting is DedupeResult.DUPLICATE
    again = await done(bench, executor, cloning(bench, "again"))
    assert [json.loads(row["response"])["code"] for row in (first, again)] == ["cloned", "resubmission"]
    assert [row["quote_id"] for row in bench.rows("SELECT quote_id FROM quotes ORDER BY quote_id")] == [QUOTE, "Q-2026-0002"]
    await bench.ledger.noted()


async def test_a_clone_may_be_of_a_superseded_version(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 0)
    await done(bench, executor, typed(bench, DISCOUNT_8, "it"))
    await done(bench, executor, cloning(bench, "1", of_version=1))
    await done(bench, executor, cloning(bench, "2", account="Beta"))
    lists = bench.rows(
        "SELECT json_extract(pricing, '$.discount_percent') AS percent FROM quote_versions ORDER BY quote_id, version"
    )
    assert [row["percent"] for row in lists] == ["15", "8", "15", "8"]
    missing = await done(bench, executor, cloning(bench, "3", of_version=9))
    assert json.loads(missing["response"])["code"] == "unknown_quote"
    assert missing["retain_until"] == bench.clock.now_ms() + KEEP_REFUSED_MS


# -------------------------------------------------------------------------------------------------------------- retention


@pytest.mark.parametrize("case", CLOSES)
async def test_what_was_done_about_a_closed_quote_may_be_purged_ninety_days_later(
    bench: Bench, executor: Executor, case: str
) -> None:
    steps, payload, _, _ = COMMANDS[case]
    await brought(bench, executor, steps)
    assert {row["retain_until"] for row in bench.rows("SELECT retain_until FROM operations")} == {None}
    await done(bench, executor, typed(bench, payload, "it"))
    until = bench.clock.now_ms() + KEEP_CLOSED_MS
    assert {row["retain_until"] for row in bench.rows("SELECT retain_until FROM operations")} == {until}
    bench.clock.advance(DAY_MS)
    late = await done(bench, executor, typed(bench, AcceptQuote(), "too late"))
    assert (late["outcome"], late["retain_until"]) == ("refused", until + DAY_MS)


async def test_a_quote_that_is_open_keeps_everything(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 4)
    await done(bench, executor, typed(bench, DISCOUNT_8, "it"))
    await done(bench, executor, typed(bench, AcceptQuote(), "refused"))
    assert {row["retain_until"] for row in bench.rows("SELECT retain_until FROM operations")} == {None}
    assert (await purge(bench.ledger, bench.clock.now_ms() + 1000 * DAY_MS, dry_run=True)).operations == 0


# ------------------------------------------------------------------------------------------------- pending effects


async def _claimed(bench: Bench, effect_class: str) -> Effect:
    (effect,) = await bench.ledger.claim_effects({effect_class: 1})
    return effect


async def test_document_shows_its_own_version_even_if_superseded_before_it_is_rendered(bench: Bench, executor: Executor) -> None:
    performer = handlers_of(bench)
    await brought(bench, executor, 2)
    await done(bench, executor, typed(bench, DISCOUNT_8, "it"))
    effect = await _claimed(bench, effects.RENDER)
    quote = await performer.services.quote(effect)
    assert (quote.version, quote.pricing.discount_percent, quote.state.value) == (1, Decimal(15), "approved")
    assert quote.approval is not None
    assert quote.approval.decided_by == "U0MANAGER"
    await bench.ledger.settle(effect, Delivered("a" * 64, {"sha256": "a" * 64}), performer.follow_ups)
    shared = bench.row("SELECT payload FROM effects WHERE class = 'slack.file'")
    assert json.loads(shared["payload"])["version"] == 1


async def test_the_card_of_a_new_version_shows_nothing_of_the_documents_before_it(bench: Bench, executor: Executor) -> None:
    performer = handlers_of(bench)

    async def shown() -> list[str]:
        card = await QuoteCards(performer.services).show(QUOTE, viewer())
        text = json.dumps(None if card is None else card.blocks)
        return [words for words in ("Creating the PDF", "files.example/F1|PDF", "Salesforce\\u2026") if words in text]

    await brought(bench, executor, 2)
    assert await shown() == ["Creating the PDF", "Salesforce\\u2026"]
    await bench.ledger.settle(
        await _claimed(bench, effects.RENDER), Delivered("a" * 64, {"sha256": "a" * 64}), performer.follow_ups
    )
    for effect_class in (effects.POST, effects.FILE):  # what is posted in the thread follows the card
        link = {"permalink": "https://files.example/F1"}
        await bench.ledger.settle(await _claimed(bench, effect_class), Delivered("1.1", link), performer.follow_ups)
    assert await shown() == ["files.example/F1|PDF", "Salesforce\\u2026"]
    await done(bench, executor, typed(bench, DISCOUNT_8, "it"))
    assert await shown() == []


async def test_a_card_says_once_at_which_discount_it_would_need_nobody(bench: Bench, executor: Executor) -> None:
    performer = handlers_of(bench)
    await brought(bench, executor, 0)
    card = await QuoteCards(performer.services).show(QUOTE, viewer())
    assert card is not None
    said = json.dumps(card.blocks, ensure_ascii=False)
    assert "Needs approval: *Sales Manager*" in said
    assert (said.count("10% discount"), said.count("No approval needed")) == (1, 1)


async def test_the_card_says_to_whom_it_was_sent_and_how_it_ended(bench: Bench, executor: Executor) -> None:
    performer = handlers_of(bench)
    await brought(bench, executor, 4)
    await done(bench, executor, typed(bench, LoseQuote("<!here> too expensive"), "it"))
    card = await QuoteCards(performer.services).show(QUOTE, viewer())
    assert card is not None
    said = json.dumps(card.blocks)
    assert "Sent to buyer@acme.example by <@U0REP>" in said
    assert r"Lost \u00b7 <@U0REP>" in said
    assert "&lt;!here&gt; too expensive" in said
    assert "<!here>" not in said


async def test_a_superseded_version_keeps_its_last_day(bench: Bench, executor: Executor) -> None:
    await brought(bench, executor, 4)
    first = await bench.ledger.database.read(lambda tx: store.load(tx, QUOTE))
    bench.clock.advance(5 * DAY_MS)
    await done(bench, executor, typed(bench, DISCOUNT_8, "it"))
    old = await bench.ledger.database.read(lambda tx: store.load_version(tx, QUOTE, 1))
    head = await bench.ledger.database.read(lambda tx: store.load(tx, QUOTE))
    assert first is not None
    assert old is not None
    assert head is not None
    assert old.valid_until == first.valid_until
    assert (head.valid_until, head.issued_at) == (first.valid_until + 5 * DAY_MS, bench.clock.now_ms())
