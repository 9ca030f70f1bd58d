"""Changes to quotes after a restore from a backup: fresh quote numbers and redrawn cards."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ledger.intake import Cause, enqueue
from ledger.records import QUOTEBOT
from quotebot import effects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.audit.events import Audit
    from ledger.database import Tx

CARDS_PER_GENERATION: Final = 1_000_000  # keeps their ordinals apart from the other effects of the quote's first command


def current(tx: Tx) -> int:
    """Return the ledger's generation: 1 until its first restore from a backup."""
    row = tx.one("last_generation")
    return 1 if row is None else int(row["generation"])


def last_numbers(tx: Tx) -> dict[int, int]:
    """Return the last quote number of each year."""
    return {row["year"]: row["last"] for row in tx.all("quote_numbers")}


def skip_numbers(tx: Tx, replaced: Mapping[int, int], made_at: int, now: int) -> dict[int, int]:
    """Continue above every number that may have been allocated since the backup; return the new last number by year.

    Times in ms.
    """
    skipped = numbers_skipped(last_numbers(tx), replaced, made_at, now)
    for year, last in skipped.items():
        tx.one("skip_quote_numbers", year=year, last=last)
    return skipped


def draw_open_cards(tx: Tx, audit: Audit, now: int, generation: int) -> None:
    """Enqueue the card of every open quote again: it may show events of the lost part."""
    for row in tx.all("cards_of_open_quotes"):
        cause = Cause(
            row["operation_id"], row["operation_key"], row["correlation_id"], first_ordinal=generation * CARDS_PER_GENERATION
        )
        for owed in enqueue(tx, audit, now, cause, [effects.card(row["quote_id"], row["root_effect_key"])]):
            audit.append(
                tx,
                now,
                "effect.owed",
                actor=QUOTEBOT,
                actor_type="system",
                operation_key=row["operation_key"],
                correlation_id=row["correlation_id"],
                aggregate_id=row["quote_id"],
                retry_count=row["attempts"],
                after=owed,
            )


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
