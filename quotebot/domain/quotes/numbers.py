"""Which quote numbers may have been given out in a part of the ledger that was lost: none of them is ever given out again.

The numbers of a year go up by one. What is known of the lost part is how long it may have lasted, and, if the file that is replaced
can still be read, how far it had come. So the next number is above both: above what that file shows, and above what a bot that made
QUOTES_PER_SECOND all the time since the backup would have reached. A year of that fits into the nine digits of a number.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

QUOTES_PER_SECOND: Final = 30  # far more than Slack lets one workspace ask for, or one bot answer, for long
SPARE: Final = 1_000  # a burst, and clocks that differ
NUMBER_MAX: Final = 999_999_999  # nine digits


def numbers_skipped(backup: Mapping[int, int], replaced: Mapping[int, int], made_at: int, now: int) -> dict[int, int]:
    """Return, by year, the number to go on after. `backup` and `replaced` have the last numbers given out; times in Unix ms.

    Raises ValueError when a year has no number left.
    """
    first, last = _year(min(made_at, now)), _year(now)
    skipped = {}
    for year in sorted({*backup, *replaced, *range(first, last + 1)}):
        seconds = max(0, min(now, _begin(year + 1)) - max(made_at, _begin(year))) // 1000 + 1
        possible = backup.get(year, 0) + SPARE + QUOTES_PER_SECOND * seconds
        skipped[year] = max(possible, replaced.get(year, 0) + SPARE)
        if skipped[year] >= NUMBER_MAX:
            raise ValueError(f"no quote number of {year} is left that was certainly never given out")
    return skipped


def _year(unix_ms: int) -> int:
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC).year


def _begin(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)
