"""Tests of the number of modules that one command crosses, from Slack's envelope to its posted result.

A profile hook counts every module of the product in which a function is called, in all threads. The domain, the local servers with
their guard of the loopback interface, and the periodic work, which a command does not cause, are not counted.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from quotebot.views.card import APPROVE, SUBMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rig import Deal

NEW_QUOTE_MODULES_MAX: Final = 45
APPROVAL_MODULES_MAX: Final = 55
PERIODIC: Final = (
    *("quotebot/jobs/", "quotebot/app/workers.py", "quotebot/observability/clock_guard.py", "quotebot/store/schedule.py"),
    "quotebot/store/extractions.py",  # the job that answers messages without the model
    "ledger/measures.py",  # the page of metrics
    *("ledger/leases.py", "ledger/recovery.py", "ledger/audit/anchors.py", "ledger/audit/verification.py", "ledger/retention.py"),
)
SANDBOX: Final = ("quotebot/sandbox/", "quotebot/observability/loopback.py")  # the local servers refuse other sites' pages
PRODUCT: Final = ("quotebot/", "ledger/", "adapters/")


class Crossed:
    """Set of the files in which functions were called since the last `clear`."""

    def __init__(self, checkout: Path) -> None:
        self._root = f"{checkout}/"
        self._files: set[str] = set()

    def __call__(self, frame: Any, event: str, _argument: object) -> None:
        if event == "call":
            self._files.add(frame.f_code.co_filename)

    def clear(self) -> None:
        self._files.clear()

    def modules(self) -> list[str]:
        names = {name.removeprefix(self._root) for name in self._files if name.startswith(self._root)}
        apart = (*PERIODIC, *SANDBOX, "quotebot/domain/")
        return sorted(name for name in names if name.startswith(PRODUCT) and not name.startswith(apart))


@pytest.fixture
def crossed(checkout: Path) -> Iterator[Crossed]:
    """Count from before the bot starts its threads."""
    found, before = Crossed(checkout), sys.getprofile()
    threading.setprofile(found)
    sys.setprofile(found)
    yield found
    sys.setprofile(before)
    threading.setprofile(None)


async def test_a_new_quote_and_its_approval_cross_few_modules(crossed: Crossed, deal: Deal) -> None:
    crossed.clear()
    await deal.slash("new for Acme: 150 pro; term 12m; discount 15%")
    await deal.settled()
    assert len(crossed.modules()) <= NEW_QUOTE_MODULES_MAX, crossed.modules()
    await deal.click(SUBMIT, user="U0REP")
    await deal.settled()
    crossed.clear()
    await deal.click(APPROVE, user="U0MANAGER")
    await deal.settled()
    assert len(crossed.modules()) <= APPROVAL_MODULES_MAX, crossed.modules()
