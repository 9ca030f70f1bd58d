"""Offers: requests that wait for a person's confirmation, inside an open ledger transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from quotebot.commands.registry import CreateQuote
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from ledger.database import Tx


def offered(tx: Tx, token: str) -> store.Offer | None:
    """Return the creation that a token allows: refused as a resubmission, proposed, or extracted from a message."""
    row = tx.one("reading_proposed", token=token)
    if row is not None:
        return store.Offer(row["user_id"], row["team_id"], CreateQuote.kind, json.loads(row["proposal"]))
    codes = (RESUBMISSION, PROPOSED)
    return next(filter(None, (store.find_offer(tx, token, code) for code in codes)), None)


RESUBMISSION = "resubmission"  # code of a creation refused as a likely resubmission
PROPOSED = "proposed"  # code of a proposal that its author may confirm
