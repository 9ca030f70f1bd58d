"""Tests of the words for jobs and of a quote's history, each over the whole list of what exists."""

from __future__ import annotations

from typing import Final

from adapters.policies import POLICIES
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.views.operator_messages import job
from quotebot.views.timeline import SHOWN

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
