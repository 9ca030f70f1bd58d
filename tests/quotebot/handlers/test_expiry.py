from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import ExpireQuote, NoteStaleDraft
from quotebot.domain.quotes.lifecycle import ARROWS
from quotebot.domain.quotes.quote import QuoteState, plain_times
from quotebot.handlers.approvals import submit, withdrawn
from quotebot.handlers.lifecycle import expire, note_stale
from tests.quotebot.handlers.test_create_and_submit import ROOT, asked, check_refused, owed
from tests.quotebot.parts import RULES
from tests.quotebot.views.quote_examples import MORNING, example_quote, quote_in

if TYPE_CHECKING:
    from quotebot.handlers.decision import Decision

FINAL = {state for state, following in ARROWS.items() if not following}
EXPIRE = ExpireQuote(valid_until=MORNING)
NOTE = NoteStaleDraft(untouched_since=MORNING - 1)


def over(state: QuoteState = QuoteState.PRICED, **changes: Any) -> Any:
    return replace(quote_in(state), **{"valid_until": MORNING, **changes})


def tick(**changes: Any) -> Any:
    return asked(**{"actor": "quotebot", "seen_version": None, **changes})


def check_left(decision: Decision, code: str) -> None:
    """Check that nothing changes and no message is sent, because there is no requester."""
    assert (decision.kind, decision.quote, decision.response["code"]) == ("refused", None, code)
    assert (decision.effects, decision.events) == ((), ())
    assert "Nothing was changed" in decision.response["text"]


@pytest.mark.parametrize("state", sorted(set(QuoteState) - FINAL))
def test_open_quote_expires_and_enqueues_its_card_and_a_notice(state: QuoteState) -> None:
    decision = expire(tick(), EXPIRE, over(state), ROOT)
    assert decision.kind == "applied"
    assert decision.quote == replace(withdrawn(over(state), MORNING), state=QuoteState.EXPIRED)
    assert owed(decision) == [("slack.card", "Q-2026-0042"), ("slack.post", "Q-2026-0042")]
    assert [effect.after for effect in decision.effects] == [ROOT, ROOT]
    assert decision.effects[1].payload["text"] == decision.response["text"]
    assert "expired: it was valid until 21 Nov 2026, 10:31 UTC" in plain_times(decision.response["text"])
    *withdrawals, event = decision.events
    assert [each.event_type for each in withdrawals] == ["approval.invalidated"] * (state is QuoteState.PENDING_APPROVAL)
    assert event.before is not None
    assert event.after is not None
    assert (event.event_type, event.before["state"], event.after["state"]) == ("quote.expired", state, "expired")


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_state_is_never_overwritten(state: QuoteState) -> None:
    check_left(expire(tick(), EXPIRE, over(state), ROOT), "final")


@pytest.mark.parametrize(("received_at", "kind"), [(MORNING - 1, "refused"), (MORNING, "applied"), (MORNING + 1, "applied")])
def test_validity_is_tested_against_when_the_command_came(received_at: int, kind: str) -> None:
    assert expire(tick(received_at=received_at), EXPIRE, over(), ROOT).kind == kind


def test_a_quote_whose_validity_was_changed_meanwhile_does_not_expire() -> None:
    for moved in (MORNING - 1, MORNING + 1):
        check_left(expire(tick(), EXPIRE, over(valid_until=moved), ROOT), "still_valid")


def test_every_version_expires_the_command_names_none() -> None:
    assert expire(tick(seen_version=1), EXPIRE, over(version=3), ROOT).kind == "applied"


@pytest.mark.parametrize("state", [QuoteState.DRAFT, QuoteState.VALIDATED, QuoteState.PRICED])
def test_untouched_draft_enqueues_one_notice_and_stays_unchanged(state: QuoteState) -> None:
    decision = note_stale(tick(), NOTE, example_quote(state), ROOT, MORNING - 1)
    assert (decision.kind, decision.quote) == ("applied", None)
    assert owed(decision) == [("slack.post", "Q-2026-0042")]
    assert decision.effects[0].payload["text"] == decision.response["text"]
    assert "<@U0REP>, Q-2026-0042 " in decision.response["text"]
    assert "hasn't changed since 21 Nov 2026, 10:30 UTC" in plain_times(decision.response["text"])
    assert [event.event_type for event in decision.events] == ["quote.stale_noted"]


@pytest.mark.parametrize("state", sorted(set(QuoteState) - {QuoteState.DRAFT, QuoteState.VALIDATED, QuoteState.PRICED}))
def test_nobody_is_reminded_of_a_quote_that_was_submitted_or_is_over(state: QuoteState) -> None:
    check_left(note_stale(tick(), NOTE, quote_in(state), ROOT, MORNING - 1), "not_draft")


def test_nobody_is_reminded_of_a_quote_that_was_touched_or_expired_meanwhile() -> None:
    check_left(note_stale(tick(), NOTE, example_quote(), ROOT, MORNING), "touched")
    check_left(note_stale(tick(), NOTE, over(), ROOT, MORNING - 1), "expired")


@pytest.mark.parametrize(("received_at", "refused"), [(MORNING - 1, False), (MORNING, True)])
def test_expired_quote_cannot_be_submitted_even_before_its_expiry_is_recorded(received_at: int, *, refused: bool) -> None:
    decision = submit(asked(received_at=received_at), over(), ROOT, 0, RULES)
    assert (decision.kind == "refused") == refused
    if refused:
        check_refused(decision, "expired")
        assert "was valid until 21 Nov 2026, 10:31 UTC, so it can't be submitted." in plain_times(decision.response["text"])
