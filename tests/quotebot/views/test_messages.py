from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from quotebot.domain.approvals.decisions import DecisionRefusal, may_decide
from quotebot.domain.approvals.people import Person
from quotebot.domain.approvals.policy import PolicyDecision
from quotebot.domain.pricing.engine import PricingProblem
from quotebot.domain.quotes.quote import ApprovalState, QuoteState
from quotebot.views import lifecycle_messages, messages
from tests.quotebot.views.quote_examples import MORNING, decided, example_approval, example_quote, quote_in

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HOSTILE = "<!channel> & <@U0CFO>\n✅ done\u202e"


def every_sentence(account: str = "Acme", typed: str = "too deep") -> dict[str, str]:
    pending = example_quote(QuoteState.PENDING_APPROVAL, account=account, approval=example_approval(reasons=(typed,)))
    approval = pending.approval
    assert approval is not None
    own = may_decide(approval, pending, Person("U0REP", "T0HOME", frozenset({"cfo"})))
    assert isinstance(own, DecisionRefusal)
    return {
        "operation pending": messages.OPERATION_PENDING,
        "retry pending": messages.retry_pending(),
        "retry pending, due": messages.retry_pending(MORNING),
        "created": messages.created(pending),
        "submitted": messages.submitted(pending, approval),
        "foreign team": messages.foreign_team(pending),
        "nothing recorded": messages.NOTHING_RECORDED,
        "maybe recorded": messages.MAYBE_RECORDED,
        "conflict": messages.CONFLICT,
        "too long": messages.too_long(2048),
        "command too large": messages.command_too_large(65_536),
        "done long ago": messages.finished_long_ago("applied", MORNING),
        "refused long ago": messages.finished_long_ago("refused", MORNING),
        "given up long ago": messages.finished_long_ago(None, MORNING),
        "resubmission": messages.resubmission("Q-2026-0042", MORNING, MORNING + 20_999),
        "resubmission, at once": messages.resubmission("Q-2026-0042", MORNING, MORNING - 5),
        "resubmission, much later": messages.resubmission("Q-2026-0042", MORNING, MORNING + 86_400_000),
        "already created": messages.already_created("Q-2026-0042"),
        "offer gone": messages.OFFER_GONE,
        "not your offer": messages.NOT_YOUR_OFFER,
        "one problem": messages.problem_list(("a",)),
        "pricing problem": messages.pricing_problem(
            PricingProblem("unknown_sku", f'"{typed}" is not in the catalogue', "did you mean pro?")
        ),
        "refusal": own.sentence,
        "stale": messages.stale(1, example_quote(version=4)),
        "wrong state": lifecycle_messages.not_offered(quote_in(QuoteState.APPROVED), "submit"),
        "blocked": messages.blocked(pending, PolicyDecision(("cfo",), (typed,), blocked=True)),
        "unknown quote": messages.unknown_quote(typed),
        "unreadable button": messages.UNREADABLE_BUTTON,
        "reason needed": messages.REASON_NEEDED,
        "terminal": messages.terminal(typed, "c-7f91", "Q-2026-0042"),
        "terminal without a quote": messages.terminal(typed, "c-7f91", None),
        "approval notice": messages.approval_notice(pending, approval, ("U0REP", "U0MANAGER", "U0VP")),
        "approval notice without approvers": messages.approval_notice(pending, approval, ("U0REP",)),
        "approved": messages.decided_notice(pending, decided(ApprovalState.APPROVED)),
        "approved automatically": messages.decided_notice(
            pending, decided(ApprovalState.APPROVED, decided_by=None, decided_role=None)
        ),
        "rejected": messages.decided_notice(pending, decided(ApprovalState.REJECTED, decision_reason=typed)),
        "pdf": messages.pdf_comment(pending),
        "dead letter": messages.dead_letter("The PDF", "c-7f91", typed, pending),
        "expired": lifecycle_messages.expired(pending, "submit"),
        "expired notice": messages.expired_notice(pending),
        "stale notice": messages.stale_notice(pending, MORNING),
        "not expired": messages.not_expired(pending, "it is accepted, which is final"),
        "not reminded": messages.not_reminded(pending, "it is approved"),
    }


@pytest.mark.usefixtures("german")
def test_sentences_in_german_read_like_this() -> None:
    said = every_sentence()
    assert said["nothing recorded"] == messages.NOTHING_RECORDED  # translated where it is sent
    assert said["too long"] == "Das ist zu lang (höchstens 2.048 Zeichen). Bitte kürzen oder auf zwei Angebote aufteilen."
    assert said["created"].startswith("Q-2026-0042 für Acme erstellt, ")
    assert said["stale"] == (
        "Q-2026-0042 hat sich geändert, seit v1 geöffnet wurde: Jetzt gilt v4 (Entwurf). Der Klick hat nichts geändert."
    )
    assert said["unknown quote"].startswith("Kein Angebot too deep. Bitte die Nummer prüfen oder suchen: `/quote list acme`.")
    assert "kann daher nicht zur Freigabe vorgelegt werden." in said["expired"]
    assert lifecycle_messages.not_offered(quote_in(QuoteState.SENT), "submit") == (
        "Q-2026-0042 wurde an den Kunden gesendet und kann daher nicht zur Freigabe vorgelegt werden. "
        "Die Karte zeigt, was jetzt möglich ist."
    )


def test_every_sentence_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert every_sentence() == snapshot


@pytest.mark.parametrize("name", sorted(every_sentence()))
def test_a_sentence_stays_short_and_lets_no_typed_text_mention_anyone(name: str) -> None:
    sentence = every_sentence(account=HOSTILE * 50, typed=HOSTILE * 50)[name]
    assert 0 < len(sentence) <= 4_000
    assert "<!channel>" not in sentence
    assert "<@U0CFO>" not in sentence


def test_the_requester_is_not_asked_to_approve_their_own_quote() -> None:
    assert every_sentence()["approval notice"].startswith(
        "<@U0MANAGER>, <@U0VP>, please review: *Acme · $17,340.00* (Q-2026-0042) from <@U0REP>"
    )
    assert every_sentence()["approval notice without approvers"].startswith("No one holds the Sales Manager role yet")


def test_a_quotation_marks_each_of_its_lines() -> None:
    assert messages.quoted("a\n\nb <x>\r\n> c") == "> a\n> b &lt;x&gt;\n> &gt; c"


def test_many_people_are_counted_rather_than_all_mentioned() -> None:
    assert messages.mentions(tuple(f"U{n}" for n in range(12))).endswith("<@U9> and 2 more")


def test_text_on_one_line_loses_what_could_disguise_it() -> None:
    assert messages.one_line(" a\tb\n c\x00\u202e\ud800 é ") == "a b c é"
