"""Tests of what a card or a Home tab is known to show after the clock was set back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from adapters.policies import policy_for
from ledger import recovery
from ledger.records import Delivered, Effect, EffectIntent, Outcome
from quotebot import effects
from quotebot.commands.payloads import SubmitQuote
from quotebot.dispatch import slack_card
from quotebot.store import homes
from tests.quotebot.deeds import Round
from tests.quotebot.parts import request_for
from tests.quotebot.views.quote_examples import example_quote

if TYPE_CHECKING:
    from ledger.database import Tx
    from tests.quotebot.parts import Bench

ABOUT = "Q-t"
AHEAD_MS = 5_000


async def drawn_twice(bench: Bench, *, back_ms: int) -> None:
    """Deliver two drawings of one message, "older" and then "newer"; in between the clock is set back."""
    play = Round(bench)
    card = EffectIntent(effects.CARD, policy_for(effects.CARD).semantics, "t", ABOUT, {})
    await bench.ledger.reserve(request_for(SubmitQuote(), "draw", quote_id=ABOUT))
    claimed = await bench.ledger.claim_operation()
    assert claimed is not None
    await bench.ledger.execute(claimed, lambda _: Outcome("applied", {}, (card, card)))
    play.performer.sends += [Delivered("1.5", {"rendered": name}) for name in ("older", "newer")]
    await play.step()
    bench.clock.advance(1_000 - back_ms)
    await recovery.take_back_lapsed(bench.ledger)
    await play.step()
    assert not play.performer.sends


def known_to_show(tx: Tx) -> tuple[str | None, str | None]:
    """Return what the card shows, and what the Home tab does, as far as it is known."""
    found = [Effect.of(row) for row in tx.all("effects_of_aggregate", aggregate_id=ABOUT)]
    return slack_card._shown(found, replace(example_quote(), thread_ts="1.5"), 0), homes.last_drawn(tx, ABOUT)


@pytest.mark.parametrize(("back_ms", "known"), [(0, "newer"), (AHEAD_MS, None)], ids=["right", "set back"])
async def test_an_older_drawing_is_not_taken_for_what_is_shown(bench: Bench, back_ms: int, known: str | None) -> None:
    """Otherwise a newer drawing of the same content would be left out, and the message would stay wrong."""
    await drawn_twice(bench, back_ms=back_ms)
    assert await bench.ledger.database.read(known_to_show) == (known, known)
