"""The named scenarios of failure injection (FI) and the drills (D), by theme. `quotebot drill` plays them."""

from __future__ import annotations

from typing import Final

from faults.scenarios import crash, operations, pdf, salesforce, slack, text
from faults.scenarios.stage import Scenario, perform

__all__ = ["SCENARIOS", "Scenario", "perform"]

_THEMES: Final = (slack, salesforce, pdf, crash, text, operations)


SCENARIOS: Final = tuple(
    sorted(
        (scenario for theme in _THEMES for scenario in theme.SCENARIOS),
        key=lambda scenario: (scenario.id.startswith("D-"), scenario.id),
    )
)
