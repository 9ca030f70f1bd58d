"""What is owed to Salesforce after a version's record, and what it may hold from us. Inside an open ledger transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.records import Effect
from quotebot import effects
from quotebot.domain.crm_fields import FieldVerdict, status_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.database import Tx
    from ledger.records import EffectIntent
    from quotebot.domain.quotes import Quote

STATUS: Final = "status"
DOCUMENT: Final = "document"


def told_before(earlier: Iterable[Effect], version: int) -> set[str]:
    """Return the statuses that Salesforce may hold from us: what was told last, and what was sent since and never answered."""
    found = {"approved"}  # the record was made with it
    for effect in earlier:
        if effect.effect_class != effects.UPDATE or effect.payload.get("what") != STATUS or effect.payload["version"] != version:
            continue
        result = effect.result or {}
        if effect.state == "delivered" and result.get("verdict") in (FieldVerdict.WRITE, FieldVerdict.THERE):
            found = {result["status"]}
        elif effect.maybe_sent:
            found.add(effect.payload["status"])
    return found


def status_owed(tx: Tx, before: Quote, after: Quote) -> tuple[EffectIntent, ...]:
    """Owe what a decision changed about versions that Salesforce has, or will have."""
    if before.version != after.version:
        return _owed(tx, after.quote_id, before.version, "superseded")
    old, new = status_of(before), status_of(after)
    return () if old == new else _owed(tx, after.quote_id, after.version, new)


def document_owed(tx: Tx, effect: Effect, sha256: str) -> tuple[EffectIntent, ...]:
    """Owe a rendered PDF to the record of its version."""
    create = _creation(tx, effect.aggregate_id, effect.payload["version"])
    if create is None:
        return ()
    return (effects.document_in_crm(effect.aggregate_id, effect.payload["version"], sha256, create.effect_key),)


def _owed(tx: Tx, quote_id: str, version: int, status: str) -> tuple[EffectIntent, ...]:
    create = _creation(tx, quote_id, version)
    return () if create is None else (effects.status_in_crm(quote_id, version, status, create.effect_key),)


def _creation(tx: Tx, quote_id: str, version: int) -> Effect | None:
    """Return the effect that writes a version's record, unless nobody wants it any more."""
    found = [each for each in effects_of(tx, quote_id) if each.effect_class == effects.CRM and each.payload["version"] == version]
    return found[-1] if found and found[-1].state not in ("discarded", "superseded") else None


def effects_of(tx: Tx, quote_id: str) -> list[Effect]:
    """Return all that was ever owed about a quote, oldest first."""
    return [Effect.of(row) for row in tx.all("effects_of_aggregate", aggregate_id=quote_id)]


def label_of(effect: Effect) -> str:
    """Return what people call it."""
    return "The PDF in Salesforce" if effect.payload["what"] == DOCUMENT else "The status in Salesforce"
