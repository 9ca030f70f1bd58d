"""Several requests in one: `composite` (up to 25) and `composite/graph` (500 nodes in 75 graphs, all-or-nothing per graph).

Up to 200 records in one request: `composite/sobjects` (create, update, upsert, delete, read) and `composite/tree` (create).
"""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError, refusal
from quotebot.sandbox.salesforce.rest import Call, Reply, RestApi

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quotebot.sandbox.salesforce.org import Org

GRAPH_NODES_MAX = 500
GRAPHS_MAX = 75
GRAPH_DEPTH_MAX = 15
NODE_KINDS_MAX = 15  # an API version and an object make a kind
GRAPH_FAILURES_MAX = 14
COMPOSITE_MAX = 25
COMPOSITE_QUERIES_MAX = 5
_GRAPH_VERSION_MIN = 50.0
_REFERENCE = re.compile(r"@\{(\w+)\.([\w.\[\]]+)\}")
RECORDS_MAX = 200
_ERRORS = 400  # the lowest status of a refusal
_ROLLED_BACK = {
    "statusCode": "ALL_OR_NONE_OPERATION_ROLLED_BACK",
    "message": "Record rolled back because not all records were valid and the request was using AllOrNone header",
    "fields": [],
}
_HALTED = SalesforceRefusalError(
    "PROCESSING_HALTED",
    "The transaction was rolled back since another operation in the same transaction failed.",
)


