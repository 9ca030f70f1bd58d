"""Tests of the lifecycle commands of a quote: their results, and every refusal of each."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import (
    REASON_CHARACTERS_MAX,
    RECIPIENT_CHARACTERS_MAX,
    AcceptQuote,
    CancelQuote,
    CloneQuote,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    ReviseQuote,
)
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, price, request_of
from quotebot.domain.pricing.price_requests import Changes, LineChange
from quotebot.domain.quotes.lifecycle import allowed, may_be_changed
from quotebot.domain.quotes.quote import Closing, Freezing, QuoteState, Sending, plain_times
from quotebot.domain.quotes.versions import difference
from quotebot.domain.schedule.schedules import DAY_MS
from quotebot.execution.kinds import KINDS, QuoteHead
from quotebot.handlers.decision import Asked, Decision
from quotebot.handlers.lifecycle import clone
from quotebot.views import lifecycle_messages
from tests.quotebot.parts import RULES
from tests.quotebot.views.quote_examples import GOLDEN, MORNING, example_pricing, example_quote, quote_in

if TYPE_CHECKING:
    from quotebot.commands.registry import LifecyclePayload
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

ROOT = "r" * 64
DISCOUNT_8 = ReviseQuote(Changes(discount_percent=Decimal(8)))

# command -> (a payload, the state it comes from, the state it leads to, code, event)
MOVES: dict[str, tuple[LifecyclePayload, QuoteState, QuoteState, str]] = {
    "cancel": (CancelQuote("not wanted"), QuoteState.PRICED, QuoteState.CANCELLED, "cancelled"),
    "finalize": (FinalizeQuote(), QuoteState.APPROVED, QuoteState.FINALIZED, "finalized"),
    "send": (MarkSent("buyer@acme.example"), QuoteState.FINALIZED, QuoteState.SENT, "sent"),
    "accept": (AcceptQuote(), QuoteState.SENT, QuoteState.ACCEPTED, "accepted"),
    "lose": (LoseQuote("too expensive"), QuoteState.SENT, QuoteState.LOST, "lost"),
}
ALL: dict[str, tuple[LifecyclePayload, QuoteState]] = {
    **{verb: (payload, origin) for verb, (payload, origin, _, _) in MOVES.items()},
    "revise": (DISCOUNT_8, QuoteState.PRICED),
}


def change(request: Asked, payload: LifecyclePayload, quote: Quote, root: str, rules: Rules) -> Decision:
    """Return the decision of the registered handler about this quote."""
    run: Any = SimpleNamespace(asked=request, rules=rules)
    decision: Decision = KINDS[type(payload)].handle(run, payload, QuoteHead(quote, root))
    return decision


def asked(**changes: Any) -> Asked:
    values: dict[str, Any] = {
        "operation_key": "k" * 64,
        "correlation_id": "c-7f91ab12",
        "actor": "U0OTHER",
        "team_id": "T0HOME",
        "received_at": MORNING,
        "seen_version": None,
    }
    return Asked(**{**values, **changes})


def check_refused(decision: Decision, code: str) -> str:
    """Check that nothing changes and one person gets a message; return its text."""
    assert (decision.kind, decision.quote, decision.events) == ("refused", None, ())
    assert decision.response["code"] == code
    (answer,) = decision.effects
    assert (answer.effect_class, answer.payload["text"]) == ("slack.reply", decision.response["text"])
    text: str = decision.response["text"]
    return text


def after_of(decision: Decision) -> Quote:
    assert decision.kind == "applied", decision.response
    assert decision.quote is not None
    return decision.quote


# -------------------------------------------------------------------------------------------------------- moves of state


@pytest.mark.parametrize("verb", MOVES)
def test_transition_changes_the_state_and_enqueues_only_card_and_notice(verb: str) -> None:
    payload, origin, target, code = MOVES[verb]
    before = quote_in(origin)
    decision = change(asked(), payload, before, ROOT, RULES)
    after = after_of(decision)
    assert after == replace(before, state=target, frozen=after.frozen, sent=after.sent, closing=after.closing)
    told = () if target in (QuoteState.FINALIZED, QuoteState.SENT) else (("slack.post", ROOT),)
    assert [(effect.effect_class, effect.after) for effect in decision.effects] == [("slack.card", ROOT), *told]
    (event,) = decision.events
    assert event.event_type == f"quote.{code}"
    assert (event.before["state"], event.after["state"]) == (origin.value, target.value)  # type: ignore[index] # both are there
    assert (decision.response["code"], decision.response["quote_id"]) == (code, "Q-2026-0042")


@pytest.mark.parametrize(("verb", "state"), [(verb, state) for verb in MOVES for state in QuoteState])
def test_a_move_is_refused_from_every_state_that_has_no_such_arrow(verb: str, state: QuoteState) -> None:
    payload, _, target, _ = MOVES[verb]
    decision = change(asked(), payload, quote_in(state), ROOT, RULES)
    if target in allowed(state):
        assert after_of(decision).state is target
        return
    text = check_refused(decision, "wrong_state")
    assert text.startswith("Q-2026-0042 ")
    assert ("was already " in text) == (state is target)
    assert (f"{lifecycle_messages.cannot(verb, '')} " in text) == (state is not target)


def test_only_an_approved_quote_can_be_finalized() -> None:
    ways = [state for state in QuoteState if change(asked(), FinalizeQuote(), quote_in(state), ROOT, RULES).kind == "applied"]
    assert ways == [QuoteState.APPROVED]


def test_late_finalize_is_refused_and_names_the_first_person_and_time() -> None:
    frozen = after_of(change(asked(), FinalizeQuote(), quote_in(QuoteState.APPROVED), ROOT, RULES))
    assert frozen.frozen == Freezing("U0OTHER", MORNING)
    late = change(asked(), FinalizeQuote(), frozen, ROOT, RULES)
    assert "was already locked for sending by <@U0OTHER>, 21 Nov 2026, 10:31 UTC" in plain_times(check_refused(late, "wrong_state"))
    revised = after_of(change(asked(), ReviseQuote(changes=Changes(term_months=24)), frozen, ROOT, RULES))
    assert revised.frozen is None
    over = replace(frozen, state=QuoteState.EXPIRED)
    assert "has expired, so" in check_refused(change(asked(), FinalizeQuote(), over, ROOT, RULES), "wrong_state")


def test_who_ended_it_when_and_why_is_kept() -> None:
    lost = after_of(change(asked(), LoseQuote("  too expensive "), quote_in(QuoteState.SENT), ROOT, RULES))
    assert lost.closing == Closing("too expensive", "U0OTHER", MORNING)
    cancelled = after_of(change(asked(), CancelQuote(" "), quote_in(QuoteState.PRICED), ROOT, RULES))
    assert cancelled.closing == Closing(None, "U0OTHER", MORNING)
    accepted = after_of(change(asked(), AcceptQuote(), quote_in(QuoteState.SENT), ROOT, RULES))
    assert accepted.closing == Closing(None, "U0OTHER", MORNING)


def test_to_whom_it_was_sent_is_kept() -> None:
    decision = change(asked(), MarkSent(" <!channel> "), quote_in(QuoteState.FINALIZED), ROOT, RULES)
    assert after_of(decision).sent == Sending("<!channel>", "U0OTHER", MORNING)


@pytest.mark.parametrize(
    ("payload", "state", "code"),
    [
        (LoseQuote("  "), QuoteState.SENT, "reason_needed"),
        (LoseQuote("x" * (REASON_CHARACTERS_MAX + 1)), QuoteState.SENT, "too_long"),
        (CancelQuote("x" * (REASON_CHARACTERS_MAX + 1)), QuoteState.PRICED, "too_long"),
        (MarkSent(" "), QuoteState.FINALIZED, "recipient_needed"),
        (MarkSent("x" * (RECIPIENT_CHARACTERS_MAX + 1)), QuoteState.FINALIZED, "too_long"),
    ],
)
def test_what_a_command_lacks_is_asked_for(payload: LifecyclePayload, state: QuoteState, code: str) -> None:
    assert check_refused(change(asked(), payload, quote_in(state), ROOT, RULES), code)


# ------------------------------------------------------------------------------------------- what all of them are refused for


@pytest.mark.parametrize("verb", ALL)
def test_nothing_happens_after_the_last_day_even_if_no_job_has_said_so(verb: str) -> None:
    payload, origin = ALL[verb]
    quote = quote_in(origin)
    in_time = change(asked(received_at=quote.valid_until - 1), payload, quote, ROOT, RULES)
    late = change(asked(received_at=quote.valid_until), payload, quote, ROOT, RULES)
    assert in_time.kind == "applied"
    assert "Clone it to continue: `/quote clone Q-2026-0042`" in check_refused(late, "expired")
    assert late.effects[0].payload["offer"] == {"quote_id": "Q-2026-0042", "version": 1, "clone": True}


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize(("seen", "said"), [(1, "v1 of Q-2026-0042 was replaced by v2"), (3, "has no v3")])
def test_a_superseded_version_is_blocked(verb: str, seen: int, said: str) -> None:
    payload, origin = ALL[verb]
    quote = replace(quote_in(origin), version=2)
    assert said in check_refused(change(asked(seen_version=seen), payload, quote, ROOT, RULES), "stale")
    assert change(asked(seen_version=2), payload, quote, ROOT, RULES).kind == "applied"


@pytest.mark.parametrize("verb", ALL)
def test_somebody_of_another_workspace_changes_nothing_and_learns_nothing(verb: str) -> None:
    payload, origin = ALL[verb]
    quote = replace(quote_in(origin), version=2)
    decision = change(asked(team_id="T0OTHER", seen_version=1), payload, quote, ROOT, RULES)
    assert [(event.event_type, event.after) for event in decision.events] == [
        ("access.refused", {"code": "foreign_team", "actor": "U0OTHER"})
    ]
    text = check_refused(replace(decision, events=()), "foreign_team")
    assert origin.value not in text
    assert "17,340" not in text


@pytest.mark.parametrize("verb", ALL)
def test_the_audit_names_no_customer_and_quotes_nobody(verb: str) -> None:
    payload, origin = ALL[verb]
    decision = change(asked(), payload, quote_in(origin), ROOT, RULES)
    kept = json.dumps([[event.before, event.after] for event in decision.events])
    assert not [word for word in ("Acme", "buyer", "expensive", "wanted") if word in kept]


# ----------------------------------------------------------------------------------------------------------------- revise


@pytest.mark.parametrize("state", list(QuoteState))
def test_revision_of_any_non_final_quote_is_a_new_version_without_an_approval(state: QuoteState) -> None:
    before = replace(quote_in(state), sent=Sending("buyer", "U0REP", MORNING) if state is QuoteState.SENT else None)
    decision = change(asked(), DISCOUNT_8, before, ROOT, RULES)
    if not may_be_changed(state):
        assert "make a new quote of it" in check_refused(decision, "wrong_state")
        return
    after = after_of(decision)
    assert (after.version, after.state, after.approval, after.sent) == (2, QuoteState.PRICED, None, None)
    assert (after.revised_by, after.revised_at, after.valid_until) == ("U0OTHER", MORNING, MORNING + 30 * DAY_MS)
    assert after.pricing == example_pricing("8")
    assert (after.requester, after.created_at, after.account) == (before.requester, before.created_at, before.account)
    assert [effect.effect_class for effect in decision.effects] == ["slack.card", "slack.post"]
    notice = decision.effects[1].payload["text"]
    assert "revised this quote to *Q-2026-0042 v2*. v1 " in notice
    assert ("v1 and its PDF no longer apply" in notice) == (state in {QuoteState.APPROVED, QuoteState.FINALIZED, QuoteState.SENT})
    assert ("submit v2 for approval" in notice) == (before.approval is not None)
    assert "• Discount 15% → 8%" in notice
    *withdrawals, event = decision.events
    assert [each.event_type for each in withdrawals] == ["approval.invalidated"] * (state is QuoteState.PENDING_APPROVAL)
    assert (event.event_type, event.before["version"], event.after["version"]) == ("quote.revised", 1, 2)  # type: ignore[index] # both are there


def test_a_revision_may_be_a_whole_new_request() -> None:
    request = PriceRequest((LineRequest("pro", 5),), 24, Decimal(0))
    after = after_of(change(asked(), ReviseQuote(request=request), example_quote(), ROOT, RULES))
    assert [(line.sku, line.quantity, line.months) for line in after.pricing.lines] == [("pro", 5, 24)]


@pytest.mark.parametrize(
    "command",
    [
        ReviseQuote(Changes(discount_percent=Decimal("15.0"))),
        ReviseQuote(Changes((LineChange("set", "pro", 150),))),
        ReviseQuote(request=PriceRequest(GOLDEN, 12, Decimal(15))),
        ReviseQuote(Changes()),
        ReviseQuote(),
    ],
)
def test_a_revision_that_changes_nothing_makes_no_version(command: ReviseQuote) -> None:
    text = check_refused(change(asked(), command, example_quote(), ROOT, RULES), "no_change")
    assert "No changes to save" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (Changes((LineChange("remove", "onboarding"),)), "There is no line onboarding to remove"),
        (Changes(tuple(LineChange("remove", line.sku) for line in GOLDEN)), "1 to 400 lines, not 0"),
        (Changes((LineChange("set", "prro", 5),)), "Did you mean pro?"),
        (Changes(term_months=0), "A term is 1 to 120 months"),
        (Changes(discount_percent=Decimal(101)), "A discount is 0 to 100"),
    ],
)
def test_a_revision_without_a_price_is_refused_with_every_reason(changes: Changes, said: str) -> None:
    text = check_refused(change(asked(), ReviseQuote(changes), example_quote(), ROOT, RULES), "not_priceable")
    assert said in text


# ------------------------------------------------------------------------------------------------------------------ clone


def cloned(original: Quote | None, command: CloneQuote | None = None, **changes: Any) -> Decision:
    command = command or CloneQuote("Q-2026-0042", "C0OTHER")
    return clone(asked(**changes), command, original, lambda: "Q-2026-0050", RULES)


@pytest.mark.parametrize("state", list(QuoteState))
def test_a_clone_is_a_new_quote_of_the_one_who_asks_whatever_became_of_the_original(state: QuoteState) -> None:
    original = quote_in(state)
    decision = cloned(original, received_at=original.valid_until + DAY_MS)
    quote = after_of(decision)
    assert (quote.quote_id, quote.version, quote.state, quote.approval) == ("Q-2026-0050", 1, QuoteState.PRICED, None)
    assert (quote.account, quote.requester, quote.channel) == ("Acme", "U0OTHER", "C0OTHER")
    assert not difference(original.pricing, quote.pricing)
    day = datetime.fromtimestamp(original.valid_until / 1000 + 86_400, UTC).date()
    assert request_of(quote.pricing) == replace(request_of(original.pricing), priced_on=day)  # at the prices of its own day
    assert quote.valid_until == original.valid_until + 31 * DAY_MS
    assert [(effect.effect_class, effect.aggregate_id) for effect in decision.effects] == [("slack.post", "Q-2026-0050")]
    (event,) = decision.events
    assert event.event_type == "quote.created"
    assert event.after is not None
    assert (event.after["cloned_from"], event.after["cloned_version"]) == ("Q-2026-0042", 1)


def test_a_clone_may_be_for_another_customer() -> None:
    assert after_of(cloned(example_quote(), CloneQuote("Q-2026-0042", "C0OTHER", account="Beta"))).account == "Beta"


def test_a_clone_for_another_customer_keeps_only_terms_not_about_the_first() -> None:
    agreed = CommercialTerms(payment_days=45, po_number="4711", vat_id="DE123456789", valid_days=10, approver_note="secret")
    priced = price(replace(request_of(example_quote().pricing), commercial=agreed), RULES.ruleset)
    assert isinstance(priced, Pricing)
    original = replace(example_quote(), pricing=priced)
    same, other = cloned(original), cloned(original, CloneQuote("Q-2026-0042", "C0OTHER", account="Beta"))
    assert request_of(after_of(same).pricing).commercial == agreed
    assert request_of(after_of(other).pricing).commercial == CommercialTerms(payment_days=45, valid_days=10)
    assert after_of(other).valid_until - after_of(other).created_at == 10 * 86_400_000


def test_a_clone_has_the_prices_of_today() -> None:
    old = replace(example_quote(), pricing=replace(example_pricing(), net_total=Decimal(1)))
    assert after_of(cloned(old)).pricing == example_pricing()


def test_what_cannot_be_seen_cannot_be_cloned_and_is_not_said_to_exist() -> None:
    missing, foreign = cloned(None), cloned(example_quote(), team_id="T0OTHER")
    assert check_refused(missing, "unknown_quote") == check_refused(foreign, "unknown_quote")
    assert missing.response["quote_id"] is None


def test_a_clone_of_what_is_no_longer_sold_takes_no_number() -> None:
    empty = replace(RULES, ruleset=replace(RULES.ruleset, catalogue=replace(RULES.catalogue, products={})))
    decision = clone(asked(), CloneQuote("Q-2026-0042", "C0OTHER"), example_quote(), lambda: pytest.fail("a number"), empty)
    check_refused(decision, "not_priceable")
