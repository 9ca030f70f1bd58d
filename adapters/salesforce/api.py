"""Salesforce client: writes one immutable Quote record with its lines per quote version, idempotent under repetition.

Later changes (the version's status, its document) are separate writes, which are repeatable too. `adapters/salesforce/calls.py`
sends, authenticates, cancels and classifies requests; the mapping names the fields.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adapters.failures import AdapterError, Failure
from adapters.salesforce.calls import RestRequest, SalesforceCalls, Trip, soql_beginning, soql_moment
from adapters.salesforce.describe import Described, read_described
from adapters.salesforce.errors import SalesforceRefusal, Target, lost, refused
from adapters.salesforce.graph import (
    Opportunities,
    SalesforceLine,
    SalesforceQuote,
    checked_key,
    exact_json,
    graph_body,
    read_graph,
)
from adapters.salesforce.mapping import CrmMapping, default_mapping
from adapters.salesforce.mirror import Mirrors
from adapters.salesforce.transport import ClientCredentials, Credentials, make_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor

    import requests

    from adapters.salesforce.calls import ApiUsage
    from adapters.salesforce.records import CrmDocument

__all__ = ["Salesforce", "SalesforceLine", "SalesforceQuote", "SalesforceRecord"]

API_VERSION = "65.0"
MODSTAMP = "SystemModstamp"
CHANGES_MAX = 500  # records per query
OVERLAP_SECONDS = 5
ACCOUNTS_MAX = 20
RESERVED_WAIT_SECONDS = 900.0
_OK = 200


@dataclass(frozen=True, slots=True)
class SalesforceRecord:
    """The Quote record in Salesforce. `created` is false if it already existed under our key with our hash."""

    record_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class HeldQuote:
    """Current state of a quote version in Salesforce. `version` is None if it is not a whole number."""

    record_id: str
    content_hash: str | None
    version: int | None
    status: str | None


@dataclass(frozen=True, slots=True)
class ChangedQuote:
    """One of our records that changed in Salesforce, through us or anyone else."""

    record_id: str
    key: str
    status: str | None


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """Changes since a given time. `modstamp` is that of the newest change, empty without changes; with `more`, continue from it."""

    quotes: tuple[ChangedQuote, ...]
    modstamp: str
    more: bool


class Salesforce:
    """Salesforce client. Safe to share between tasks; `threads` calls run at once and the others wait within their own deadline.

    `instance_url` is the org's own https address (https://acme.my.salesforce.com), `ca_file` a PEM file to trust instead of the
    public authorities, `timeout_seconds` the longest deadline of one whole call, login included; an effect has its own (see
    `call_seconds`). `credentials` replaces the client secret, e.g. by an assertion. `watch` receives the usage of the org's API
    allowance each time it begins to run short, in a worker thread. `session` and `executor` replace our own connections and
    threads.
    """

    def __init__(
        self,
        instance_url: str,
        client_id: str,
        client_secret: str = "",
        *,
        credentials: Credentials | None = None,
        mapping: CrmMapping | None = None,
        ca_file: str | None = None,
        timeout_seconds: float = 20.0,
        threads: int = 4,
        watch: Callable[[ApiUsage], None] | None = None,
        session: requests.Session | None = None,
        executor: Executor | None = None,
    ) -> None:
        parts = urlsplit(instance_url)
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise ValueError(
                "the Salesforce instance URL must be an https address without credentials, such as https://acme.my.salesforce.com"
            )
        if ca_file is not None and not Path(ca_file).is_file():
            raise ValueError(f"the certificate file for Salesforce does not exist: {ca_file}")
        self.mapping = mapping or default_mapping()
        self._hash_field, self._version_field = map(self.mapping.field_of, ("content_hash", "version"))
        self._calls = SalesforceCalls(
            f"https://{parts.netloc}",
            credentials or ClientCredentials(client_id, client_secret),
            api_version=API_VERSION,
            timeout_seconds=timeout_seconds,
            session=session or make_session(ca_file=ca_file, timeout_seconds=timeout_seconds, connections=threads),
            threads=threads,
            executor=executor,
            watch=watch,
        )
        self.opportunities = Opportunities(self._calls, self.mapping)
        self.mirrors = Mirrors(self._calls)

    @property
    def usage(self) -> ApiUsage | None:
        """Usage of the org's API allowance, as last reported; None before the first report."""
        return self._calls.usage

    async def create_quote(self, quote: SalesforceQuote, *, correlation_id: str) -> SalesforceRecord:
        """Write the quote and its lines, all or nothing. Repeating it under the same key and hash returns the existing record.

        Raises AdapterError: VALIDATION before anything is sent for a bad key or more than 499 lines, CONFLICT when the key holds
        other content or the chosen opportunity cannot take it, otherwise the failure of Salesforce's answer.
        """
        body = graph_body(quote, API_VERSION, self.mapping)
        trip = Trip(correlation_id, Target("write the quote", self.mapping.quote, quote.key, writes=True))
        return await self._calls.within_deadline(trip, self._create(quote, body, trip))

    async def _with_opportunity(self, quote: SalesforceQuote, body: bytes, trip: Trip) -> bytes:
        """Return the request body, rewritten to use the quote's opportunity if it exists: all versions share one."""
        wanted = self.mapping.opportunity
        if wanted is None or quote.opportunity_id:
            return body
        field = self.mapping.closed
        found = await self._read(wanted.sobject, wanted.key, checked_key(quote.opportunity_key), filter(None, [field]), trip)
        if found is None:
            return body
        closed = field is not None and found.get(field) is True
        return graph_body(quote, API_VERSION, self.mapping, opportunity_id=found["Id"], closed=closed)

    async def find_quote(self, key: str, content_hash: str, *, correlation_id: str) -> SalesforceRecord | None:
        """Return the quote of that key; None when it is absent. Raises AdapterError, CONFLICT when it holds other content."""
        trip = Trip(correlation_id, Target("read the quote", self.mapping.quote, checked_key(key)))
        return await self._calls.within_deadline(trip, self._find(key, content_hash, trip))

    async def read_quote(self, key: str, *, correlation_id: str) -> HeldQuote | None:
        """Return the record's state under that key, or None if there is no record. Raises AdapterError."""
        mapping = self.mapping
        names = (self._hash_field, self._version_field, mapping.status.field)
        trip = Trip(correlation_id, Target("read the quote", mapping.quote, checked_key(key)))
        found = await self._calls.within_deadline(trip, self._read(mapping.quote, mapping.quote_key, key, names, trip))
        if found is None:
            return None
        content_hash, version, status = (found.get(name) for name in names)
        return HeldQuote(
            record_id=found["Id"],
            content_hash=content_hash if isinstance(content_hash, str) else None,
            version=int(version) if isinstance(version, int | Decimal) and version == int(version) else None,
            status=status if isinstance(status, str) else None,
        )

    async def write_status(self, key: str, word: str, *, correlation_id: str) -> None:
        """Write the status of the quote of that key; never creates a record. Raises AdapterError."""
        mapping = self.mapping
        values = {mapping.status.field: word}
        await self._change(mapping.quote, mapping.quote_key, key, values, f"write the status {word} of", correlation_id)

    async def attach(self, document: CrmDocument, *, correlation_id: str) -> SalesforceRecord:
        """Attach a file to a record. Repeating it under the same key returns the existing one. Raises AdapterError."""
        mapping = self.mapping
        values = {
            mapping.document_key: checked_key(document.key),
            "Title": document.title,
            "PathOnClient": document.file_name,
            mapping.document_parent: document.record_id,
        }
        shown = {name: json.dumps(value) for name, value in values.items()}
        target = Target("attach the document", mapping.document, document.key, shown, writes=True)
        content = base64.b64encode(document.content).decode("ascii")
        body = exact_json({**values, "VersionData": content}).encode()
        trip = Trip(correlation_id, target)
        request = RestRequest("POST", f"sobjects/{mapping.document}", target, body)
        return await self._calls.within_deadline(trip, self._attach(request, document.key, trip))

    async def retitle(self, key: str, title: str, *, correlation_id: str) -> bool:
        """Change the title of a file; return False when there is no file of that key. Raises AdapterError."""
        mapping = self.mapping
        deed = "change the title of"
        try:
            await self._change(mapping.document, mapping.document_key, key, {"Title": title}, deed, correlation_id)
        except AdapterError as error:
            if error.code == "NOT_FOUND":
                return False
            raise
        return True

    async def changed_quotes(self, since: str, *, correlation_id: str) -> ChangedRecords:
        """Return our records that changed since `since` (a SystemModstamp), the oldest change first. Raises AdapterError.

        The query overlaps the previous one by OVERLAP_SECONDS: simultaneous changes become visible one after the other.
        """
        mapping = self.mapping
        target = Target("read what changed", mapping.quote)
        names = ("Id", mapping.quote_key, mapping.status.field, MODSTAMP)
        after = soql_moment(since, back_seconds=OVERLAP_SECONDS)
        query = (
            f"SELECT {', '.join(names)} FROM {mapping.quote} "  # noqa: S608 -- names of the mapping: API names only
            f"WHERE {mapping.quote_key} != null AND {MODSTAMP} > {after} ORDER BY {MODSTAMP} ASC LIMIT {CHANGES_MAX}"
        )
        rows = await self._calls.rows(query, Trip(correlation_id, target))
        changed = tuple(
            ChangedQuote(str(row["Id"]), str(row[mapping.quote_key]), row.get(mapping.status.field) or None) for row in rows
        )
        newest = str(rows[-1][MODSTAMP]) if rows else ""
        return ChangedRecords(changed, max(newest, since) if newest else "", more=len(rows) == CHANGES_MAX and newest > since)

    def background_wait_seconds(self) -> float | None:
        """Return the seconds for which background work should pause to spare the allowance, once per usage report; else None."""
        return RESERVED_WAIT_SECONDS if self._calls.spare_usage() else None

    async def find_accounts(self, beginning: str, seconds: float) -> tuple[str, ...]:
        """Return at most 20 names of accounts that begin with `beginning`, sorted, within `seconds`. Raises AdapterError."""
        sobject, name = self.mapping.lookup, self.mapping.lookup_name
        target = Target("look accounts up", sobject)
        query = (
            f"SELECT {name} FROM {sobject} "  # noqa: S608 -- names of the mapping: API names only
            f"WHERE {name} LIKE {soql_beginning(beginning)} ORDER BY {name} ASC LIMIT {ACCOUNTS_MAX}"
        )
        rows = await self._calls.rows(query, Trip("lookup", target), seconds=seconds)
        names = (row.get(name) for row in rows)
        return tuple(dict.fromkeys(each for each in names if isinstance(each, str) and each))[:ACCOUNTS_MAX]

    async def describe(self, sobject: str) -> Described | None:
        """Return the org's description of an object for our login, or None if no such object exists. Raises AdapterError."""
        trip = Trip("describe", Target("read the fields", sobject))
        request = RestRequest("GET", f"sobjects/{sobject}/describe", trip.target)
        try:
            answer = await self._calls.within_deadline(trip, self._calls.authorised(request, trip))
        except AdapterError as error:
            if error.code in ("NOT_FOUND", "INVALID_TYPE"):
                return None
            raise
        try:
            return read_described(answer)
        except ValueError as error:
            raise lost("unreadable", "its answer describes no object", trip.target, sent=True) from error

    async def close(self) -> None:
        """Cancel running calls and end the threads. Calls after this fail as transient."""
        await self._calls.close()

    async def _change(self, sobject: str, key_field: str, key: str, values: dict[str, str], deed: str, correlation_id: str) -> None:
        """Update fields of the record of that key, if it exists."""
        shown = {name: json.dumps(value) for name, value in values.items()}
        target = Target(deed, sobject, checked_key(key), shown, writes=True)
        trip = Trip(correlation_id, target)
        body, params = exact_json(values).encode(), {"updateOnly": "true"}
        request = RestRequest("PATCH", f"sobjects/{sobject}/{key_field}/{key}", target, body, params)
        await self._calls.within_deadline(trip, self._calls.authorised(request, trip))

    async def _attach(self, request: RestRequest, key: str, trip: Trip) -> SalesforceRecord:
        mapping = self.mapping
        try:
            answer = await self._calls.authorised(request, trip)
        except AdapterError as error:
            if error.code != "DUPLICATE_VALUE":
                raise
            trip.write = None  # refused: nothing was written
            found = await self._read(mapping.document, mapping.document_key, key, (), trip)
            if found is None:
                raise
            return SalesforceRecord(found["Id"], created=False)
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
            raise lost("unreadable", "its answer names no record", request.target, sent=True)
        return SalesforceRecord(answer["id"], created=True)

    async def _read(self, sobject: str, key_field: str, key: str, names: Iterable[str], trip: Trip) -> dict[str, Any] | None:
        """Read fields of the record of that key; None when it does not exist."""
        return await self._calls.record(
            f"sobjects/{sobject}/{key_field}/{key}", names, Target("read the record", sobject, key), trip
        )

    async def _create(self, quote: SalesforceQuote, body: bytes, trip: Trip) -> SalesforceRecord:
        if quote.opportunity_id:
            try:
                await self.opportunities.check(quote, trip)
            except AdapterError as error:
                written = await self._find(quote.key, quote.content_hash, trip) if error.failure is Failure.CONFLICT else None
                if written is None:
                    raise
                return written
        content = await self._with_opportunity(quote, body, trip)
        request = RestRequest("POST", "composite/graph", trip.target, content)
        answer = await self._calls.authorised(request, trip)
        try:
            result = read_graph(answer, quote, self.mapping)
        except ValueError as error:
            raise lost("unreadable", "its answer is not one to our request", trip.target, sent=True) from error
        if result.quote_id is not None:
            return SalesforceRecord(result.quote_id, created=True)
        trip.write = None  # rolled back as a whole
        refusal = result.refusal or SalesforceRefusal(_OK, "PROCESSING_HALTED")
        if refusal.code != "DUPLICATE_VALUE":
            raise refused(refusal, replace(trip.target, sobject=result.sobject, values=result.values), rolled_back=True)
        found = await self._find(quote.key, quote.content_hash, trip)
        if found is None:
            message = (
                f"Salesforce says that {result.sobject} of {quote.key} is a duplicate (DUPLICATE_VALUE) but holds no quote under "
                "that key. Nothing was written; another try is safe."
            )
            raise AdapterError(Failure.TRANSIENT, refusal.code, message, http_status=refusal.status)
        return found

    async def _find(self, key: str, content_hash: str, trip: Trip) -> SalesforceRecord | None:
        mapping = self.mapping
        found = await self._read(mapping.quote, mapping.quote_key, key, (self._hash_field,), trip)
        if found is None:
            return None
        if found.get(self._hash_field) == content_hash:
            return SalesforceRecord(found["Id"], created=False)
        message = (
            f"Salesforce already holds another content under the key {key} (record {found['Id']}): its {self._hash_field} differs "
            "from ours. Nothing was written. Look at the record before replaying it."
        )
        raise AdapterError(Failure.CONFLICT, "content_differs", message)
