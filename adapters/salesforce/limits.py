"""How much of the org's daily allowance of API calls is used, as every answer says it, and what that means for what can wait."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WARNING_SHARE = 0.80  # from here on operators are told
RESERVED_SHARE = 0.90  # from here on only what people wait for is sent
_USAGE = re.compile(r"(?:^|[,;\s])api-usage=([0-9]{1,12})/([0-9]{1,12})(?:$|[,;\s])")


@dataclass(frozen=True, slots=True)
class ApiUsage:
    """Calls of the last 24 hours, by every client of the org, and how many the org may make."""

    used: int
    allowed: int

    @property
    def share(self) -> float:
        """How much is used, 0..1 and beyond."""
        return self.used / self.allowed

    @property
    def warns(self) -> bool:
        """Whether operators should know."""
        return self.share >= WARNING_SHARE

    @property
    def reserved(self) -> bool:
        """Whether what is left is kept for what people wait for."""
        return self.share >= RESERVED_SHARE


def read_usage(headers: Mapping[str, str]) -> ApiUsage | None:
    """Return what `Sforce-Limit-Info: api-usage=25/100000` says; None when it is not there or not readable."""
    found = _USAGE.search(headers.get("Sforce-Limit-Info", ""))
    if found is None or int(found.group(2)) == 0:
        return None
    return ApiUsage(int(found.group(1)), int(found.group(2)))
