"""CRM effects that follow the creation of a version's record: its status, its PDF and the opportunity's amount; and the CRM sync.

Each call writes the state at that moment, so repeated or late calls converge; the effects are enqueued once the record exists. A
value that a person changed meanwhile is left alone or put to the operators, as the ownership in the mapping says.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.api import CrmDocument
from ledger.records import Delivered
from quotebot.domain import money
from quotebot.domain.quotes.crm_fields import CrmDifference, FieldVerdict, judge, status_of
from quotebot.execution.crm_effects import CHOSEN, DOCUMENT, OWN, effects_of, newest_recorded, notified_before
from quotebot.store import crm as store
from quotebot.store import quotes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from adapters.salesforce.api import ChangedQuote, Salesforce, SalesforceQuote
    from adapters.salesforce.mapping import CrmMapping
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect
    from quotebot.domain.quotes.quote import Quote

_KEY: Final = re.compile(r"(?P<ledger>[A-Za-z0-9-]+)_(?P<quote>Q-[0-9]{4}-[0-9]{4,})_v(?P<version>[0-9]{1,9})")
TITLE_DIGITS: Final = 12  # digits of a document's checksum in its title


@dataclass(frozen=True, slots=True)
class CrmUpdates:
    """Effect handler for crm.update. While `salesforce` is None (not configured), the effects wait and their class is paused."""

    ledger: Ledger
    salesforce: Salesforce | None
    content_of: Callable[[Effect, Quote], Awaitable[bytes]]  # returns the bytes of the PDF that an effect names

    async def perform(self, effect: Effect, quote: Quote, key: str, content_hash: str) -> Delivered:
        """Write one update. `quote` is the current state of its version, `key` is the key of its record. Raises AdapterError."""
        if self.salesforce is None:
            raise AdapterError(
                Failure.AUTH, "not_configured", "Salesforce is not configured: set SALESFORCE_INSTANCE_URL and its credentials."
            )
        held = await self.salesforce.read_quote(key, correlation_id=effect.correlation_id)
        if held is None:
            message = (
                f"Salesforce holds no record {key} any more: somebody deleted it. Nothing was written. "
                "Restore it from the recycle bin and replay this, or discard it."
            )
            raise AdapterError(Failure.CONFLICT, "record_gone", message)
        if held.content_hash != content_hash or held.version != quote.version:
            message = (
                f"The record {held.record_id} under the key {key} is not what was written: its version or its hash differs. "
                "It was left as it is. Look at it in Salesforce before replaying this."
            )
            raise AdapterError(Failure.CONFLICT, "record_differs", message)
        if effect.payload["what"] == DOCUMENT:
            return await self._attach(effect, quote, key, held.record_id)
        return await self._tell(effect, quote, key, held.record_id, held.status)

    async def _tell(self, effect: Effect, quote: Quote, key: str, record_id: str, theirs: str | None) -> Delivered:
        assert self.salesforce is not None  # noqa: S101 -- checked by `perform`
        mapping = self.salesforce.mapping.status
        status = status_of(quote)
        ours = mapping.words[status]
        earlier = await self.ledger.database.read(lambda tx: effects_of(tx, effect.aggregate_id))
        expected = {mapping.words[name] for name in notified_before(earlier, quote.version)} | set(
            effect.payload.get("instead_of", ())
        )
        verdict = judge(mapping.owner, ours, theirs, expected)
        if verdict is FieldVerdict.WRITE:
            await self.salesforce.write_status(key, ours, correlation_id=effect.correlation_id)
        if quote.superseded:
            title = document_title(quote, None)
            await self.salesforce.retitle(f"{key}_pdf", title, correlation_id=effect.correlation_id)
        field = status_field(self.salesforce.mapping)
        found = {"field": field, "ours": ours, "theirs": theirs, "verdict": verdict.value}
        result = {"record_id": record_id, "status": status, **found}
        return Delivered(record_id, result, already_there=verdict is FieldVerdict.THERE)

    async def _attach(self, effect: Effect, quote: Quote, key: str, record_id: str) -> Delivered:
        assert self.salesforce is not None  # noqa: S101 -- checked by `perform`
        sha256 = effect.payload["sha256"]
        document = CrmDocument(
            key=f"{key}_pdf",
            title=document_title(quote, sha256),
            file_name=f"{quote.quote_id}-v{quote.version}.pdf",
            record_id=record_id,
            content=await self.content_of(effect, quote),
        )
        attached = await self.salesforce.attach(document, correlation_id=effect.correlation_id)
        return Delivered(attached.record_id, {"record_id": attached.record_id}, already_there=not attached.created)


@dataclass(frozen=True, slots=True)
class CrmReader:
    """Effect handler for crm.read: finds our changed records, and those whose value we may not overwrite."""

    ledger: Ledger
    salesforce: Salesforce | None

    async def perform(self, effect: Effect) -> Delivered:
        """Continue from where the last sync ended. Raises AdapterError."""
        salesforce = readable(self.salesforce)
        sobject = salesforce.mapping.quote
        came_from, ledger_id = await self.ledger.database.read(lambda tx: (store.cursor(tx, sobject), _ledger_id(tx)))
        since = came_from or _moment(effect.created_at)
        changes = await salesforce.changed_quotes(since, correlation_id=effect.correlation_id)
        looked = await self.ledger.database.read(
            lambda tx: [_look(tx, each, ledger_id, salesforce.mapping) for each in changes.quotes]
        )
        result = {
            "read": True,
            "object": sobject,
            "came_from": came_from,
            "modstamp": changes.modstamp or since,
            "field": status_field(salesforce.mapping),
            "agreed": [[one.quote_id, one.version] for one, asks in filter(None, looked) if not asks],
            "found": [asdict(one) for one, asks in filter(None, looked) if asks],
            "more": changes.more,
        }
        return Delivered(None, result)


def _look(tx: Tx, changed: ChangedQuote, ledger_id: str, crm: CrmMapping) -> tuple[CrmDifference, bool] | None:
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


def status_field(mapping: CrmMapping) -> str:
    """Return the name of the status field, as messages and audit entries show it."""
    return f"{mapping.quote}.{mapping.status.field}"


def _ledger_id(tx: Tx) -> str:
    row = tx.one("meta", name="ledger_id")
    assert row is not None  # noqa: S101 -- written by the first migration
    found: str = row["value"]
    return found


def _moment(at_ms: int) -> str:
    """Return a time in Salesforce's format. It bounds the first sync: changes before the first crm.read are not needed."""
    return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}+0000"


