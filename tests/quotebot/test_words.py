from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from quotebot import words
from quotebot.commands import CreateQuote
from quotebot.domain.approvals import Refusal, may_decide
from quotebot.domain.people import Person
from quotebot.domain.policy import PolicyDecision
from quotebot.domain.pricing import PricingProblem
from quotebot.domain.quotes import ApprovalState, QuoteState
from quotebot.slack.grammar import parse
from tests.quotebot.slack.quote_examples import CATALOGUE, MORNING, decided, example_approval, example_quote, quote_in

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HOSTILE = "<!channel> & <@U0CFO>\n✅ done\u202e"


def every_sentence(account: str = "Acme", typed: str = "too deep") -> dict[str, str]:
    pending = example_quote(QuoteState.PENDING_APPROVAL, account=account, approval=example_approval(reasons=(typed,)))
    approval = pending.approval
    assert approval is not None
    own = may_decide(approval, pending, Person("U0REP", "T0HOME", frozenset({"cfo"})))
    assert isinstance(own, Refusal)
    return {
        "working": words.working("c-7f91"),
        "changing": words.changing("Q-2026-0042", "c-7f91"),
        "operation pending": words.operation_pending("c-7f91"),
        "retry pending": words.retry_pending("c-7f91"),
        "retry pending, due": words.retry_pending("c-7f91", MORNING),
        "created": words.created(pending),
        "submitted": words.submitted(pending, approval),
        "foreign team": words.foreign_team(pending),
        "nothing recorded": words.nothing_recorded(),
        "maybe recorded": words.maybe_recorded(),
        "conflict": words.conflict("c-7f91"),
        "too long": words.too_long(2048),
        "command too large": words.command_too_large(65_536),
        "help": words.help_text(),
        "done long ago": words.finished_long_ago("applied", MORNING),
        "refused long ago": words.finished_long_ago("refused", MORNING),
        "given up long ago": words.finished_long_ago(None, MORNING),
        "resubmission": words.resubmission("Q-2026-0042", MORNING, MORNING + 20_999),
        "resubmission, at once": words.resubmission("Q-2026-0042", MORNING, MORNING - 5),
        "resubmission, much later": words.resubmission("Q-2026-0042", MORNING, MORNING + 86_400_000),
        "already created": words.already_created("Q-2026-0042"),
        "offer gone": words.offer_gone(),
        "not your offer": words.not_your_offer(),
        "one problem": words.problem_list(("a",)),
        "pricing problem": words.pricing_problem(
            PricingProblem("unknown_sku", f'"{typed}" is not in the catalogue', "did you mean pro?")
        ),
        "refusal": words.refusal(own),
        "stale": words.stale(1, example_quote(version=4)),
        "wrong state": words.wrong_state(quote_in(QuoteState.APPROVED), "submit"),
        "blocked": words.blocked(pending, PolicyDecision(("cfo",), (typed,), blocked=True)),
        "unknown quote": words.unknown_quote(typed),
        "unreadable button": words.unreadable_button(),
        "reason needed": words.reason_needed(),
        "terminal": words.terminal(typed, "c-7f91", "Q-2026-0042"),
        "terminal without a quote": words.terminal(typed, "c-7f91", None),
        "approval notice": words.approval_notice(pending, approval, ("U0REP", "U0MANAGER", "U0VP")),
        "approval notice without approvers": words.approval_notice(pending, approval, ("U0REP",)),
        "approved": words.decided_notice(pending, decided(ApprovalState.APPROVED)),
        "approved automatically": words.decided_notice(
            pending, decided(ApprovalState.APPROVED, decided_by=None, decided_role=None)
        ),
        "rejected": words.decided_notice(pending, decided(ApprovalState.REJECTED, decision_reason=typed)),
        "pdf": words.pdf_comment(pending),
        "dead letter": words.dead_letter("CRM", "c-7f91", typed, pending),
        "expired": words.expired(pending, "submit"),
        "expired notice": words.expired_notice(pending),
        "stale notice": words.stale_notice(pending, MORNING),
        "not expired": words.not_expired(pending, "it is accepted, which is final"),
        "not reminded": words.not_reminded(pending, "it is approved"),
    }


def test_every_sentence_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert every_sentence() == snapshot


@pytest.mark.parametrize("name", sorted(every_sentence()))
def test_a_sentence_stays_short_and_lets_no_typed_text_mention_anyone(name: str) -> None:
    sentence = every_sentence(account=HOSTILE * 50, typed=HOSTILE * 50)[name]
    assert 0 < len(sentence) <= 4_000
    assert "<!channel>" not in sentence
    assert "<@U0CFO>" not in sentence


def test_the_example_that_help_shows_is_itself_understood() -> None:
    assert isinstance(parse(words.EXAMPLE.removeprefix("/quote "), "C0SALES", CATALOGUE), CreateQuote)


def test_the_requester_is_not_asked_to_approve_their_own_quote() -> None:
    assert every_sentence()["approval notice"].startswith(
        "<@U0MANAGER>, <@U0VP>: Q-2026-0042 for Acme, 17,340.00 USD, needs approval by sales_manager"
    )
    assert every_sentence()["approval notice without approvers"].startswith("No approver is known yet: Q-2026-0042")


def test_a_quotation_marks_each_of_its_lines() -> None:
    assert words.quoted("a\n\nb <x>\r\n> c") == "> a\n> b &lt;x&gt;\n> &gt; c"


def test_many_people_are_counted_rather_than_all_mentioned() -> None:
    assert words.mentions(tuple(f"U{n}" for n in range(12))).endswith("<@U9> and 2 more")


def test_text_on_one_line_loses_what_could_disguise_it() -> None:
    assert words.one_line(" a\tb\n c\x00\u202e\ud800 é ") == "a b c é"
