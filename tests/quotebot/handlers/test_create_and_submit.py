from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.keys import effect_key
from quotebot.commands.payloads import SubmitQuote
from quotebot.domain.pricing.engine import LineRequest
from quotebot.domain.quotes.quote import ApprovalState, QuoteState
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.effects import ANSWER_MS
from quotebot.handlers.approvals import submit
from quotebot.handlers.decision import Asked, Decision, Twin
from quotebot.handlers.quotes import create, refused_offer, resubmission, root_key
from quotebot.views import lifecycle_messages, messages
from tests.quotebot.parts import RULES, create_command
from tests.quotebot.views.quote_examples import MORNING, example_pricing, example_quote, quote_in

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "ab" * 32
ROOT = root_key(KEY)


def asked(**changes: Any) -> Asked:
    rep = Asked(
        operation_key=KEY,
        correlation_id="c-abababab",
        actor="U0REP",
        team_id="T0HOME",
        received_at=MORNING,
        seen_version=1,
        actor_name="rep",
    )
    return replace(rep, **changes)


def owed(decision: Decision) -> list[tuple[str, str]]:
    return [(effect.effect_class, effect.target) for effect in decision.effects]


def check_refused(decision: Decision, code: str, actor: str = "U0REP") -> None:
    """Check that a refusal changes nothing and enqueues one reply to the requester, with the stored response's text."""
    assert (decision.kind, decision.quote, decision.response["code"]) == ("refused", None, code)
    (answer,) = decision.effects
    assert (answer.effect_class, answer.target, answer.semantics) == ("slack.reply", actor, "repeat_once")
    assert answer.payload["text"] == decision.response["text"]
    assert answer.expires_at == MORNING + ANSWER_MS


def numbered(*ids: str) -> Callable[[], str]:
    left = iter(ids)
    return lambda: next(left)


# ---------------------------------------------------------------------------------------------------------------- create


def test_creation_answers_with_number_and_price_and_enqueues_the_card() -> None:
    decision = create(asked(), create_command(), numbered("Q-2026-0001"), RULES)
    assert decision.kind == "applied"
    assert decision.response == {
        "code": "created",
        "quote_id": "Q-2026-0001",
        "text": "Created Q-2026-0001 for Acme, $17,340.00.",
    }
    assert owed(decision) == [("slack.post", "Q-2026-0001")]
    assert decision.effects[0].payload == {"what": "root", "quote_id": "Q-2026-0001"}
    assert [event.event_type for event in decision.events] == ["quote.created"]


def test_a_created_quote_is_priced_and_valid_for_the_configured_days() -> None:
    quote = create(asked(), create_command(), numbered("Q-2026-0001"), replace(RULES, valid_days=14)).quote
    assert quote is not None
    assert (quote.state, quote.version, quote.approval, quote.thread_ts) == (QuoteState.PRICED, 1, None, None)
    assert (quote.requester, quote.requester_name, quote.team_id, quote.channel) == ("U0REP", "rep", "T0HOME", "C0SALES")
    assert (quote.created_at, quote.valid_until) == (MORNING, MORNING + 14 * DAY_MS)
    assert quote.pricing == example_pricing()


def test_root_key_equals_the_effect_key_of_the_first_effect() -> None:
    assert root_key(KEY) == effect_key(KEY, "slack.post", 0)


def test_unpriceable_creation_takes_no_number_and_only_gets_a_reply() -> None:
    lines = (LineRequest("prro", 10), LineRequest("sso", 0))
    decision = create(asked(), create_command(lines=lines), numbered(), RULES)
    check_refused(decision, "not_priceable")
    assert decision.response["quote_id"] is None
    assert "Did you mean pro?" in decision.response["text"]
    assert "quantity of sso" in decision.response["text"]


def test_an_account_name_cannot_mention_anybody_in_the_answer() -> None:
    command = replace(create_command(), account="<!channel> & Co")
    assert "&lt;!channel&gt; &amp; Co" in create(asked(), command, numbered("Q-2026-0001"), RULES).response["text"]


