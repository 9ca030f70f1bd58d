"""Effect classes crm.create, crm.update and crm.read: the record of a quote version in Salesforce, and changes made there.

The record is written under a key of its own. An update is the status of a version's record, its PDF, or the amount or the stage
of the quote's opportunity. Each call writes the state at that moment, so repeated or late calls converge; updates are enqueued once
the record exists. A value that a person changed meanwhile is left alone or put to the operators, as the ownership in the mapping
says. A read brings our changed records, and the pages of mirrored objects, since the last sync.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from adapters.failures import AdapterError, Failure
from adapters.salesforce.graph import SalesforceLine, SalesforceQuote
from adapters.salesforce.records import CrmDocument, Position
from ledger import keys
from ledger.records import Delivered, FollowUps
from quotebot import effects
from quotebot.dispatch import crm_opportunity
from quotebot.dispatch.documents import Documents, of_approved, remember
from quotebot.dispatch.services import EffectHandler, dead_letter_card_updated, enqueuing
from quotebot.domain import money
from quotebot.domain.language import _
from quotebot.domain.pricing.commercial_terms import payment_days, payment_text
from quotebot.domain.pricing.engine import canonical, request_of
from quotebot.domain.quotes.crm_fields import CrmDifference, FieldVerdict, judge, status_of
from quotebot.domain.quotes.quote import loss_category
from quotebot.execution import crm_effects
from quotebot.execution.crm_effects import (
    AMOUNT,
    CHOSEN,
    DOCUMENT,
    OWN,
    STAGE,
    effects_of,
    newest_recorded,
    notified_before,
    written_before,
)
from quotebot.store import crm, crm_mirror, quotes
from quotebot.store.crm_mirror import fingerprint
from quotebot.views.document import file_name

if TYPE_CHECKING:
    from adapters.salesforce.api import ChangedQuote, Salesforce
    from adapters.salesforce.mapping import CrmMapping
    from ledger.database import Tx
    from ledger.records import Effect
    from quotebot.dispatch.services import Services
    from quotebot.domain.quotes.quote import Quote

OPPORTUNITY_NAME_MAX: Final = 120  # Salesforce's limit
_KEY: Final = re.compile(r"(?P<ledger>[A-Za-z0-9-]+)_(?P<quote>Q-[0-9]{4}-[0-9]{4,})_v(?P<version>[0-9]{1,9})")


class CreateRecordHandler(EffectHandler):
    """Creates the record, or finds it under its key."""

    effect_class: ClassVar = effects.CRM

    async def perform(self, effect: Effect) -> Delivered:
        """Create the record unless it exists. Raises AdapterError."""
        salesforce = connected(self.services)
        wanted = await record_of(self.services, await self.services.quote(effect))
        record = await salesforce.create_quote(wanted, correlation_id=effect.correlation_id)
        return Delivered(record.record_id, _created(wanted, record.record_id, salesforce.mapping), already_there=not record.created)

    async def find(self, effect: Effect) -> Delivered | None:
        """Find the record under its key. Raises AdapterError."""
        salesforce = connected(self.services)
        wanted = await record_of(self.services, await self.services.quote(effect))
        found = await salesforce.find_quote(wanted.key, wanted.content_hash, correlation_id=effect.correlation_id)
        if found is None:
            return None
        return Delivered(found.record_id, _created(wanted, found.record_id, salesforce.mapping), already_there=True)

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the redrawn card, and what the new record lacks: its PDF, its present status, the opportunity's amount."""
        delivered = effect.state == "delivered"
        if delivered and effect.external_ref is not None:
            tx.one("keep_crm_record", record_id=effect.external_ref, quote_id=effect.aggregate_id)
        more = crm_effects.after_creation(tx, effect, enqueuing(tx, effect)) if delivered else ()
        return of_approved(tx, effect, now_ms, more)


def connected(services: Services) -> Salesforce:
    """Return Salesforce's client. Raises AdapterError if none is configured: the class is paused, its effects wait."""
    if services.adapters.salesforce is None:
        missing = _("Salesforce is not configured: set SALESFORCE_INSTANCE_URL and its credentials.")
        raise AdapterError(Failure.AUTH, "not_configured", missing)
    return services.adapters.salesforce


async def record_of(services: Services, quote: Quote) -> SalesforceQuote:
    """Return the record of a quote version, as Salesforce is to hold it."""
    ours, account = await services.ledger.database.read(lambda tx: (ledger_id(tx), account_id(tx, quote.account)))
    return replace(crm_quote(quote, ours), account_id=account)


def ledger_id(tx: Tx) -> str:
    """Return the id of this ledger, which begins the key of each of its records."""
    return str(tx.required("meta", name="ledger_id")["value"])


