"""Tests of time-outs: their category, their budget and their part in the circuit breaker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.failures import AdapterError, Failure
from adapters.policies import policy_for
from tests.quotebot.deeds import Round

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench


def timed_out() -> AdapterError:
    return AdapterError(Failure.TIMEOUT, "timeout", "No answer.", possibly_applied=True)


async def test_a_time_out_has_its_own_category_and_the_whole_budget(bench: Bench) -> None:
    play = Round(bench)
    tries = policy_for("crm.create").retries + 1
    await play.owe("crm.create")
    play.performer.sends.extend(timed_out() for _ in range(tries))
    for _ in range(tries):
        await play.next_step()
    row = play.row()
    assert (row["state"], row["attempts"], row["category"], row["last_error"]) == (
        "failed",
        tries,
        "timeout",
        "No answer (timeout).",
    )
    assert bench.row("SELECT count(*) AS n FROM attempts WHERE category = 'timeout'")["n"] == tries


async def test_five_time_outs_of_three_effects_hold_their_class(bench: Bench) -> None:
    play = Round(bench)
    for target in "abcde":
        await play.owe("crm.create", target)
    play.performer.sends.extend(timed_out() for _ in range(5))
    while play.performer.sends:
        assert await play.step()
    assert bench.row("SELECT state, cause FROM gates WHERE name = 'crm.create'") == {"state": "held", "cause": "breaker"}