def document_title(quote: Quote, sha256: str | None) -> str:
    """Return the title of the PDF in Salesforce. The bytes never change; the title marks a superseded version."""
    name = f"{quote.quote_id} v{quote.version}"
    if quote.superseded:
        return f"{name} (superseded)"
    return name if sha256 is None else f"{name} (sha256 {sha256[:TITLE_DIGITS]})"


@dataclass(frozen=True, slots=True)
class OpportunityAmounts:
    """Effect handler for the amount in crm.update. While `salesforce` is None (not configured), the effect waits and is paused."""

    salesforce: Salesforce | None

    async def perform(self, effect: Effect, newest: SalesforceQuote) -> Delivered:
        """Write the amount unless it is there already or the opportunity is closed: people own closed books.

        Raises AdapterError.
        """
        if self.salesforce is None:
            raise AdapterError(Failure.AUTH, "not_configured", "Salesforce is not configured: the amount waits.")
        opportunities = self.salesforce.opportunities
        held = await opportunities.read(newest, correlation_id=effect.correlation_id)
        if held is None:
            message = (
                f"The opportunity of {newest.key} is not in Salesforce any more, or our login may not read it. Its amount was not "
                "written; the quote and its record are unchanged. Restore it from the recycle bin and replay this, or discard it."
            )
            raise AdapterError(Failure.CONFLICT, "opportunity_gone", message)
        result = {"record_id": held.record_id, "amount": money.trimmed(newest.total), "closed": held.closed}
        there = held.closed or held.amount == newest.total
        if not there:
            await opportunities.write_amount(newest, correlation_id=effect.correlation_id)
        return Delivered(held.record_id, result, already_there=there)


def newest_of_record(tx: Tx, quote_id: str) -> Quote:
    """Return the newest version that has a record in Salesforce."""
    quote = quotes.load_version(tx, quote_id, newest_recorded(tx, quote_id))
    assert quote is not None  # noqa: S101 -- it has a record, so it exists
    return quote


def opportunity_kind(quote: SalesforceQuote, mapping: CrmMapping) -> str | None:
    """Return which opportunity's amount follows a quote: one that a user chose, our own, or None if no amount does."""
    if quote.opportunity_id:
        return CHOSEN if mapping.choice is not None and mapping.choice.amount is not None else None
    return None if mapping.opportunity is None else OWN


def readable(salesforce: Salesforce | None) -> Salesforce:
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