def account_id(tx: Tx, name: str) -> str | None:
    """Return the id of the mirrored account of that name; None without a complete copy, and if none or several have the name."""
    rows = tx.all("mirrored_accounts", name=name, name_key=name.casefold())
    return str(rows[0]["record_id"]) if len(rows) == 1 else None


def crm_quote(quote: Quote, ledger_id: str) -> SalesforceQuote:
    """Return the record of a quote version. Its key and its content hash depend on nothing else."""
    snapshot: Any = canonical(quote.pricing)
    request = request_of(quote.pricing)
    agreed = request.commercial
    days = payment_days(agreed, request.terms)
    return SalesforceQuote(
        key=f"{ledger_id}_{quote.quote_id}_v{quote.version}",
        name=f"{quote.quote_id} v{quote.version} {quote.account}",
        account=quote.account,
        version=quote.version,
        currency=quote.pricing.currency,
        total=quote.pricing.net_total,
        content_hash=keys.digest(snapshot),
        expires_on=datetime.fromtimestamp(quote.valid_until // 1000, tz=UTC).date().isoformat(),
        lines=tuple(
            SalesforceLine(
                sku=line.sku,
                name=line.name,
                quantity=line.quantity,
                months=line.months,
                unit_price=money.multiply(line.unit_price, line.months),  # for the whole term: Salesforce multiplies by quantity
                discount_percent=quote.pricing.granted_percent(line),
                net_amount=line.net_amount,
                position=line.position,
            )
            for line in quote.pricing.lines
        ),
        opportunity_key=f"{ledger_id}_{quote.quote_id}",
        opportunity_name=f"{quote.quote_id} {quote.account}"[:OPPORTUNITY_NAME_MAX],
        is_head=not quote.superseded,
        opportunity_id="" if quote.opportunity is None else quote.opportunity.record_id,
        opportunity_account_id="" if quote.opportunity is None else quote.opportunity.account_id,
        tax=quote.pricing.tax_total if request.with_tax else None,
        bill_to=agreed.bill_to,
        bill_to_email=agreed.bill_to_email,
        bill_to_address=agreed.bill_to_address,
        vat_id=agreed.vat_id,
        po_number=agreed.po_number,
        start_date=None if agreed.start_date is None else agreed.start_date.isoformat(),
        payment=None if days is None else payment_text(days),
    )


def _created(quote: SalesforceQuote, record_id: str, mapping: CrmMapping) -> dict[str, Any]:
    """Return the result of a creation: the record, and what of its opportunity is written apart from it."""
    opportunity = _opportunity_kind(quote, mapping)
    apart = opportunity == OWN and mapping.amount_owner != "local_wins"
    follows = (mapping.stage, mapping.loss_reason) != (None, None) and (
        bool(quote.opportunity_id) or mapping.opportunity is not None
    )
    return {
        "record_id": record_id,
        **({} if opportunity is None else {"opportunity": opportunity}),
        **({"amount_apart": True} if apart else {}),
        **({"stage": True} if follows else {}),
    }


def _opportunity_kind(quote: SalesforceQuote, mapping: CrmMapping) -> str | None:
    """Return which opportunity's amount follows a quote: one that a user chose, our own, or None if no amount does."""
    if quote.opportunity_id:
        return CHOSEN if mapping.choice is not None and mapping.choice.amount is not None else None
    return None if mapping.opportunity is None else OWN


TITLE_DIGITS: Final = 12  # digits of a document's checksum in its title


class UpdateRecordHandler(EffectHandler):
    """Writes one change to a record that exists. While Salesforce is not configured, the effects wait as paused."""

    effect_class: ClassVar = effects.UPDATE

    async def perform(self, effect: Effect) -> Delivered:
        """Write one update unless Salesforce holds it already. Raises AdapterError."""
        quote = await self.services.quote(effect)
        salesforce = connected(self.services)
        if effect.payload["what"] in (AMOUNT, STAGE):
            newest, deal = await self.services.ledger.database.read(lambda tx: _opportunity_of(tx, effect, salesforce.mapping))
            return await crm_opportunity.write(salesforce, effect, await record_of(self.services, newest), deal)
        record = await record_of(self.services, quote)
        held = await salesforce.read_quote(record.key, correlation_id=effect.correlation_id)
        if held is None:
            message = _(
                "Salesforce holds no record {key} any more: somebody deleted it. Nothing was written. "
                "Restore it from the recycle bin and replay this, or discard it.",
                key=record.key,
            )
            raise AdapterError(Failure.CONFLICT, "record_gone", message)
        if held.content_hash != record.content_hash or held.version != quote.version:
            message = _(
                "The record {record} under the key {key} is not what was written: its version or its hash differs. "
                "It was left as it is. Look at it in Salesforce before replaying this.",
                record=held.record_id,
                key=record.key,
            )
            raise AdapterError(Failure.CONFLICT, "record_differs", message)
        if effect.payload["what"] == DOCUMENT:
            return await self._attach(salesforce, effect, quote, record.key, held.record_id)
        return await self._write_status(salesforce, effect, quote, record.key, held.record_id, held.status)

    async def _write_status(
        self, salesforce: Salesforce, effect: Effect, quote: Quote, key: str, record_id: str, theirs: str | None
    ) -> Delivered:
        mapping, status = salesforce.mapping.status, status_of(quote)
        ours = mapping.words[status]
        earlier = await self.services.ledger.database.read(lambda tx: effects_of(tx, effect.aggregate_id))
        expected = {mapping.words[name] for name in notified_before(earlier, quote.version)}
        verdict = judge(mapping.owner, ours, theirs, expected | set(effect.payload.get("instead_of", ())))
        if verdict is FieldVerdict.WRITE:
            await salesforce.write_status(key, ours, correlation_id=effect.correlation_id)
        if quote.superseded:
            await salesforce.retitle(f"{key}_pdf", _document_title(quote, None), correlation_id=effect.correlation_id)
        found = {"field": status_field(salesforce.mapping), "ours": ours, "theirs": theirs, "verdict": verdict.value}
        result = {"record_id": record_id, "status": status, **found}
        return Delivered(record_id, result, already_there=verdict is FieldVerdict.THERE)

    async def _attach(self, salesforce: Salesforce, effect: Effect, quote: Quote, key: str, record_id: str) -> Delivered:
        _effect, content = await Documents(self.services).content(effect, quote)
        document = CrmDocument(
            key=f"{key}_pdf",
            title=_document_title(quote, effect.payload["sha256"]),
            file_name=file_name(quote),
            record_id=record_id,
            content=content,
        )
        attached = await salesforce.attach(document, correlation_id=effect.correlation_id)
        return Delivered(attached.record_id, {"record_id": attached.record_id}, already_there=not attached.created)

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the redrawn card and a notice of a failure. A difference goes to the reconcile queue."""
        if effect.state == "delivered":
            remember(tx, effect, now_ms)
        found = crm_effects.after_update(tx, effect, now_ms)
        shown = of_approved(tx, effect, now_ms, found.effects, name=crm_effects.label_of(effect))
        return FollowUps(shown.effects, found.events)


def status_field(mapping: CrmMapping) -> str:
    """Return the name of the status field, as messages and audit entries show it."""
    return f"{mapping.quote}.{mapping.status.field}"


def _document_title(quote: Quote, sha256: str | None) -> str:
    """Return the title of the PDF in Salesforce. The bytes never change; the title marks a superseded version."""
    name = f"{quote.quote_id} v{quote.version}"
    if quote.superseded:
        return f"{name} (superseded)"
    return name if sha256 is None else f"{name} (sha256 {sha256[:TITLE_DIGITS]})"


def _opportunity_of(tx: Tx, effect: Effect, mapping: CrmMapping) -> tuple[Quote, crm_opportunity.Deal]:
    """Return the newest version that has a record in Salesforce, and what its opportunity may hold from us."""
    quote = quotes.load_version(tx, effect.aggregate_id, newest_recorded(tx, effect.aggregate_id))
    assert quote is not None  # noqa: S101 -- it has a record, so it exists
    earlier = (quotes.load_version(tx, quote.quote_id, version) for version in range(1, quote.version + 1))
    totals = [each.pricing.net_total for each in earlier if each is not None] if mapping.amount_owner != "local_wins" else []
    written = {each.field: written_before(effects_of(tx, quote.quote_id), each.field, each.words) for each in mapping.following}
    reason = loss_category(None if quote.closing is None else quote.closing.reason)
    return quote, crm_opportunity.Deal(status_of(quote), reason, frozenset(map(money.trimmed, totals)), written)


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
            message = _(
                "The mapping of Salesforce has no part [mirror.{kind}]. Nothing was read. "
                "Add it, or take {kind} out of crm_mirror.",
                kind=kind,
            )
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
        raise AdapterError(Failure.AUTH, "not_configured", _("Salesforce is not configured: it cannot be read."))
    spare = salesforce.background_wait_seconds()
    if spare is not None:
        message = _("Most of the org's daily allowance of calls is used: what is left is kept for quotes.")
        raise AdapterError(Failure.THROTTLED, "allowance_reserved", message, retry_after_seconds=spare)
    return salesforce
