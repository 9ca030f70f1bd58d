"""The REST resources below /services/data/vXX.X/: records, external ids, describe, query, limits."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from quotebot.sandbox.salesforce import soql
from quotebot.sandbox.salesforce.org import MatchesError, Org, Record
from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError, refusal
from quotebot.sandbox.salesforce.schema import SCHEMA, SObject
from quotebot.sandbox.salesforce.values import record_id as cursor_id
from quotebot.sandbox.salesforce.values import written

if TYPE_CHECKING:
    from collections.abc import Mapping


DAILY_LIMIT = 100_000
BATCH_MAX = 2_000  # records of a query in one answer
_BATCH_MIN = 200
_BATCH_WISH = re.compile(r"batchSize\s*=\s*(\d+)", re.IGNORECASE)
_MULTIPLE_CHOICES = 300
_WRITES = frozenset({"POST", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: `body` is JSON-ready apart from Decimals, bytes for a file, None for no content.

    `applied` tells whether a write was committed.
    """

    status: int
    body: object = None
    applied: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: SalesforceRefusalError) -> Reply:
        """Return the answer that reports a refusal."""
        return cls(error.status, error.body())


@dataclass(frozen=True, slots=True)
class Call:
    """One request below the version: `path` is split and unquoted, e.g. ("sobjects", "Quote", "Quotebot_Key__c", "k1")."""

    method: str
    path: tuple[str, ...]
    params: Mapping[str, str]
    body: object
    version: str  # "v65.0"
    options: str = ""  # the header Sforce-Query-Options

    @classmethod
    def parse(cls, method: str, url: str, body: object, options: str = "") -> Call:
        """Parse a URL such as /services/data/v65.0/sobjects/Quote?fields=Id. Raises NOT_FOUND for any other path."""
        parts = urlsplit(url)
        segments = [unquote(segment) if "%" in segment else segment for segment in parts.path.split("/") if segment]
        if len(segments) < 4 or segments[:2] != ["services", "data"] or not segments[2].startswith("v"):  # noqa: PLR2004 -- services/data/version/resource
            raise refusal("NOT_FOUND")
        params = dict(parse_qsl(parts.query, keep_blank_values=True)) if parts.query else {}
        if params.get("_HttpMethod") and method == "POST":
            method = params["_HttpMethod"].upper()
        return cls(method, tuple(segments[3:]), params, body, segments[2], options)

    def name(self) -> str:
        """Return the call's name for faults and request log: composite/graph, query, sobjects/Quote, sobjects/Quote/describe."""
        if self.path[0] == "sobjects" and len(self.path) > 1:
            sobject = SCHEMA.get(self.path[1].lower())
            name = f"sobjects/{sobject.name if sobject else self.path[1]}"
            return f"{name}/describe" if self.path[2:3] == ("describe",) else name
        return "/".join(self.path[:2])