def test_a_repetition_is_answered_with_a_question_whose_token_is_its_own_key() -> None:
    decision = resubmission(asked(), create_command(), Twin("Q-2026-0001", 1, MORNING - 7_000))
    offer = {"token": KEY, "quote_id": "Q-2026-0001", "version": 1}
    assert (decision.kind, decision.quote, decision.events) == ("refused", None, ())
    assert decision.response["text"] == "You just created the same quote, Q-2026-0001. Create another?"
    assert (decision.response["code"], decision.response["offer"]) == ("resubmission", offer)
    (answer,) = decision.effects
    assert (answer.effect_class, answer.target, answer.payload["offer"]) == ("slack.reply", "U0REP", offer)


@pytest.mark.parametrize(
    ("code", "quote_id", "text"),
    [
        ("offer_gone", None, messages.OFFER_GONE),
        ("not_your_offer", None, messages.NOT_YOUR_OFFER),
        ("already_created", "Q-2026-0001", messages.already_created("Q-2026-0001")),
    ],
)
def test_an_offer_that_cannot_be_used_is_refused_with_its_reason(code: Any, quote_id: str | None, text: str) -> None:
    decision = refused_offer(asked(), code, quote_id)
    check_refused(decision, code)
    assert decision.response == {"code": code, "quote_id": quote_id, "text": text}


# ---------------------------------------------------------------------------------------------------------------- submit


def test_fifteen_percent_waits_for_the_manager_and_enqueues_card_and_notice() -> None:
    decision = submit(asked(), example_quote(), ROOT, 0, RULES)
    quote = decision.quote
    assert quote is not None
    assert quote.approval is not None
    assert (decision.kind, quote.state, quote.approval.state) == ("applied", QuoteState.PENDING_APPROVAL, ApprovalState.PENDING)
    assert (quote.approval.approval_id, quote.approval.required_roles) == ("A-2026-0042-v1-1", ("sales_manager",))
    assert decision.response == {
        "code": "submitted",
        "quote_id": "Q-2026-0042",
        "text": "Submitted Q-2026-0042. Waiting for Sales Manager.",
    }
    assert owed(decision) == [("slack.card", "Q-2026-0042"), ("slack.post", "Q-2026-0042")]
    assert [effect.after for effect in decision.effects] == [ROOT, ROOT]
    assert (
        decision.effects[1]
        .payload["text"]
        .startswith("<@U0MANAGER>, please review: *Acme · $17,340.00* (Q-2026-0042) from <@U0REP>. Discount 15% (limit 10%)")
    )
    assert [event.event_type for event in decision.events] == ["quote.submitted", "approval.requested"]


def test_a_second_request_for_the_same_version_gets_its_own_number() -> None:
    quote = submit(asked(), example_quote(), ROOT, 1, RULES).quote
    assert quote is not None
    assert quote.approval is not None
    assert quote.approval.approval_id == "A-2026-0042-v1-2"


def test_ten_percent_is_approved_at_once_and_enqueues_pdf_and_crm() -> None:
    decision = submit(asked(), example_quote(pricing=example_pricing("10")), ROOT, 0, RULES)
    quote = decision.quote
    assert quote is not None
    assert quote.approval is not None
    assert (decision.response["code"], quote.state) == ("approved", QuoteState.APPROVED)
    assert (quote.approval.state, quote.approval.decided_by, quote.approval.decided_at) == (ApprovalState.APPROVED, None, MORNING)
    assert owed(decision) == [(kind, "Q-2026-0042") for kind in ("slack.card", "pdf.render", "crm.create")]
    assert "approved automatically" in decision.response["text"]
    assert [effect.payload["version"] for effect in decision.effects[1:]] == [1, 1]
    assert [event.event_type for event in decision.events] == ["quote.submitted", "approval.automatic"]


@pytest.mark.parametrize(
    ("discount", "code"), [("10.01", "submitted"), ("40", "submitted"), ("40.01", "blocked"), ("100", "blocked")]
)
def test_the_limits_of_the_policy_are_strict(discount: str, code: str) -> None:
    assert submit(asked(), example_quote(pricing=example_pricing(discount)), ROOT, 0, RULES).response["code"] == code


def test_over_forty_percent_is_refused_and_stays_as_it_was() -> None:
    decision = submit(asked(), example_quote(pricing=example_pricing("45")), ROOT, 0, RULES)
    check_refused(decision, "blocked")
    assert "Edit the quote and try again." in decision.response["text"]
    assert decision.events == ()


