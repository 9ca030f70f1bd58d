"""Up to 200 records in one request: composite/sobjects (create, update, upsert, delete, read) and composite/tree (create)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.salesforce.errors import SalesforceRefusalError
from quotebot.sandbox.salesforce.rest import Call, Reply, RestApi

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.sandbox.salesforce.org import Org

RECORDS_MAX = 200
_BAD_REQUEST = 400
_ROLLED_BACK = {
    "statusCode": "ALL_OR_NONE_OPERATION_ROLLED_BACK",
    "message": "Record rolled back because not all records were valid and the request was using AllOrNone header",
    "fields": [],
}


class CollectionsApi:
    """Runs each record as the equivalent single call; with allOrNone a failure undoes all of them."""

    def __init__(self, org: Org, rest: RestApi) -> None:
        self._org = org
        self._rest = rest

    def serve(self, call: Call) -> Reply:
        """Answer one request below composite/sobjects or composite/tree. Raises NOT_FOUND for any other path."""
        match (call.method, call.path):
            case ("POST", ("composite", "sobjects")):
                return self._written(call, lambda record: ("POST", _typed(record), _fields(record)))
            case ("PATCH", ("composite", "sobjects")):
                return self._written(call, lambda record: ("PATCH", f"{_typed(record)}/{_text(record, 'id')}", _fields(record)))
            case ("PATCH", ("composite", "sobjects", name, field)):
                return self._written(call, lambda record: _upsert(name, field, record))
            case ("DELETE", ("composite", "sobjects")):
                return self._deleted(call)
            case ("GET" | "POST", ("composite", "sobjects", name)):
                return self._read(call, name)
            case ("POST", ("composite", "tree", name)):
                return self._tree(call, name)
        raise SalesforceRefusalError(404, "NOT_FOUND", "The requested resource does not exist")

    def _written(self, call: Call, as_call: Callable[[dict[str, Any]], tuple[str, str, dict[str, Any]]]) -> Reply:
        records = _records(call.body)
        all_or_none = isinstance(call.body, dict) and call.body.get("allOrNone") is True

        def write(record: dict[str, Any]) -> Reply:
            method, place, body = as_call(record)
            return self._rest.serve(Call.parse(method, f"/services/data/{call.version}/sobjects/{place}", body))

        ids = [_given_id(record) for record in records]
        return self._run(ids, [partial(write, record) for record in records], all_or_none=all_or_none)

    def _deleted(self, call: Call) -> Reply:
        ids = [text for text in call.params.get("ids", "").split(",") if text]
        _check_count(ids)
        place = f"/services/data/{call.version}/sobjects"

        def delete(record_id: str) -> Reply:
            return self._rest.serve(Call.parse("DELETE", f"{place}/{self._org.named_by(record_id)}/{record_id}", None))

        all_or_none = call.params.get("allOrNone", "").lower() == "true"
        return self._run(ids, [partial(delete, record_id) for record_id in ids], all_or_none=all_or_none)

    def _run(self, ids: list[str | None] | list[str], writes: list[Callable[[], Reply]], *, all_or_none: bool) -> Reply:
        results: list[dict[str, object]] = []
        failed = applied = False

        def run() -> None:
            nonlocal failed, applied
            for given, write in zip(ids, writes, strict=True):
                try:
                    reply = write()
                except SalesforceRefusalError as refusal:
                    failed = True
                    results.append(_failure(given, refusal))
                else:
                    applied = applied or reply.applied
                    results.append(_success(given, reply))
            _undo_if(failed and all_or_none)

        try:
            if all_or_none:
                with self._org.transaction():
                    run()
            else:
                run()
        except _UndoneError:
            applied = False
            results = [{"success": False, "errors": [_ROLLED_BACK]} if result["success"] else result for result in results]
        return Reply(200, results, applied=applied)

    def _read(self, call: Call, name: str) -> Reply:
        body = call.body if isinstance(call.body, dict) else {}
        ids = body.get("ids") or call.params.get("ids", "").split(",")
        fields = body.get("fields") or call.params.get("fields", "").split(",")
        _check_count(ids)
        place = f"/services/data/{call.version}/sobjects/{name}"
        found: list[object] = []
        for record_id in ids:
            try:
                found.append(self._rest.serve(Call.parse("GET", f"{place}/{record_id}?fields={','.join(fields)}", None)).body)
            except SalesforceRefusalError as refusal:
                if refusal.code == "INVALID_FIELD":
                    raise
                found.append(None)
        return Reply(200, found)

    def _tree(self, call: Call, name: str) -> Reply:
        """Create trees of records; a failure undoes all of them, and the answer names only the failed records."""
        results: list[dict[str, object]] = []
        failures: list[dict[str, object]] = []
        roots = _records(call.body)

        def create(sobject: str, record: dict[str, Any], parent: dict[str, str]) -> None:
            reference = str(_attributes(record).get("referenceId"))
            children = {key: value for key, value in record.items() if isinstance(value, dict) and "records" in value}
            fields = {key: value for key, value in _fields(record).items() if key not in children}
            _check_count([*results, *failures, record])
            try:
                place = f"/services/data/{call.version}/sobjects/{sobject}"
                reply = self._rest.serve(Call.parse("POST", place, {**fields, **parent}))
            except SalesforceRefusalError as refusal:
                error = {"statusCode": refusal.code, "message": refusal.message, "fields": list(refusal.fields or ())}
                failures.append({"referenceId": reference, "errors": [error]})
                return
            new_id = str(reply.body["id"]) if isinstance(reply.body, dict) else ""
            results.append({"referenceId": reference, "id": new_id})
            for child in (child for inner in children.values() for child in _records(inner)):
                create(_typed(child), child, {f"{sobject}Id": new_id})

        try:
            with self._org.transaction():
                for root in roots:
                    create(name, root, {})
                _undo_if(bool(failures))
        except _UndoneError:
            return Reply(_BAD_REQUEST, {"hasErrors": True, "results": failures})
        return Reply(201, {"hasErrors": False, "results": results}, applied=True)


class _UndoneError(Exception):
    """The block is rolled back because a part of it failed."""


def _undo_if(failed: bool) -> None:  # noqa: FBT001 -- the condition of its name
    if failed:
        raise _UndoneError


def _records(body: object) -> list[dict[str, Any]]:
    found = body.get("records") if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise SalesforceRefusalError(_BAD_REQUEST, "JSON_PARSER_ERROR", "The request body needs a list of objects named records")
    _check_count(found)
    return found


def _check_count(items: list[Any]) -> None:
    if len(items) > RECORDS_MAX:
        message = f"record limit reached. cannot submit more than {RECORDS_MAX} records in this call"
        raise SalesforceRefusalError(_BAD_REQUEST, "EXCEEDED_ID_LIMIT", message)


def _attributes(record: dict[str, Any]) -> dict[str, Any]:
    found = record.get("attributes")
    return found if isinstance(found, dict) else {}


def _typed(record: dict[str, Any]) -> str:
    kind = _attributes(record).get("type")
    if isinstance(kind, str) and kind:
        return kind
    raise SalesforceRefusalError(_BAD_REQUEST, "INVALID_TYPE", "the record's attributes must name its type", ())


def _text(record: dict[str, Any], name: str) -> str:
    value = next((value for key, value in record.items() if key.lower() == name.lower()), None)
    if isinstance(value, str) and value:
        return value
    raise SalesforceRefusalError(_BAD_REQUEST, "MISSING_ARGUMENT", f"{name} not specified in an update call", ())


def _given_id(record: dict[str, Any]) -> str | None:
    found = record.get("id", record.get("Id"))
    return found if isinstance(found, str) else None


def _fields(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name.lower() not in ("attributes", "id")}


def _upsert(name: str, field: str, record: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    fields = {key: value for key, value in _fields(record).items() if key.lower() != field.lower()}
    return "PATCH", f"{name}/{field}/{_text(record, field)}", fields


def _success(given: str | None, reply: Reply) -> dict[str, object]:
    body = reply.body if isinstance(reply.body, dict) else {}
    created = {"created": body["created"]} if "created" in body else {}
    return {"id": body.get("id", given), "success": True, "errors": [], **created}


def _failure(given: str | None, refusal: SalesforceRefusalError) -> dict[str, object]:
    error = {"statusCode": refusal.code, "message": refusal.message, "fields": list(refusal.fields or ())}
    return {**({"id": given} if given else {}), "success": False, "errors": [error]}
