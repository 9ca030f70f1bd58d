"""Tests of the mapping check: missing, wrong or forbidden fields of the org are named before they cause a dead letter."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from adapters.salesforce.calls import ApiUsage, read_usage
from adapters.salesforce.describe import findings, objects_of, read_described
from adapters.salesforce.mapping import ChoiceMapping, MappingFileError, default_mapping, read_mapping
from faults.lab.setting import lab_mapping
from quotebot.sandbox.salesforce.schema import SCHEMA
from tests.adapters.test_salesforce_opportunity import MAPPING as WITH_OWN

TEXT = files("adapters.salesforce").joinpath("salesforce.toml").read_text("utf-8")


def org() -> dict[str, Any]:
    """Return the descriptions of the sandbox's org."""
    return {name: copy.deepcopy(SCHEMA[name.lower()].describe()) for name in objects_of(default_mapping())}


def field(described: dict[str, Any], place: str) -> dict[str, Any]:
    name, _, wanted = place.partition(".")
    found: dict[str, Any] = next(each for each in described[name]["fields"] if each["name"] == wanted)
    return found


def looked(described: dict[str, Any], text: str = TEXT) -> list[tuple[str, str]]:
    read = {name: None if answer is None else read_described(answer) for name, answer in described.items()}
    return [(each.place, each.what) for each in findings(read_mapping(text), read)]


def test_the_sandbox_s_org_agrees_with_the_mapping_that_comes_with_the_build() -> None:
    assert looked(org()) == []


@pytest.mark.parametrize(
    ("place", "changes", "words"),
    [
        ("Quote.Quotebot_Key__c", {"unique": False}, "it is not Unique"),
        ("Quote.Quotebot_Key__c", {"externalId": False, "unique": False}, "it is not External ID and Unique"),
        ("Quote.Quotebot_Key__c", {"length": 80}, "it takes 80 characters"),
        ("QuoteLineItem.Quotebot_Key__c", {"externalId": False}, "it is not External ID"),
        ("ContentVersion.Quotebot_Key__c", {"unique": False}, "it is not Unique"),
        ("Quote.Quotebot_Hash__c", {"createable": False}, "our login may not write it"),
        ("Quote.Quotebot_Hash__c", {"length": 32}, "it takes 32 characters"),
        ("Quote.Status", {"updateable": False}, "our login may not write it"),
        ("Quote.ExpirationDate", {"type": "string"}, "it is a string field"),
        ("Quote.Quotebot_Total__c", {"type": "int"}, "it is a int field"),
        ("QuoteLineItem.Quantity", {"name": "Amount"}, "there is no such field, or our login may not see it"),
        ("QuoteLineItem.QuoteId", {"createable": False}, "our login may not write it"),
        ("Account.Name", {"name": "Nom"}, "there is no such field, or our login may not see it"),
    ],
)
def test_what_a_field_cannot_do_is_named(place: str, changes: dict[str, Any], words: str) -> None:
    described = org()
    field(described, place).update(changes)
    assert (place, words) in looked(described)


def test_a_field_the_org_asks_for_and_nobody_gives_is_named() -> None:
    described = org()
    field(described, "Quote.OpportunityId")["nillable"] = False
    assert looked(described) == [("Quote.OpportunityId", "the org asks for it and the mapping does not give it")]


def test_a_value_of_the_segments_that_the_picklist_does_not_have_is_named() -> None:
    described, mapped = org(), TEXT.replace("# facts = { segment", "facts = { segment")
    mapped = mapped.replace("# [mirror.accounts.segments]", "[mirror.accounts.segments]").replace('# "Channel', '"Channel')
    assert looked(described, mapped) == []
    kinds = field(described, "Account.Type")
    kinds["picklistValues"] = [each for each in kinds["picklistValues"] if "Reseller" not in each["value"]]
    assert looked(described, mapped) == [("Account.Type", "it has no value 'Channel Partner / Reseller'")]


def test_a_status_that_the_picklist_does_not_have_is_named() -> None:
    described = org()
    status = field(described, "Quote.Status")
    status["picklistValues"] = [value for value in status["picklistValues"] if value["value"] not in ("Denied", "Presented")]
    assert looked(described) == [("Quote.Status", "it has no value 'Presented', 'Denied'")]
    bound = TEXT.replace('owner = "merge"', 'owner = "immutable_after_bind"')
    assert looked(described, bound) == []  # only the first value is ever written


def test_an_object_that_is_not_there_or_takes_no_records_is_named() -> None:
    described = org()
    described["Quote"] = None
    described["QuoteLineItem"]["createable"] = False
    assert looked(described) == [
        ("Quote", "there is no such object, or our login may not see it"),
        ("QuoteLineItem", "our login may not make records of it"),
    ]