class CompositeApi:
    """Runs each subrequest and each record as the equivalent single call."""

    def __init__(self, org: Org, rest: RestApi) -> None:
        self._org = org
        self._rest = rest

    def serve(self, call: Call) -> Reply:  # noqa: PLR0911 -- one return per resource
        """Answer one request below composite. Raises NOT_FOUND for any other path."""
        match (call.method, call.path):
            case ("POST", ("composite", "graph")):
                return self._graph(call)
            case ("POST", ("composite",)):
                return self._composite(call)
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
        raise refusal("NOT_FOUND")

    def _written(self, call: Call, as_call: Callable[[dict[str, Any]], tuple[str, str, dict[str, Any]]]) -> Reply:
        records = _records(call.body)
        all_or_none = isinstance(call.body, dict) and call.body.get("allOrNone") is True

        def write(record: dict[str, Any]) -> Reply:
            method, place, body = as_call(record)
            return self._rest.serve(Call.parse(method, f"/services/data/{call.version}/sobjects/{place}", body))

        given = [record.get("id", record.get("Id")) for record in records]
        ids = [found if isinstance(found, str) else None for found in given]
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
        try:
            with self._org.transaction() if all_or_none else nullcontext():
                for given, write in zip(ids, writes, strict=True):
                    try:
                        reply = write()
                    except SalesforceRefusalError as error:
                        failed = True
                        results.append({**({"id": given} if given else {}), "success": False, "errors": [_error_of(error)]})
                    else:
                        applied = applied or reply.applied
                        body = reply.body if isinstance(reply.body, dict) else {}
                        created = {"created": body["created"]} if "created" in body else {}
                        results.append({"id": body.get("id", given), "success": True, "errors": [], **created})
                _undo_if(failed and all_or_none)
        except _UndoneError:
            applied = False
            results = [{"success": False, "errors": [_ROLLED_BACK]} if result["success"] else result for result in results]
        return Reply(200, results, applied=applied)

    def _graph(self, call: Call) -> Reply:
        """Answer composite/graph: HTTP 200 whether or not the graphs succeed. Raises for a request that cannot be read."""
        if float(call.version[1:]) < _GRAPH_VERSION_MIN:
            raise refusal("NOT_FOUND")
        graphs = _list(call.body, "graphs")
        nodes = [_list(graph, "compositeRequest") for graph in graphs]
        _check_graphs(nodes)
        answers: list[dict[str, object]] = []
        applied = False
        failures = 0
        for graph, requests in zip(graphs, nodes, strict=True):
            if failures > GRAPH_FAILURES_MAX:
                results, succeeded = [Reply.of(_HALTED)] * len(requests), False
            else:
                results, succeeded = self._all_or_nothing(requests)
            failures += not succeeded
            applied = applied or (succeeded and any(result.applied for result in results))
            answers.append(
                {
                    "graphId": graph.get("graphId"),
                    "graphResponse": {"compositeResponse": _described(requests, results)},
                    "isSuccessful": succeeded,
                }
            )
        return Reply(200, {"graphs": answers}, applied=applied)

    def _composite(self, call: Call) -> Reply:
        """Answer composite; with allOrNone one failure undoes everything, without it the others stay."""
        requests = _list(call.body, "compositeRequest")
        queries = sum(
            re.search(r"/(query|queryAll|composite/sobjects)\b", str(request.get("url"))) is not None for request in requests
        )
        _check_limits(
            "composite", ("subrequests", len(requests), COMPOSITE_MAX), ("queries and collections", queries, COMPOSITE_QUERIES_MAX)
        )
        if isinstance(call.body, dict) and call.body.get("allOrNone") is True:
            results, _ = self._all_or_nothing(requests)
        else:
            results = self._one_by_one(requests)
        return Reply(200, {"compositeResponse": _described(requests, results)}, applied=any(result.applied for result in results))

    def _all_or_nothing(self, requests: list[dict[str, Any]]) -> tuple[list[Reply], bool]:
        answers: dict[str, Reply] = {}
        results: list[Reply] = []
        try:
            with self._org.transaction():
                for request in requests:
                    results.append(self._one(request, answers))  # noqa: PERF401 -- its length locates the failed request
        except SalesforceRefusalError as error:
            halted = Reply.of(_HALTED)
            culprit = len(results)
            results = [halted] * len(requests)
            results[culprit] = Reply.of(error)
            return results, False
        return results, True

    def _one_by_one(self, requests: list[dict[str, Any]]) -> list[Reply]:
        answers: dict[str, Reply] = {}
        results: list[Reply] = []
        for request in requests:
            try:
                results.append(self._one(request, answers))
            except SalesforceRefusalError as error:
                results.append(Reply.of(error))
        return results

    def _one(self, request: Mapping[str, Any], answers: dict[str, Reply]) -> Reply:
        method, url, reference = request.get("method"), request.get("url"), request.get("referenceId")
        if not isinstance(method, str) or not isinstance(url, str) or not isinstance(reference, str):
            raise SalesforceRefusalError("JSON_PARSER_ERROR", "Each subrequest needs a method, a url and a referenceId")
        if reference in answers:
            raise SalesforceRefusalError("INVALID_REFERENCE_ID", f"Duplicate referenceId specified: {reference}")
        reply = self._rest.serve(Call.parse(method.upper(), _filled(url, answers), _filled(request.get("body"), answers)))
        answers[reference] = reply
        return reply

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
            except SalesforceRefusalError as error:
                if error.code == "INVALID_FIELD":
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
            except SalesforceRefusalError as error:
                failures.append({"referenceId": reference, "errors": [_error_of(error)]})
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
            return Reply(400, {"hasErrors": True, "results": failures})
        return Reply(201, {"hasErrors": False, "results": results}, applied=True)


def _filled(value: Any, answers: Mapping[str, Reply]) -> Any:
    """Return `value` with every @{reference.path} replaced by the value in that one of the answers so far."""
    if isinstance(value, dict):
        return {name: _filled(item, answers) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, answers) for item in value]
    return _REFERENCE.sub(partial(_look_up, answers), value) if isinstance(value, str) and "@{" in value else value


def _look_up(answers: Mapping[str, Reply], match: re.Match[str]) -> str:
    reference, path = match.groups()
    answer = answers.get(reference)
    found: Any = answer.body if answer is not None and answer.status < _ERRORS else None
    for name in re.findall(r"\w+", path):
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            found = None
    if found is None:
        raise SalesforceRefusalError(
            "PROCESSING_HALTED", f"Invalid reference specified. No value for {reference}.{path} found in {reference}"
        )
    return str(found)


