"""Follow-up effects in Salesforce after a version's record exists, and the values it may hold from us.

Everything runs inside an open ledger transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.records import AuditEvent, Effect, FollowUps
from quotebot import effects
from quotebot.domain.language import N_, _
from quotebot.domain.quotes.crm_fields import CrmDifference, FieldVerdict, status_of
from quotebot.domain.quotes.quote import QuoteState
from quotebot.store import crm as store
from quotebot.store import quotes
from quotebot.views import crm_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledger.database import Tx
    from ledger.records import EffectIntent
    from quotebot.domain.quotes.quote import Quote

STATUS: Final = "status"
DOCUMENT: Final = "document"
AMOUNT: Final = "amount"
STAGE: Final = "stage"
CHOSEN, OWN = "chosen", "own"  # the record's opportunity, in the result of the creating effect: the user's or ours
_OURS: Final = (FieldVerdict.WRITE, FieldVerdict.THERE)  # the field holds our value afterwards
_LABELS: Final = {
    STATUS: N_("The status in Salesforce"),
    DOCUMENT: N_("The PDF in Salesforce"),
    AMOUNT: N_("The opportunity's amount in Salesforce"),
    STAGE: N_("The opportunity's stage in Salesforce"),
}


def notified_before(earlier: Iterable[Effect], version: int) -> set[str]:
    """Return the statuses that Salesforce may hold from us: the last confirmed one, and those sent since without an answer."""
    found = {"approved"}  # the record is created with it
    for effect in earlier:
        if effect.effect_class != effects.UPDATE or effect.payload.get("what") != STATUS or effect.payload["version"] != version:
            continue
        result = effect.result or {}
        if effect.state == "delivered" and result.get("verdict") in _OURS:
            found = {result["status"]}
        elif effect.maybe_sent:
            found.add(effect.payload["status"])
    return found


def written_before(earlier: Iterable[Effect], field: str, words: Mapping[str, str]) -> set[str]:
    """Return the values of a field that follows the status which the opportunity may hold from us. `words` are by status."""
    found: set[str] = set()
    for effect in earlier:
        if effect.effect_class != effects.UPDATE or effect.payload.get("what") != STAGE:
            continue
        fields = (effect.result or {}).get("fields", ()) if effect.state == "delivered" else ()
        ours = {each["ours"] for each in fields if each["field"].partition(".")[2] == field and each["verdict"] in _OURS}
        if ours:
            found = ours
        elif effect.maybe_sent and effect.payload["status"] in words:
            found.add(words[effect.payload["status"]])
    return found


def status_pending(tx: Tx, before: Quote, after: Quote) -> tuple[EffectIntent, ...]:
    """Return the effects of a decision on versions that have a record in Salesforce. `after_creation` handles later records."""
    if before.version != after.version:
        return _status(tx, before.quote_id, before.version, "superseded")
    old, new = status_of(before), status_of(after)
    status_writes = () if old == new else (*_status(tx, after.quote_id, after.version, new), *_stage(tx, after, new))
    finalized = after.state is QuoteState.FINALIZED and before.state is not QuoteState.FINALIZED
    return (*status_writes, *(_amount(tx, after.quote_id, after.version) if finalized else ()))


def document_pending(tx: Tx, effect: Effect) -> tuple[EffectIntent, ...]:
    """Return the effect that attaches a rendered PDF to the record of its version, if the record exists."""
    version, sha256 = effect.payload["version"], (effect.result or {})["sha256"]
    if creation_of(tx, effect.aggregate_id, version) is None:
        return ()
    return (effects.document_in_crm(effect.aggregate_id, version, sha256),)


def after_creation(tx: Tx, effect: Effect, version: Quote) -> tuple[EffectIntent, ...]:
    """Return the effects that the new record is missing: its version's status, a chosen opportunity's amount, a rendered PDF."""
    status = status_of(version)
    status_writes = () if status == "approved" else (effects.status_in_crm(effect.aggregate_id, version.version, status),)
    result = effect.result or {}
    if result.get("stage"):
        status_writes = (*status_writes, effects.stage_in_crm(effect.aggregate_id, version.version, status))
    # Our own opportunity gets its amount with the record, unless another owner has to be heeded.
    if result.get("opportunity") == CHOSEN or result.get("amount_apart"):
        status_writes = (*status_writes, effects.amount_in_crm(effect.aggregate_id, version.version))
    for earlier in reversed(effects_of(tx, effect.aggregate_id)):
        rendered = earlier.effect_class == effects.RENDER and earlier.payload["version"] == version.version
        if rendered and earlier.state == "delivered" and earlier.result is not None:
            return (*status_writes, effects.document_in_crm(effect.aggregate_id, version.version, earlier.result["sha256"]))
    return status_writes


def _status(tx: Tx, quote_id: str, version: int, status: str) -> tuple[EffectIntent, ...]:
    there = creation_of(tx, quote_id, version) is not None
    return (effects.status_in_crm(quote_id, version, status),) if there else ()


def _stage(tx: Tx, quote: Quote, status: str) -> tuple[EffectIntent, ...]:
    made = creation_of(tx, quote.quote_id, quote.version)
    follows = made is not None and bool((made.result or {}).get("stage"))
    return (effects.stage_in_crm(quote.quote_id, quote.version, status),) if follows else ()


def _amount(tx: Tx, quote_id: str, version: int) -> tuple[EffectIntent, ...]:
    made = creation_of(tx, quote_id, version)
    hangs = made is not None and "opportunity" in (made.result or {})
    return (effects.amount_in_crm(quote_id, version),) if hangs else ()


def newest_recorded(tx: Tx, quote_id: str) -> int:
    """Return the newest version that has a Salesforce record. Raises LookupError if there is none."""
    made = [each for each in effects_of(tx, quote_id) if each.effect_class == effects.CRM and each.state == "delivered"]
    if not made:
        raise LookupError(f"{quote_id} has no record")
    return max(int(each.payload["version"]) for each in made)


def creation_of(tx: Tx, quote_id: str, version: int) -> Effect | None:
    """Return the effect that created a version's record, or None while there is none."""
    made = [
        each
        for each in effects_of(tx, quote_id)
        if each.effect_class == effects.CRM and each.payload["version"] == version and each.state == "delivered"
    ]
    return made[-1] if made else None


