"""Tests that a graph is written atomically, whatever is in it, as is a collection with allOrNone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.sandbox.salesforce.composite import CompositeApi
from quotebot.sandbox.salesforce.org import Org
from quotebot.sandbox.salesforce.refusals import SalesforceRefusalError
from quotebot.sandbox.salesforce.rest import Call, RestApi
from quotebot.sandbox.salesforce.schema import SCHEMA

PLACE = "/services/data/v65.0"
REFERENCES = st.sampled_from(["n0", "n1", "n2", "nobody"])
KEYS = st.sampled_from(["k1", "k2", "K1"])


class Api:
    def __init__(self) -> None:
        self.org = Org(lambda: 0.0)
        self.composite = CompositeApi(self.org, RestApi(self.org))

    def graphs(self, *graphs: list[dict[str, Any]]) -> list[Any]:
        body = {"graphs": [{"graphId": str(number), "compositeRequest": nodes} for number, nodes in enumerate(graphs)]}
        answer = self.composite.serve(Call.parse("POST", f"{PLACE}/composite/graph", body)).body
        assert isinstance(answer, dict)
        found: list[Any] = answer["graphs"]
        return found

    def collection(self, verb: str, place: str, body: object = None) -> Any:
        return self.composite.serve(Call.parse(verb, f"{PLACE}/composite/{place}", body)).body

    def everything(self) -> dict[str, list[dict[str, object]]]:
        return {name: list(self.org.all(sobject)) for name, sobject in SCHEMA.items()}


def post(sobject: str, **body: Any) -> dict[str, Any]:
    return {"method": "POST", "url": f"{PLACE}/sobjects/{sobject}", "body": body}


def numbered(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**node, "referenceId": f"n{number}"} for number, node in enumerate(nodes)]


NODES = st.one_of(
    st.just(post("Account", Name="Acme")),
    st.just(post("Account")),  # its name is missing
    KEYS.map(lambda key: post("Quote", Name="Q", Quotebot_Key__c=key)),
    REFERENCES.map(lambda name: post("QuoteLineItem", QuoteId=f"@{{{name}.id}}", Quantity=1, UnitPrice=2)),
    REFERENCES.map(lambda name: {"method": "PATCH", "url": f"{PLACE}/sobjects/Quote/@{{{name}.id}}", "body": {"Name": "new"}}),
    REFERENCES.map(lambda name: {"method": "DELETE", "url": f"{PLACE}/sobjects/Quote/@{{{name}.id}}", "body": None}),
    KEYS.map(lambda key: {"method": "PATCH", "url": f"{PLACE}/sobjects/Quote/Quotebot_Key__c/{key}", "body": {"Name": "up"}}),
)
GRAPHS = st.lists(st.lists(NODES, min_size=1, max_size=5).map(numbered), min_size=1, max_size=3)


@given(GRAPHS)
def test_a_graph_is_written_whole_or_not_at_all(graphs: list[list[dict[str, Any]]]) -> None:
    api = Api()
    for nodes in graphs:
        before = api.everything()
        (answer,) = api.graphs(nodes)
        statuses = [result["httpStatusCode"] for result in answer["graphResponse"]["compositeResponse"]]
        assert answer["isSuccessful"] == all(status < 400 for status in statuses)
        if not answer["isSuccessful"]:
            assert api.everything() == before
            codes = [result["body"][0]["errorCode"] for result in answer["graphResponse"]["compositeResponse"]]
            assert len([code for code in codes if code != "PROCESSING_HALTED"]) <= 1


@given(GRAPHS)
def test_graphs_side_by_side_are_as_graphs_one_after_the_other(graphs: list[list[dict[str, Any]]]) -> None:
    together, alone = Api(), Api()
    answers = together.graphs(*graphs)
    assert [answer["isSuccessful"] for answer in answers] == [alone.graphs(nodes)[0]["isSuccessful"] for nodes in graphs]
    assert together.everything() == alone.everything()


@given(st.lists(st.sampled_from([{"Name": "A"}, {}, {"Name": "B", "Quotebot_Key__c": "k"}]), min_size=1, max_size=4), st.booleans())
def test_a_collection_is_all_or_none_only_when_asked(records: list[dict[str, Any]], all_or_none: bool) -> None:  # noqa: FBT001 -- given
    api = Api()
    typed = [{"attributes": {"type": "Account"}, **record} for record in records]
    results = api.collection("POST", "sobjects", {"allOrNone": all_or_none, "records": typed})
    succeeded = [result["success"] for result in results]
    assert len(list(api.org.all(SCHEMA["account"]))) == sum(succeeded)
    assert not all_or_none or len(set(succeeded)) == 1


def accounts(count: int) -> list[dict[str, Any]]:
    return numbered([post("Account", Name="Acme")] * count)


def chain(length: int) -> list[dict[str, Any]]:
    return numbered([post("Account", Name=f"@{{n{number - 1}.id}}" if number else "first") for number in range(length)])


def kinds(count: int) -> list[dict[str, Any]]:
    versions = [f"/services/data/v{number}.0/sobjects/Account" for number in range(50, 50 + count)]
    return numbered([{"method": "POST", "url": url, "body": {"Name": "Acme"}} for url in versions])


@pytest.mark.parametrize(
    ("most", "too_many"),
    [
        ([accounts(1)] * 75, [accounts(1)] * 76),
        ([accounts(250)] * 2, [accounts(250), accounts(251)]),
        ([chain(15)], [chain(16)]),
        ([kinds(15)], [kinds(16)]),
    ],
    ids=["graphs", "nodes", "depth", "kinds"],
)
def test_a_request_has_its_documented_limits(most: list[list[dict[str, Any]]], too_many: list[list[dict[str, Any]]]) -> None:
    api = Api()
    assert all(answer["isSuccessful"] for answer in api.graphs(*most))
    before = api.everything()
    with pytest.raises(SalesforceRefusalError, match="maximum number"):
        api.graphs(*too_many)
    assert api.everything() == before


def test_after_fifteen_failed_graphs_the_rest_is_not_tried() -> None:
    api = Api()
    answers = api.graphs(*[numbered([post("Account")])] * 15, accounts(1))
    assert not answers[-1]["isSuccessful"]
    assert list(api.org.all(SCHEMA["account"])) == []
    assert api.graphs(*[numbered([post("Account")])] * 14, accounts(1))[-1]["isSuccessful"]


def test_records_are_read_changed_upserted_and_deleted_two_hundred_at_a_time() -> None:
    api = Api()
    typed = {"attributes": {"type": "Account"}}
    made = [result["id"] for result in api.collection("POST", "sobjects", {"records": [{**typed, "Name": name} for name in "ab"]})]
    changed = [{**typed, "id": made[0], "Name": "A"}, {**typed, "Name": "no id"}]
    assert [result["success"] for result in api.collection("PATCH", "sobjects", {"records": changed})] == [True, False]
    read = api.collection("GET", f"sobjects/Account?ids={made[0]},001000000000000AAA&fields=Name")
    assert [record and record["Name"] for record in read] == ["A", None]
    keyed = [{**typed, "Quotebot_Key__c": key, "Name": key} for key in ("k1", "k1")]
    results = api.collection("PATCH", "sobjects/Account/Quotebot_Key__c", {"records": keyed})
    assert [result["created"] for result in results] == [True, False]
    assert [result["success"] for result in api.collection("DELETE", f"sobjects?ids={','.join(made)}")] == [True, True]
    assert [record["Name"] for record in api.org.all(SCHEMA["account"])] == ["k1"]
    with pytest.raises(SalesforceRefusalError, match="more than 200 records"):
        api.collection("POST", "sobjects", {"records": [typed] * 201})


def test_a_tree_is_created_with_its_children_or_not_at_all() -> None:
    api = Api()
    line = {"attributes": {"type": "QuoteLineItem", "referenceId": "l1"}, "Quantity": 1, "UnitPrice": 2}
    lines = {"records": [line]}
    quote = {"attributes": {"type": "Quote", "referenceId": "q1"}, "Name": "Q", "QuoteLineItems": lines}
    answer = api.collection("POST", "tree/Quote", {"records": [quote]})
    assert [result["referenceId"] for result in answer["results"]] == ["q1", "l1"]
    before = api.everything()
    del line["Quantity"]
    refused = api.collection("POST", "tree/Quote", {"records": [quote]})
    assert (refused["hasErrors"], [result["referenceId"] for result in refused["results"]]) == (True, ["l1"])
    assert api.everything() == before