def _check_graphs(nodes: list[list[dict[str, Any]]]) -> None:
    """Refuse more than the documented numbers of graphs, nodes, kinds of nodes, and levels of dependent nodes."""
    kinds = {tuple(str(node.get("url")).lower().split("/")[3:6:2]) for requests in nodes for node in requests}
    _check_limits(
        "composite graph",
        ("graphs", len(nodes), GRAPHS_MAX),
        ("nodes", sum(map(len, nodes)), GRAPH_NODES_MAX),
        ("different nodes", len(kinds), NODE_KINDS_MAX),
        ("levels of nodes", max(map(_depth, nodes), default=0), GRAPH_DEPTH_MAX),
    )


def _check_limits(request: str, *numbers: tuple[str, int, int]) -> None:
    for what, number, limit in numbers:
        if number > limit:
            raise SalesforceRefusalError("LIMIT_EXCEEDED", f"The maximum number of {what} in a {request} request is {limit}")


def _depth(requests: list[dict[str, Any]]) -> int:
    """Return the length of the longest chain of nodes that refer to an earlier one."""
    depths: dict[str, int] = {}
    for request in requests:
        used = {match[1] for match in _REFERENCE.finditer(json.dumps([request.get("url"), request.get("body")], default=str))}
        depths[str(request.get("referenceId"))] = 1 + max((depths.get(name, 0) for name in used), default=0)
    return max(depths.values(), default=0)


def _list(body: object, name: str) -> list[dict[str, Any]]:
    found = body.get(name) if isinstance(body, dict) else None
    if isinstance(found, list) and all(isinstance(item, dict) for item in found):
        return found
    raise SalesforceRefusalError("JSON_PARSER_ERROR", f"The request body needs a list of objects named {name}")


def _described(requests: list[dict[str, Any]], results: list[Reply]) -> list[dict[str, object]]:
    return [
        {
            "body": result.body,
            "httpHeaders": dict(result.headers),
            "httpStatusCode": result.status,
            "referenceId": request.get("referenceId"),
        }
        for request, result in zip(requests, results, strict=True)
    ]


class _UndoneError(Exception):
    """The block is rolled back because a part of it failed."""


def _undo_if(failed: bool) -> None:  # noqa: FBT001 -- the condition of its name
    if failed:
        raise _UndoneError


def _records(body: object) -> list[dict[str, Any]]:
    found = body.get("records") if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise SalesforceRefusalError("JSON_PARSER_ERROR", "The request body needs a list of objects named records")
    _check_count(found)
    return found


def _check_count(items: list[Any]) -> None:
    if len(items) > RECORDS_MAX:
        raise SalesforceRefusalError(
            "EXCEEDED_ID_LIMIT", f"record limit reached. cannot submit more than {RECORDS_MAX} records in this call"
        )


def _attributes(record: dict[str, Any]) -> dict[str, Any]:
    found = record.get("attributes")
    return found if isinstance(found, dict) else {}


def _typed(record: dict[str, Any]) -> str:
    kind = _attributes(record).get("type")
    if isinstance(kind, str) and kind:
        return kind
    raise SalesforceRefusalError("INVALID_TYPE", "the record's attributes must name its type", ())


def _text(record: dict[str, Any], name: str) -> str:
    value = next((value for key, value in record.items() if key.lower() == name.lower()), None)
    if isinstance(value, str) and value:
        return value
    raise SalesforceRefusalError("MISSING_ARGUMENT", f"{name} not specified in an update call", ())


def _fields(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name.lower() not in ("attributes", "id")}


def _upsert(name: str, field: str, record: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    fields = {key: value for key, value in _fields(record).items() if key.lower() != field.lower()}
    return "PATCH", f"{name}/{field}/{_text(record, field)}", fields


def _error_of(error: SalesforceRefusalError) -> dict[str, object]:
    """Return a refusal as an entry of a record's errors."""
    return {"statusCode": error.code, "message": error.message, "fields": list(error.fields or ())}
