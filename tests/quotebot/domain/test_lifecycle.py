from __future__ import annotations

from itertools import product

import pytest

from quotebot.domain.quotes import lifecycle
from quotebot.domain.quotes.lifecycle import (
    ARROWS,
    IllegalTransitionError,
    allowed,
    is_final,
    may_be_changed,
    require,
    require_change,
)
from quotebot.domain.quotes.quote import QuoteState

# The legal pairs, written out once more by hand: the table and this list must agree on all 144 pairs.
LEGAL = {
    "draft": "validated pending_approval cancelled expired",
    "validated": "priced cancelled expired",
    "priced": "pending_approval approved draft cancelled expired",
    "pending_approval": "approved rejected draft cancelled expired",
    "approved": "finalized draft cancelled expired",
    "rejected": "draft cancelled expired",
    "finalized": "sent cancelled expired",
    "sent": "accepted lost cancelled expired",
    "accepted": "",
    "lost": "",
    "cancelled": "",
    "expired": "",
}


@pytest.mark.parametrize(("origin", "target"), list(product(QuoteState, QuoteState)))
def test_a_pair_of_states_is_an_arrow_or_an_error(origin: QuoteState, target: QuoteState) -> None:
    if target.value in LEGAL[origin.value].split():
        require(origin, target)
        assert target in allowed(origin)
        return
    assert target not in allowed(origin)
    with pytest.raises(IllegalTransitionError, match="Nothing was changed"):
        require(origin, target)


def test_every_state_has_a_row_and_stands_in_the_drawing() -> None:
    assert set(ARROWS) == set(QuoteState)
    assert lifecycle.__doc__ is not None
    assert all(state.value in lifecycle.__doc__ for state in QuoteState)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ARROWS[QuoteState.LOST] = frozenset()  # type: ignore[index] # the point of the test


def test_every_state_is_reached_from_draft() -> None:
    reached, frontier = {QuoteState.DRAFT}, {QuoteState.DRAFT}
    while frontier:
        frontier = {after for state in frontier for after in allowed(state)} - reached
        reached |= frontier
    assert reached == set(QuoteState)


@pytest.mark.parametrize("state", list(QuoteState))
def test_a_new_version_follows_every_state_but_the_final_ones(state: QuoteState) -> None:
    final = LEGAL[state.value] == ""
    assert (is_final(state), may_be_changed(state)) == (final, not final)
    if not final:
        require_change(state)
        return
    with pytest.raises(IllegalTransitionError, match="it is final"):
        require_change(state)
