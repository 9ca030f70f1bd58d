"""Wake-ups: every unfinished row has something that wakes it. Plain SQL, nothing of the code under test.

A due time wakes a row; an owner wakes it (it settles the row, or its end is detected by its epoch or its lease); a parent wakes its
dependants.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ASLEEP_FOR_GOOD = """
SELECT 'operation ' || o.id || ' is ' || o.state || ' and has no due time'
FROM operations AS o WHERE o.state IN ('reserved', 'failed_retryable') AND o.next_attempt_at IS NULL
UNION ALL
SELECT 'operation ' || o.id || ' is in progress and has no owner whose end anybody could notice'
FROM operations AS o
WHERE o.state = 'in_progress' AND (o.lease_until IS NULL OR NOT EXISTS (SELECT 1 FROM epochs WHERE epochs.epoch = o.epoch))
UNION ALL
SELECT 'effect ' || e.id || ' is in flight and has no owner whose end anybody could notice'
FROM effects AS e
WHERE e.state = 'in_flight' AND (e.lease_until IS NULL OR NOT EXISTS (SELECT 1 FROM epochs WHERE epochs.epoch = e.epoch))
UNION ALL
SELECT 'effect ' || e.id || ' is ' || e.state || ', has no due time, and waits for '
  || coalesce('effect ' || e.after_id || ', which is ' || coalesce(parent.state, 'gone'), 'nothing')
FROM effects AS e LEFT JOIN effects AS parent ON parent.id = e.after_id
WHERE e.state IN ('pending', 'uncertain') AND e.next_attempt_at IS NULL
  AND (parent.id IS NULL OR parent.state IN ('delivered', 'superseded', 'discarded'))
"""


class Connection(Protocol):
    """A connection to a ledger of any engine."""

    def execute(self, sql: str, /) -> Iterable[Any]:
        """Run a statement and return its rows."""
        ...


def asleep_for_good(ledger: Connection) -> list[str]:
    """Return a sentence for each unfinished row of the ledger that nothing wakes."""
    return [sentence for (sentence,) in ledger.execute(ASLEEP_FOR_GOOD)]


def asleep_in(path: Path) -> list[str]:
    """Return the same for the ledger in this file."""
    with closing(sqlite3.connect(path)) as ledger:
        return asleep_for_good(ledger)