@pytest.mark.parametrize(("discount", "code"), [("15", "submitted"), ("10", "nobody_to_ask"), ("45", "blocked")])
def test_a_version_that_was_sent_back_is_submitted_again_only_to_people(discount: str, code: str) -> None:
    quote = replace(quote_in(QuoteState.DRAFT), pricing=example_pricing(discount))
    assert quote.approval is not None
    command = SubmitQuote("They need SSO.", quote.approval.approval_id)
    decision = submit(asked(), quote, "root", 1, RULES, command=command)
    assert (decision.response["code"], decision.kind) == (code, "applied" if code == "submitted" else "refused")


@pytest.mark.parametrize(
    ("state", "note", "approval_id", "code"),
    [
        (QuoteState.DRAFT, "They need SSO.", None, "submitted"),  # typed: it names no request
        (QuoteState.DRAFT, "They need SSO.", "A-2026-0042-v1-7", "stale"),
        (QuoteState.DRAFT, "x" * 501, None, "too_long"),
        (QuoteState.PRICED, "They need SSO.", None, "needs_no_note"),
        (QuoteState.REJECTED, "They need SSO.", None, "wrong_state"),
    ],
)
def test_a_note_submits_only_what_was_sent_back_last(state: QuoteState, note: str, approval_id: str | None, code: str) -> None:
    decision = submit(asked(), quote_in(state), "root", 1, RULES, command=SubmitQuote(note, approval_id))
    assert decision.response["code"] == code


def test_a_submission_of_what_was_sent_back_is_told_both_ways_on() -> None:
    said = submit(asked(), quote_in(QuoteState.DRAFT), "root", 1, RULES).response["text"]
    assert "Edit the quote, then submit the new version." in said
    assert "`/quote submit Q-2026-0042: they need SSO`" in said


@pytest.mark.parametrize("state", [state for state in QuoteState if state is not QuoteState.PRICED])
def test_only_a_priced_quote_can_be_submitted(state: QuoteState) -> None:
    decision = submit(asked(), example_quote(state), ROOT, 0, RULES)
    check_refused(decision, "wrong_state")
    assert decision.response["text"] == lifecycle_messages.not_offered(example_quote(state), "submit")


@pytest.mark.parametrize(("seen", "said"), [(1, "v1: it's now v2"), (3, "has no v3. Its latest version is v2.")])
def test_a_submit_on_another_version_than_the_head_is_stale(seen: int, said: str) -> None:
    decision = submit(asked(seen_version=seen), example_quote(version=2), ROOT, 0, RULES)
    check_refused(decision, "stale")
    assert said in decision.response["text"]


def check_turned_away(decision: Decision) -> None:
    """Check that an external user is refused like anyone, and that this is audited."""
    assert [event.event_type for event in decision.events] == ["access.refused"]
    check_refused(replace(decision, events=()), "foreign_team", "U0STRANGER")


@pytest.mark.parametrize("team", ["T0OTHER", ""])
def test_somebody_of_another_workspace_cannot_submit_and_learns_nothing(team: str) -> None:
    decision = submit(asked(actor="U0STRANGER", team_id=team), example_quote(), ROOT, 0, RULES)
    check_turned_away(decision)
    assert "priced" not in decision.response["text"]
    assert "17,340" not in decision.response["text"]


def test_the_audit_keeps_figures_and_ids_and_no_customer_name() -> None:
    decisions = [
        create(asked(), create_command(), numbered("Q-2026-0001"), RULES),
        submit(asked(), example_quote(), ROOT, 0, RULES),
        submit(asked(), example_quote(pricing=example_pricing("5")), ROOT, 0, RULES),
    ]
    for decision in decisions:
        for event in decision.events:
            assert "Acme" not in json.dumps([event.before, event.after])
    assert decisions[0].events[0].after == {
        "version": 1,
        "state": "priced",
        "requester": "U0REP",
        "channel": "C0SALES",
        "account_sha256": hashlib.sha256(b'["Q-2026-0001","Acme"]').hexdigest(),
        "valid_until": MORNING + 30 * 86_400_000,
        "net_total": "17340",
        "currency": "USD",
        "discount_percent": "15",
        "approval_id": None,
        "required_roles": [],
        "decided_by": None,
        "decided_role": None,
    }


def test_somebody_of_another_workspace_learns_nothing_from_a_stale_button_either() -> None:
    decision = submit(asked(actor="U0STRANGER", team_id="T0OTHER"), example_quote(version=2), ROOT, 0, RULES)
    check_turned_away(decision)
