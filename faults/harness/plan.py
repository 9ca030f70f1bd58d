"""Kill plans: the crash of one process as data, small enough for one environment variable."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Literal

PLAN_VARIABLE: Final = "QUOTEBOT_FAULT_PLAN"


@dataclass(frozen=True, slots=True)
class KillPlan:
    """Order to SIGKILL a process `moment` the n-th passage (`occurrence`, from 1) of `point`.

    Points are the choke points: `write:<name>` (a ledger transaction), `ack` (an acknowledgement to Slack).
    """

    point: str
    moment: Literal["before", "after"]
    occurrence: int = 1

    def to_text(self) -> str:
        """Return the plan as the value of PLAN_VARIABLE."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> KillPlan:
        """Parse the value of PLAN_VARIABLE."""
        return cls(**json.loads(text))
