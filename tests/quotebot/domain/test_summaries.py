"""Tests of a model's summary for approvers: it never shows a figure that the quote does not contain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.quotes.summaries import SUMMARY_CHARACTERS_MAX, facts_of, shown
from tests.quotebot.views.quote_examples import example_approval, example_quote

QUOTE = replace(example_quote(), state=QuoteState.PENDING_APPROVAL, approval=example_approval())
FACTS = facts_of(QUOTE)


def test_the_model_is_told_figures_and_reasons_and_no_customer() -> None:
    first = FACTS.splitlines()[0]
    assert first == "15% discount on $20,400.00 list: $17,340.00 net, 12 months."
    assert "Needs approval by: Sales Manager." in FACTS
    assert "Line: 150 Pro, recurring." in FACTS
    assert QUOTE.account not in FACTS


@pytest.mark.parametrize(
    "said",
    [
        "A 15% discount brings it to $17,340.00.",
        "15% off, which a sales manager has to approve.",
        "An ordinary deal over 12 months with 150 seats of Pro",
        "It is $17340.00, net.",
        "Nothing unusual about it.",
    ],
)
def test_words_whose_figures_are_the_quotes_are_shown(said: str) -> None:
    assert shown(said, FACTS) == said


@pytest.mark.parametrize(
    "said",
    [
        "A 90% discount.",
        "150% discount",  # 150 is a number of seats, not a percentage
        "Only 17.340,00 USD",
        "1,5% is little",
        "Margin is 62.5%.",
        "Ninety percent off",
        "It halves the price",
        "Two million dollars",
        "\u0661\u0665% off",
        "\uff11\uff15% off",
        "fine\u202e.",
        "fi\u200bne",
        "See https://evil.example for details",
        "Ask <@U0CFO> or @cfo",
        "",
        " \n ",
        "***",
    ],
)
def test_anything_else_is_not_shown(said: str) -> None:
    assert shown(said, FACTS) is None


def test_marks_and_lines_are_taken_out_and_long_words_are_cut() -> None:
    assert shown("*Fine*,\n_really_ `fine`", FACTS) == "Fine, really fine"
    assert len(shown("fine " * 1_000, FACTS) or "") == SUMMARY_CHARACTERS_MAX


def test_a_summary_that_repeats_a_fact_is_not_shown() -> None:
    assert shown(FACTS.splitlines()[0], FACTS) is None