@pytest.mark.parametrize("answer", [None, [], {}, {"fields": {}}])
def test_what_is_no_describe_answer_is_not_read_as_one(answer: object) -> None:
    with pytest.raises(ValueError, match="describe"):
        read_described(answer)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("schema = 1", "schema = 2", "schema must be 1"),
        ('object = "Quote"', 'object = "../Quote"', "quote.object must be an API name"),
        ('= "content_hash"', '= "cost_total"', "there is no 'cost_total'"),
        ('Quotebot_Version__c = "version"', "", "nothing holds version"),
        ('ExpirationDate = "expires_on"', 'Status = "expires_on"', "Status is written already"),
        ('owner = "merge"', 'owner = "ours"', "status.owner must be one of"),
        ('sent = "Presented"', 'sent = ""', "status.sent must be"),
        ("[lookup]", "[look_up]", "look_up: there is no such part"),
        ("schema = 1", "schema = ", "it is not TOML"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused_with_its_place(old: str, new: str, words: str) -> None:
    assert old in TEXT
    with pytest.raises(MappingFileError, match=words):
        read_mapping(TEXT.replace(old, new, 1))


def test_all_that_is_wrong_with_a_mapping_is_said_at_once() -> None:
    text = TEXT.replace('owner = "merge"', 'owner = "x"').replace('parent = "QuoteId"', 'parent = "a b"')
    with pytest.raises(MappingFileError) as error:
        read_mapping(text)
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("header", "usage"),
    [
        ("api-usage=25/100000", ApiUsage(25, 100_000)),
        ("api-usage=10018/10000", ApiUsage(10_018, 10_000)),
        ("per-app-api-usage=17/250(appName=x), api-usage=18/5000", ApiUsage(18, 5_000)),
        ("api-usage=1/0", None),
        ("api-usage=one/two", None),
        ("", None),
    ],
)
def test_the_allowance_is_read_from_its_header(header: str, usage: ApiUsage | None) -> None:
    assert read_usage({"Sforce-Limit-Info": header}) == usage


def test_api_usage_warns_from_80_percent_and_reserves_the_rest_from_90_percent() -> None:
    assert [(usage.warns, usage.reserved) for usage in (ApiUsage(79, 100), ApiUsage(80, 100), ApiUsage(90, 100))] == [
        (False, False),
        (True, False),
        (True, True),
    ]


@pytest.mark.parametrize("place", ["Contact.Email", "Opportunity.IsClosed", "PricebookEntry.UnitPrice", "Opportunity.Amount"])
def test_missing_field_of_a_query_or_choice_is_named_once(place: str) -> None:
    described = org()
    name, lacks = place.split(".")
    described[name]["fields"] = [each for each in described[name]["fields"] if each["name"] != lacks]
    assert looked(described) == [(place, "there is no such field, or our login may not see it")]


@pytest.mark.parametrize("choice", [None, default_mapping().choice])
def test_a_missing_field_that_says_our_own_opportunity_is_closed_is_named_once(choice: ChoiceMapping | None) -> None:
    described = org()
    described["Opportunity"]["fields"] = [each for each in described["Opportunity"]["fields"] if each["name"] != "IsClosed"]
    read = {name: read_described(answer) for name, answer in described.items()}
    found = findings(replace(WITH_OWN, choice=choice, mirrors={}), read)
    assert [each.place for each in found] == ["Opportunity.IsClosed"]


def test_an_amount_that_may_not_be_changed_is_named() -> None:
    described = org()
    field(described, "Opportunity.Amount")["updateable"] = False
    assert looked(described) == [("Opportunity.Amount", "our login may not write it")]


def test_objects_of_unused_features_are_not_checked() -> None:
    used = replace(default_mapping(), choice=None, mirrors={})
    assert objects_of(used) == ("Quote", "QuoteLineItem", "ContentVersion", "Account")


FOLLOWING = """
[opportunity_fields.stage]
field = "StageName"
owner = "merge"
accepted = "Closed Won"

[opportunity_fields.loss_reason]
field = "Description"
owner = "local_wins"
price = "Price"
"""


def test_fields_that_follow_a_quote_are_checked_for_their_values() -> None:
    described = org()
    assert looked(described, TEXT + FOLLOWING) == []
    field(described, "Opportunity.Description")["updateable"] = False
    stage = field(described, "Opportunity.StageName")
    stage["picklistValues"] = [value for value in stage["picklistValues"] if value["value"] != "Closed Won"]
    assert looked(described, TEXT + FOLLOWING) == [
        ("Opportunity.StageName", "it has no value 'Closed Won'"),
        ("Opportunity.Description", "our login may not write it"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('owner = "local_wins"', 'owner = "us"', "opportunity_fields.loss_reason.owner must be one of"),
        ('price = "Price"', 'cost = "Price"', "opportunity_fields.loss_reason: there is no 'cost'"),
        ('"StageName"', '"Stage Name"', "opportunity_fields.stage.field must be an API name"),
        ('accepted = "Closed Won"', 'replaces = "x"', "opportunity_fields.stage.replaces must be a list"),
        ("[opportunity_fields.stage]", "[opportunity_fields.amount]", "opportunity_fields.amount must hold owner"),
    ],
)
def test_a_wrong_field_that_is_to_follow_a_quote_is_named(old: str, new: str, said: str) -> None:
    with pytest.raises(MappingFileError, match=re.escape(said)):
        read_mapping(TEXT + FOLLOWING.replace(old, new))


def test_the_simulation_maps_like_the_build_but_for_the_fields_of_the_opportunity() -> None:
    simulated = lab_mapping()
    assert len(simulated.following) == 2
    assert replace(simulated, stage=None, loss_reason=None, amount_owner="local_wins") == default_mapping()
