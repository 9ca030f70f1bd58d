"""Warm-up: one whole deal in this process, so that imports, compiled code and caches exist before the first fork."""

from __future__ import annotations

import asyncio
import functools
import gc
import tempfile
from pathlib import Path

import simple_salesforce.api  # noqa: F401 -- the adapter imports it lazily, which would be in every fork

import adapters.llm.api  # noqa: F401 -- as above, in scenarios that use a model
from faults.lab.loop import LabClock
from faults.lab.setting import lab_settings, ram
from faults.lab.simulation import Cell
from faults.lab.steps import MANAGER, REP, Clicks, Settles, Starts, Stops, Types


def warm_up() -> None:
    """Run the deal, and freeze its objects: otherwise the garbage collector's scan would copy them into each fork."""
    _run_the_deal()
    gc.collect()
    gc.freeze()
    gc.disable()


@functools.cache  # a fork of a warm process is warm
def _run_the_deal() -> None:
    with tempfile.TemporaryDirectory(prefix="quotebot-warmth-", dir=ram()) as folder:
        cell = Cell(lab_settings(Path(folder)), LabClock(), seed=1)
        cell.in_place = True
        typed = Types("new for Acme: 150 pro, 150 sso, 1 support; discount 15%")
        clicks = (Clicks("quote.submit", REP), Clicks("approval.approve", MANAGER))
        for step in (Starts(), typed, Settles(), clicks[0], Settles(), clicks[1], Settles(), Stops()):
            step.do(cell)
        cell.end()
    asyncio.set_event_loop(None)