class RestApi:
    """Answers one call at a time; every refusal is raised as SalesforceRefusalError."""

    def __init__(self, org: Org) -> None:
        self._org = org
        self._cursors: dict[str, tuple[list[Record], int]] = {}  # rows of a long query, and how many go into one answer
        self.served = 0  # calls against the daily limit
        self.allowance = DAILY_LIMIT

    def serve(self, call: Call) -> Reply:  # noqa: C901, PLR0911, PLR0912 -- one case per resource
        """Answer one call other than the composite ones."""
        match (call.method, call.path):
            case ("GET", ("sobjects",)):
                sobjects = [sobject.summary(call.version) for sobject in SCHEMA.values()]
                return Reply(200, {"encoding": "UTF-8", "maxBatchSize": 200, "sobjects": sobjects})
            case ("GET", ("limits",)):
                return Reply(200, {"DailyApiRequests": {"Max": self.allowance, "Remaining": self.allowance - self.served}})
            case ("GET", ("query" | "queryAll",)):
                return self._query(call)
            case ("GET", ("query" | "queryAll", locator)):
                return self._more(call, locator)
            case ("GET", ("sobjects", name, "describe")):
                return Reply(200, self._org.sobject(name).describe())
            case ("GET", ("sobjects", name)):
                return Reply(200, {"objectDescribe": self._org.sobject(name).summary(), "recentItems": []})
            case ("POST", ("sobjects", name)):
                return self._create(call, self._org.sobject(name))
            case ("GET", ("sobjects", name, "updated" | "deleted" as which)):
                return self._changed(call, self._org.sobject(name), which)
            case ("GET", ("sobjects", name, raw_id, "VersionData")):
                sobject = self._org.sobject(name)
                return Reply(200, self._org.file(sobject, self._org.resolve(sobject, raw_id)))
            case (_, ("sobjects", name, raw_id)):
                sobject = self._org.sobject(name)
                return self._by_id(call, sobject, self._org.resolve(sobject, raw_id))
            case (_, ("sobjects", name, field_name, value)):
                return self._by_external_id(call, self._org.sobject(name), field_name, value)
            case (_, ("sobjects" | "query" | "limits", *_)) if call.method not in ("GET", *_WRITES):
                raise _method_not_allowed(call.method)
            case _:
                raise refusal("NOT_FOUND")

    def _query(self, call: Call) -> Reply:
        text = call.params.get("q", "")
        sobject, records = soql.query(self._org, text, deleted=call.path == ("queryAll",))
        if soql.counts(text):
            return Reply(200, {"totalSize": len(records), "done": True, "records": []})
        place = f"/services/data/{call.version}/sobjects"
        rows: list[Record] = [{"attributes": _attributes(place, sobject.name, record), **record} for record in records]
        wish = _BATCH_WISH.search(call.options)
        size = BATCH_MAX if wish is None else min(max(int(wish[1]), _BATCH_MIN), BATCH_MAX)
        if len(rows) <= size:
            return Reply(200, {"totalSize": len(rows), "done": True, "records": rows})
        cursor = cursor_id("01g", len(self._cursors) + 1)
        self._cursors[cursor] = rows, size
        return self._more(call, f"{cursor}-0")

    def _more(self, call: Call, locator: str) -> Reply:
        """Answer one batch of a long query: a locator consists of the cursor and the start of the batch."""
        name, _, place = locator.rpartition("-")
        rows, size = self._cursors.get(name, ([], 0))
        if not place.isdecimal() or int(place) >= len(rows):
            raise refusal("INVALID_QUERY_LOCATOR")
        end = int(place) + size
        done = end >= len(rows)
        following = {} if done else {"nextRecordsUrl": f"/services/data/{call.version}/query/{name}-{end}"}
        return Reply(200, {"totalSize": len(rows), "done": done, **following, "records": rows[int(place) : end]})

    def _changed(self, call: Call, sobject: SObject, which: str) -> Reply:
        """Return the records that were written, or deleted, between `start` and `end`."""
        try:
            start, end = (written(dt.datetime.fromisoformat(call.params[name])) for name in ("start", "end"))
        except (KeyError, ValueError):
            raise SalesforceRefusalError(
                "INVALID_REPLICATION_DATE", "start and end must be dates with a time and an offset"
            ) from None
        records = self._org.deleted(sobject) if which == "deleted" else self._org.all(sobject)
        found = [record for record in records if start <= str(record["SystemModstamp"]) < end]
        if which == "updated":
            return Reply(200, {"ids": [record["Id"] for record in found], "latestDateCovered": end})
        gone = [{"id": record["Id"], "deletedDate": record["SystemModstamp"]} for record in found]
        return Reply(200, {"deletedRecords": gone, "earliestDateAvailable": start, "latestDateCovered": end})

    def _create(self, call: Call, sobject: SObject) -> Reply:
        new_id = self._org.create(sobject, _record_body(call))
        headers = {"Location": f"/services/data/{call.version}/sobjects/{sobject.name}/{new_id}"}
        return Reply(201, {"id": new_id, "success": True, "errors": []}, applied=True, headers=headers)

    def _by_id(self, call: Call, sobject: SObject, record_id: str) -> Reply:
        if call.method == "GET":
            return Reply(200, self._selected(call, sobject, record_id))
        if call.method == "PATCH":
            self._org.update(sobject, record_id, _record_body(call))
        elif call.method == "DELETE":
            self._org.delete(sobject, record_id)
        else:
            raise _method_not_allowed(call.method)
        return Reply(204, applied=True)

    def _by_external_id(self, call: Call, sobject: SObject, field_name: str, value: str) -> Reply:
        if field_name.lower() == "id":
            return self._by_id(call, sobject, self._org.resolve(sobject, value))
        try:
            found = self._org.find(sobject, field_name, value)
        except MatchesError as matches:
            place = f"/services/data/{call.version}/sobjects/{matches.sobject}"
            return Reply(_MULTIPLE_CHOICES, [f"{place}/{match}" for match in matches.ids])
        if call.method in ("PATCH", "POST"):
            return self._upsert(call, sobject, field_name, value, found)
        if found is None:
            raise refusal("NOT_FOUND")
        return self._by_id(call, sobject, found)

    def _upsert(self, call: Call, sobject: SObject, field_name: str, value: str, found: str | None) -> Reply:
        values = _record_body(call)
        if any(name.lower() == field_name.lower() for name in values):
            raise SalesforceRefusalError(
                "INVALID_FIELD", f"The {field_name} field should not be specified in the sobject data.", (field_name,)
            )
        if found is not None:
            self._org.update(sobject, found, values)
            return Reply(200, {"id": found, "success": True, "errors": [], "created": False}, applied=True)
        if call.params.get("updateOnly", "").lower() == "true":
            raise refusal("NOT_FOUND")
        new_id = self._org.create(sobject, {**values, field_name: value})
        return Reply(201, {"id": new_id, "success": True, "errors": [], "created": True}, applied=True)

    def _selected(self, call: Call, sobject: SObject, record_id: str) -> Record:
        record = self._org.read(sobject, record_id)
        attributes = {"type": sobject.name, "url": f"/services/data/{call.version}/sobjects/{sobject.name}/{record_id}"}
        if "fields" not in call.params:
            return {"attributes": attributes, **record}
        selected: Record = {"attributes": attributes, "Id": record_id}
        for name in call.params["fields"].split(","):
            field_ = sobject.field(name.strip())
            if field_ is None:
                raise SalesforceRefusalError("INVALID_FIELD", f"No such column '{name.strip()}' on sobject of type {sobject.name}")
            selected[field_.name] = record[field_.name]
        return selected


def _attributes(place: str, name: str, record: Record) -> Record:
    """Return a row's `attributes`; the URL only if the query selected the id."""
    return {"type": name, "url": f"{place}/{name}/{record['Id']}"} if "Id" in record else {"type": name}


def _record_body(call: Call) -> dict[str, object]:
    if isinstance(call.body, dict):
        return call.body
    raise SalesforceRefusalError("JSON_PARSER_ERROR", "The HTTP entity body is required and must be one JSON object")


def _method_not_allowed(method: str) -> SalesforceRefusalError:
    return SalesforceRefusalError("METHOD_NOT_ALLOWED", f"HTTP Method '{method}' not allowed.", status=405)
