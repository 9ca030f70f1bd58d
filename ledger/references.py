"""References that people use for rows: c-xxxxxxxx or a key for an action, op12 for a command, 118 or #118 for an effect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.database import Row, Tx

ROW_ID_MAX: Final = 2**63 - 1
REFERENCE: Final = re.compile(r"(?:c-)?(?P<key>[0-9a-f]{8,64})|op(?P<operation>[0-9]{1,19})|#?(?P<effect>[0-9]{1,19})")


def operation_rows(tx: Tx, row_id: int) -> list[Row]:
    """Return the operation with that id, as a list of zero or one row."""
    row = None if row_id > ROW_ID_MAX else tx.one("operation_by_id", id=row_id)
    return [] if row is None else [row]


def effect_row(tx: Tx, row_id: int) -> Row | None:
    """Return the effect with that id."""
    return None if row_id > ROW_ID_MAX else tx.one("effect_by_id", id=row_id)
