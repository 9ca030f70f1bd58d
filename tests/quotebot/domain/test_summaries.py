"""Tests of a model's summary for approvers: it never shows a figure that the quote does not contain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quotebot.app.installation import speak
from quotebot.domain.extraction.vocabulary import NUMBERS
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
        "The price quadrupled",
        "A fifth of the list price",
        "Tripling the price",
        "A tenfold price",
        "$17,340.00k net",
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
    speak("de")
    facts = facts_of(QUOTE)
    assert [each for each in facts.splitlines() if shown(each, facts)] == []


@pytest.mark.parametrize(
    ("said", "is_shown"),
    [
        ("15 % Rabatt auf 20.400,00 $.", True),
        ("Netto 17.340,00 $ bei 12 Monaten, 15 Prozent Rabatt.", True),
        ("Netto 17340 $.", True),
        ("Nur 17,340.00 $", False),  # as English writes it
        ("Nur 17.34 $", False),
        ("90 % Rabatt", False),
        ("Fünfzehn von hundert", False),
        ("Der Preis wird halbiert", False),
        ("Zwei Millionen", False),
        ("neunzig Prozent", False),
        ("Einunddreißig Lizenzen", False),
        ("EINUNDDREISSIG Lizenzen", False),
        ("Der Preis hat sich verdreifacht", False),
        ("Ein Fünftel unter Liste", False),
        ("Ein Fu\u0308nftel unter Liste", False),  # decomposed
        ("Ein Siebtel der Liste", False),
        ("Ein Zwanzigstel der Liste", False),
        ("Laufzeit anderthalb Jahre", False),
        ("Laufzeit eineinhalb Jahre", False),
        ("Sechsmal so hoch wie sonst", False),
        ("Eine zweijährige Laufzeit", False),
        ("Netto 17.340,00 Mio. $", False),
        ("Ein einfaches, einmaliges Mittel mit normalem Titel.", True),
        ("Regelmäßig und vereinfacht, deshalb innerhalb der Regel und maximal üblich.", True),
    ],
)
def test_a_german_summary_shows_german_figures_of_the_quote(said: str, is_shown: bool) -> None:  # noqa: FBT001 -- a table
    speak("de")
    facts = facts_of(QUOTE)
    assert facts.startswith("15\u00a0% Rabatt auf den Listenpreis von 20.400,00\u00a0$: 17.340,00\u00a0$ netto, 12 Monate.")
    assert (shown(said, facts) == said) is is_shown


def test_no_spelt_out_german_number_is_shown() -> None:
    assert [word for word in NUMBERS["de"] if shown(f"Es sind {word} Lizenzen", FACTS) is not None] == []
