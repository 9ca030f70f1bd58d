"""Usage of the org's daily allowance of API calls, as reported with every answer, and the thresholds for background work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WARNING_SHARE = 0.80  # from here on operators are notified
RESERVED_SHARE = 0.90  # from here on only interactive calls are sent
_USAGE = re.compile(r"(?:^|[,;\s])api-usage=([0-9]{1,12})/([0-9]{1,12})(?:$|[,;\s])")


@dataclass(frozen=True, slots=True)
class ApiUsage:
    """Calls of the last 24 hours, by every client of the org, and the org's allowance."""

    used: int
    allowed: int

    @property
    def share(self) -> float:
        """Used fraction of the allowance: 0..1, above 1 when exceeded."""
        return self.used / self.allowed

    @property
    def warns(self) -> bool:
        """True if operators should be notified."""
        return self.share >= WARNING_SHARE

    @property
    def reserved(self) -> bool:
        """True if the remaining calls are reserved for interactive work."""
        return self.share >= RESERVED_SHARE


def read_usage(headers: Mapping[str, str]) -> ApiUsage | None:
    """Parse the header `Sforce-Limit-Info: api-usage=25/100000`; None when it is missing or unreadable."""
    found = _USAGE.search(headers.get("Sforce-Limit-Info", ""))
    if found is None or int(found.group(2)) == 0:
        return None
    return ApiUsage(int(found.group(1)), int(found.group(2)))
