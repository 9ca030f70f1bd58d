"""Several requests in one: `composite` (up to 25) and `composite/graph` (500 nodes in 75 graphs, all-or-nothing per graph)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.salesforce.errors import SalesforceRefusalError
from quotebot.sandbox.salesforce.rest import Call, Reply, RestApi

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_BAD_REQUEST = 400
_HALTED = SalesforceRefusalError(
    _BAD_REQUEST,
    "PROCESSING_HALTED",
    "The transaction was rolled back since another operation in the same transaction failed.",
)


@dataclass(slots=True)
class _Run:
    """Answers of one graph or composite so far, by reference id."""

    answers: dict[str, Reply] = field(default_factory=dict)

    def filled(self, value: Any) -> Any:
        """Return `value` with every @{reference.path} replaced by the value in that answer."""
        if isinstance(value, dict):
            return {name: self.filled(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        return _REFERENCE.sub(self._look_up, value) if isinstance(value, str) and "@{" in value else value

    def _look_up(self, match: re.Match[str]) -> str:
        reference, path = match.groups()
        answer = self.answers.get(reference)
        found: Any = answer.body if answer is not None and answer.status < _BAD_REQUEST else None
        for name in re.findall(r"\w+", path):
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = None
        if found is None:
            message = f"Invalid reference specified. No value for {reference}.{path} found in {reference}"
            raise SalesforceRefusalError(_BAD_REQUEST, "PROCESSING_HALTED", message)
        return str(found)


class CompositeApi:
    """Runs subrequests against the same resources as single calls."""

    def __init__(self, org: Org, rest: RestApi) -> None:
        self._org = org
        self._rest = rest

    def graph(self, call: Call) -> Reply:
        """Answer composite/graph: HTTP 200 whether or not the graphs succeed. Raises for a request that cannot be read."""
        if float(call.version[1:]) < _GRAPH_VERSION_MIN:
            raise SalesforceRefusalError(404, "NOT_FOUND", "The requested resource does not exist")
        graphs = _list(call.body, "graphs")
        nodes = [_list(graph, "compositeRequest") for graph in graphs]
        _check_graphs(nodes)
        answers: list[dict[str, object]] = []
        applied = False
        failures = 0
        for graph, requests in zip(graphs, nodes, strict=True):
            if failures > GRAPH_FAILURES_MAX:
                results, succeeded = [Reply(_HALTED.status, _HALTED.body())] * len(requests), False
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

    def composite(self, call: Call) -> Reply:
        """Answer composite; with allOrNone one failure undoes everything, without it the others stay."""
        requests = _list(call.body, "compositeRequest")
        if len(requests) > COMPOSITE_MAX:
            message = f"The maximum number of subrequests in a composite request is {COMPOSITE_MAX}"
            raise SalesforceRefusalError(_BAD_REQUEST, "LIMIT_EXCEEDED", message)
        queries = sum(
            re.search(r"/(query|queryAll|composite/sobjects)\b", str(request.get("url"))) is not None for request in requests
        )
        if queries > COMPOSITE_QUERIES_MAX:
            message = f"The maximum number of queries and collections in a composite request is {COMPOSITE_QUERIES_MAX}"
            raise SalesforceRefusalError(_BAD_REQUEST, "LIMIT_EXCEEDED", message)
        if isinstance(call.body, dict) and call.body.get("allOrNone") is True:
            results, _ = self._all_or_nothing(requests)
        else:
            results = self._one_by_one(requests)
        return Reply(200, {"compositeResponse": _described(requests, results)}, applied=any(result.applied for result in results))

    def _all_or_nothing(self, requests: list[dict[str, Any]]) -> tuple[list[Reply], bool]:
        run = _Run()
        results: list[Reply] = []
        try:
            with self._org.transaction():
                for request in requests:
                    results.append(self._one(request, run))  # noqa: PERF401 -- its length locates the failed request
        except SalesforceRefusalError as refusal:
            halted = Reply(_HALTED.status, _HALTED.body())
            culprit = len(results)
            results = [halted] * len(requests)
            results[culprit] = Reply(refusal.status, refusal.body())
            return results, False
        return results, True

    def _one_by_one(self, requests: list[dict[str, Any]]) -> list[Reply]:
        run = _Run()
        results: list[Reply] = []
        for request in requests:
            try:
                results.append(self._one(request, run))
            except SalesforceRefusalError as refusal:
                results.append(Reply(refusal.status, refusal.body()))
        return results

    def _one(self, request: Mapping[str, Any], run: _Run) -> Reply:
        method, url, reference = request.get("method"), request.get("url"), request.get("referenceId")
        if not isinstance(method, str) or not isinstance(url, str) or not isinstance(reference, str):
            message = "Each subrequest needs a method, a url and a referenceId"
            raise SalesforceRefusalError(_BAD_REQUEST, "JSON_PARSER_ERROR", message)
        if reference in run.answers:
            message = f"Duplicate referenceId specified: {reference}"
            raise SalesforceRefusalError(_BAD_REQUEST, "INVALID_REFERENCE_ID", message)
        reply = self._rest.serve(Call.parse(method.upper(), run.filled(url), run.filled(request.get("body"))))
        run.answers[reference] = reply
        return reply


def _check_graphs(nodes: list[list[dict[str, Any]]]) -> None:
    """Refuse more than the documented numbers of graphs, nodes, kinds of nodes, and levels of dependent nodes."""
    kinds = {tuple(str(node.get("url")).lower().split("/")[3:6:2]) for requests in nodes for node in requests}
    depth = max(map(_depth, nodes), default=0)
    for what, number, limit in (
        ("graphs", len(nodes), GRAPHS_MAX),
        ("nodes", sum(map(len, nodes)), GRAPH_NODES_MAX),
        ("different nodes", len(kinds), NODE_KINDS_MAX),
        ("levels of nodes", depth, GRAPH_DEPTH_MAX),
    ):
        if number > limit:
            message = f"The maximum number of {what} in a composite graph request is {limit}"
            raise SalesforceRefusalError(_BAD_REQUEST, "LIMIT_EXCEEDED", message)


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
    raise SalesforceRefusalError(_BAD_REQUEST, "JSON_PARSER_ERROR", f"The request body needs a list of objects named {name}")


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
