"""Effect class crm.read: our changed records, and the pages of mirrored objects, since the last sync."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.records import Position
from ledger.records import Delivered, FollowUps
from quotebot import effects
from quotebot.dispatch.crm_mirror import fingerprint
from quotebot.dispatch.crm_record import ledger_id, status_field
from quotebot.dispatch.services import EffectHandler, dead_letter_card_updated
from quotebot.domain.quotes.crm_fields import CrmDifference, FieldVerdict, judge, status_of
from quotebot.execution import crm_effects
from quotebot.execution.crm_effects import effects_of, notified_before
from quotebot.store import crm, crm_mirror, quotes

if TYPE_CHECKING:
    from adapters.salesforce.api import ChangedQuote, Salesforce
    from adapters.salesforce.mapping import CrmMapping
    from ledger.database import Tx
    from ledger.records import Effect

_KEY: Final = re.compile(r"(?P<ledger>[A-Za-z0-9-]+)_(?P<quote>Q-[0-9]{4}-[0-9]{4,})_v(?P<version>[0-9]{1,9})")


class ReadCrmHandler(EffectHandler):
    """Continues from where the last sync ended."""

    effect_class: ClassVar = effects.READ_CRM

    async def perform(self, effect: Effect) -> Delivered:
        """Read what changed. Raises AdapterError."""
        salesforce = _readable(self.services.adapters.salesforce)
        if effect.payload["what"] == "mirror":
            return await self._mirror(salesforce, effect)
        return await self._changes(salesforce, effect)

    async def _changes(self, salesforce: Salesforce, effect: Effect) -> Delivered:
        database, sobject = self.services.ledger.database, salesforce.mapping.quote
        came_from, ours = await database.read(lambda tx: (crm.cursor(tx, sobject), ledger_id(tx)))
        since = came_from or _moment(effect.created_at)
        changes = await salesforce.changed_quotes(since, correlation_id=effect.correlation_id)
        compared = await database.read(lambda tx: [_compare(tx, each, ours, salesforce.mapping) for each in changes.quotes])
        result = {
            "read": True,
            "object": sobject,
            "came_from": came_from,
            "modstamp": changes.modstamp or since,
            "field": status_field(salesforce.mapping),
            "agreed": [[one.quote_id, one.version] for one, asks in filter(None, compared) if not asks],
            "found": [asdict(one) for one, asks in filter(None, compared) if asks],
            "more": changes.more,
        }
        return Delivered(None, result)

    async def _mirror(self, salesforce: Salesforce, effect: Effect) -> Delivered:
        """Read the page after the last one, and store it and its cursor in one transaction.

        A page that is read twice, by any process, is stored once; after a crash between reading and storing it is read again.
        """
        database, clock, kind = self.services.ledger.database, self.services.ledger.clock, str(effect.payload["kind"])
        wanted = salesforce.mapping.mirrors.get(kind)
        if wanted is None:
            what = f"The mapping of Salesforce has no part [mirror.{kind}]. Nothing was read."
            message = f"{what} Add it, or take {kind} out of crm_mirror."
            raise AdapterError(Failure.MAPPING, "mirror_unmapped", message)
        read_as = fingerprint(wanted)
        before = await database.read(lambda tx: crm_mirror.cursor(tx, kind))
        after = before.position if before.read_as == read_as else Position()
        asked_at = clock.now_ms()
        page = await salesforce.mirrors.page(wanted, after, again=not before.more, correlation_id=effect.correlation_id)
        now = clock.now_ms()
        kept = await database.write(
            "keep_mirror_page",
            lambda tx: crm_mirror.apply(tx, kind, before, page, read_as=read_as, asked_at=asked_at, now=now),
        )
        result: dict[str, Any] = {"kind": kind, "kept": len(page.kept), "deleted": len(page.deleted), "more": page.more and kept}
        return Delivered(None, result)

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the next page, and a notice of each new difference."""
        found = crm_effects.after_reading(tx, effect, now_ms)
        return FollowUps((*found.effects, *dead_letter_card_updated(tx, effect)), found.events)


def _compare(tx: Tx, changed: ChangedQuote, ledger_id: str, crm: CrmMapping) -> tuple[CrmDifference, bool] | None:
    """Compare one record with its version; None when the record is not one of ours."""
    mapping = crm.status
    match = _KEY.fullmatch(changed.key)
    if match is None or match["ledger"] != ledger_id:
        return None
    quote_id, version = match["quote"], int(match["version"])
    quote = quotes.load_version(tx, quote_id, version)
    if quote is None:
        return None
    ours = mapping.words[status_of(quote)]
    expected = {mapping.words[name] for name in notified_before(effects_of(tx, quote_id), version)}
    verdict = judge(mapping.owner, ours, changed.status, expected)
    difference = CrmDifference(quote_id, version, changed.record_id, status_field(crm), ours, changed.status or "")
    return difference, verdict is FieldVerdict.ASK


def _moment(at_ms: int) -> str:
    """Return a time in Salesforce's format. It bounds the first sync: changes before the first crm.read are not needed."""
    return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}+0000"


def _readable(salesforce: Salesforce | None) -> Salesforce:
    """Return the client to read with.

    Raises AdapterError if none is configured or the rest of the org's daily calls is kept for quotes.
    """
    if salesforce is None:
        raise AdapterError(Failure.AUTH, "not_configured", "Salesforce is not configured: it cannot be read.")
    spare = salesforce.background_wait_seconds()
    if spare is not None:
        message = "Most of the org's daily allowance of calls is used: what is left is kept for quotes."
        raise AdapterError(Failure.THROTTLED, "allowance_reserved", message, retry_after_seconds=spare)
    return salesforce
