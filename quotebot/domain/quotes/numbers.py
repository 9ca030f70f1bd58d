"""Quote numbers to skip after a restore, so that numbers assigned in the lost part of the ledger are never assigned again.

The numbers of a year increase by one. Known about the lost part are its maximum duration and, if the replaced file is still
readable, its last number. The next number exceeds both: the number in that file, and the number that a bot would have reached with
QUOTES_PER_SECOND since the backup. A year at that rate fits into the nine digits of a number.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

QUOTES_PER_SECOND: Final = 30  # far above the sustained rate of one workspace or one bot
SPARE: Final = 1_000  # margin for bursts and clock differences
NUMBER_MAX: Final = 999_999_999  # nine digits


def numbers_skipped(backup: Mapping[int, int], replaced: Mapping[int, int], made_at: int, now: int) -> dict[int, int]:
    """Return, by year, the last number to skip. `backup` and `replaced` hold the last numbers assigned; times are Unix ms.

    Raises ValueError when a year has no number left.
    """
    first, last = _year(min(made_at, now)), _year(now)
    skipped = {}
    for year in sorted({*backup, *replaced, *range(first, last + 1)}):
        seconds = max(0, min(now, _begin(year + 1)) - max(made_at, _begin(year))) // 1000 + 1
        skipped[year] = max(backup.get(year, 0) + SPARE + QUOTES_PER_SECOND * seconds, replaced.get(year, 0) + SPARE)
        if skipped[year] >= NUMBER_MAX:
            raise ValueError(f"no quote number of {year} is left that was certainly never given out")
    return skipped


def _year(unix_ms: int) -> int:
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC).year


def _begin(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)