def effects_of(tx: Tx, quote_id: str) -> list[Effect]:
    """Return all effects of a quote, in any state, oldest first."""
    return [Effect.of(row) for row in tx.all("effects_of_aggregate", aggregate_id=quote_id)]


def label_of(effect: Effect) -> str:
    """Return the display name of an update."""
    what = effect.payload["what"]
    return _(_LABELS[what])


def after_update(tx: Tx, effect: Effect, now: int) -> FollowUps:
    """Put each field that the update left to an operator (ASK) into the reconcile queue; otherwise close the field's open row."""
    result = effect.result or {}
    if effect.state != "delivered":
        return FollowUps()
    version, found, what = effect.payload["version"], [], effect.payload["what"]
    versions = version if what == STATUS else None  # a difference about the opportunity concerns all versions
    for each in result.get("fields", [result] if "verdict" in result else []):
        asks = each["verdict"] == FieldVerdict.ASK
        store.over(tx, effect.aggregate_id, versions, each["field"], now, but=version if asks else None)
        if asks:
            place = (effect.aggregate_id, version, result["record_id"], each["field"])
            found.append(CrmDifference(*place, each["ours"], each["theirs"], what))
    return _notified(tx, found, now)


def after_reading(tx: Tx, effect: Effect, now: int) -> FollowUps:
    """Store the sync's cursor and its findings, and enqueue the next read if there is more. No effect if another sync was first."""
    result = effect.result or {}
    if effect.payload["what"] == "mirror":
        more = effect.state == "delivered" and result.get("more")
        return FollowUps((effects.read_mirror(effect.aggregate_id, result["kind"]),)) if more else FollowUps()
    if effect.state != "delivered" or not result.get("read"):
        return FollowUps()
    if not store.move_cursor(tx, result["object"], result["came_from"], result["modstamp"], now):
        return FollowUps()
    for quote_id, version in result["agreed"]:
        store.over(tx, quote_id, version, result["field"], now)
    found = _notified(tx, [CrmDifference(**each) for each in result["found"]], now)
    rest = (effects.read_crm(effect.aggregate_id),) if result["more"] else ()
    return FollowUps((*found.effects, *rest), found.events)


def _notified(tx: Tx, differences: Iterable[CrmDifference], now: int) -> FollowUps:
    """Store the differences; a new one is posted in the quote's thread and recorded in the audit."""
    notices: list[EffectIntent] = []
    events: list[AuditEvent] = []
    for each in differences:
        conflict = store.keep(tx, each, now)
        if conflict is not None:
            root = quotes.root_effect_key(tx, each.quote_id)
            notices.append(effects.notice(each.quote_id, root, crm_messages.found(conflict)))
            facts = {"field": each.field, "version": each.version, "record_id": each.record_id, "conflict": conflict.id}
            events.append(AuditEvent("crm.conflict_found", each.quote_id, after=facts))
    return FollowUps(tuple(notices), tuple(events))
