"""Tests of the words for jobs and of a quote's history, each over the whole list of what exists."""

from __future__ import annotations

import json
from typing import Any, Final

from adapters.failures import Failure
from adapters.policies import POLICIES
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.views import messages
from quotebot.views.operator_messages import failure_words, job, not_yours, too_late
from quotebot.views.timeline import SHOWN, timeline
from tests.quotebot.views.quote_examples import MORNING, example_quote

# of the chains of the roles, the rule sets, the numbers, an absence and the clock
NOT_OF_A_QUOTE: Final = {
    *("roles.changed", "ruleset.imported", "ruleset.activated", "ruleset.discarded"),
    *("quote_numbers.skipped", "delegation.refused", "clock.suspended", "clock.resumed", "clock.confirmed"),
}


def test_every_effect_class_has_a_name_for_people() -> None:
    unnamed = {name for name in POLICIES if job(name).startswith("Command ")}
    assert unnamed == {"default"}  # no class, but the policy of those without an own one


def test_the_history_of_a_quote_shows_every_event_of_its_chain() -> None:
    assert DOMAIN_EVENTS - SHOWN == NOT_OF_A_QUOTE


def test_every_category_of_a_failure_has_words_for_people() -> None:
    assert [each for each in Failure if failure_words(each) == failure_words(None)] == []


def test_the_history_of_a_quote_is_told_in_german(german: None) -> None:
    told: list[Any] = [
        {"event_type": "quote.created", "at": MORNING, "actor": "U0REP", "after": None},
        {"event_type": "quote.revised", "at": MORNING, "actor": "quotebot", "after": json.dumps({"version": 2})},
        {"event_type": "effect.delivered", "at": MORNING, "actor": "quotebot", "after": json.dumps({"class": "crm.create"})},
    ]
    lines = [
        line.partition("> \u00b7 ")[2] or line for line in timeline(example_quote(), told, left_out=True, operator=True).split("\n")
    ]
    assert lines == [
        "*Q-2026-0042*",
        "*21. Nov. 2026*",
        "Erstellt \u00b7 <@U0REP>",
        "\u00dcberarbeitet zu v2 \u00b7 Quotebot",
        "In Salesforce geschrieben \u00b7 Quotebot",
        "\u00c4ltere Ereignisse sind ausgelassen.",
        "Vollst\u00e4ndiges Protokoll: `quotebot audit show Q-2026-0042`",
    ]


def test_an_operator_who_comes_late_and_a_failure_are_told_in_german(german: None) -> None:
    assert too_late("118", "replaying", None) == "#118: Stand: wird wiederholt. Der Klick hat nichts ge\u00e4ndert."
    assert not_yours("CRM PDF", example_quote()) == (
        "Das PDF in Salesforce von Q-2026-0042: abbrechen k\u00f6nnen <@U0REP> oder ein Operator."
    )
    notice = messages.dead_letter("Das PDF", "c-7f91", failure_words("timeout"), example_quote())
    assert "Der Dienst hat nicht rechtzeitig geantwortet" in notice
