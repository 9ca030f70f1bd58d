"""Tests of single checks, on evidence made by hand: the amount of a chosen opportunity, and messages meant for a model."""

from __future__ import annotations

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faults.checks import claims, effects, quiescence
from faults.checks.business import _opportunities

QUOTE, DEAL, RECORD = "Q-2027-0001", "006A", "0Q0A"


def facts(**changes: Any) -> Any:
    """Return a quote whose second version costs 80, recorded under its opportunity; `changes` damage that evidence."""
    row = {"Id": DEAL, "Amount": Decimal(80), "IsClosed": False} | changes.get("opportunity", {})
    effects = [
        {
            "class": "crm.create",
            "aggregate_id": QUOTE,
            "state": "delivered",
            "external_ref": f"{RECORD}{version}",
            "payload": json.dumps({"version": version}),
            "result": json.dumps({"opportunity": "chosen"}),
        }
        for version in (1, 2)
    ]
    owed = {"class": "crm.update", "aggregate_id": QUOTE, "state": changes.get("owed", "delivered")}
    records = [{"Id": f"{RECORD}{version}", "OpportunityId": changes.get("hangs_on", DEAL)} for version in (1, 2)]
    created = {"aggregate_id": QUOTE, "event_type": "quote.created", "after": json.dumps({"opportunity": DEAL})}
    return SimpleNamespace(
        outside=SimpleNamespace(crm={"Opportunity": [row], "Quote": records}),
        events=[created],
        crm_effects={effect["external_ref"]: effect for effect in effects},
        effects=[*effects, owed],
        at_rest=changes.get("at_rest", True),
    )


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, []),
        ({"opportunity": {"Amount": Decimal(100)}}, ["the opportunity 006A has the amount 100; Q-2027-0001 v2 costs 80"]),
        ({"opportunity": {"Amount": None}}, ["the opportunity 006A has the amount None; Q-2027-0001 v2 costs 80"]),
        ({"opportunity": {"Amount": None}, "at_rest": False}, []),
        ({"opportunity": {"Amount": None}, "owed": "failed"}, []),
        ({"opportunity": {"Amount": None, "IsClosed": True}}, []),
        (
            {"hangs_on": None},
            [f"the record 0Q0A{version} of Q-2027-0001 does not hang on the opportunity 006A" for version in (1, 2)],
        ),
    ],
)
def test_an_amount_that_is_not_the_newest_records_is_seen(changes: dict[str, Any], verdict: list[str]) -> None:
    totals = {(QUOTE, 1): Decimal(100), (QUOTE, 2): Decimal(80)}
    assert list(_opportunities(cast("Any", facts(**changes)), totals)) == verdict


KEY, EFFECT = "a" * 64, "e" * 64


def operation(row_id: int, kind: str, code: str, **payload: str) -> dict[str, Any]:
    key = KEY if kind == "message.read" else f"{row_id:064d}"
    response, stored = json.dumps({"code": code}), json.dumps(payload)
    return {"id": row_id, "operation_key": key, "action_kind": kind, "outcome": "applied", "response": response, "payload": stored}


READ = operation(1, "message.read", "model_asked")
ANSWER = operation(2, "message.answer", "proposed", reading=KEY)


def said(*operations: dict[str, Any]) -> tuple[list[str], list[str]]:
    facts: Any = SimpleNamespace(operations=operations)
    return list(effects.messages_answered_once(facts)), list(quiescence.messages_answered(facts))


def test_a_message_is_answered_and_once() -> None:
    assert said(READ, ANSWER) == ([], [])
    assert said(operation(1, "message.read", "asked_back")) == ([], [])  # answered at once, by itself
    assert said(READ) == ([], ["operation 1: its message was never answered"])
    assert said(READ, ANSWER, {**ANSWER, "id": 3}) == ([f"the message {KEY[:8]} was answered 2 times"], [])
    late = {**ANSWER, "id": 3, "outcome": "refused"}
    assert said(READ, ANSWER, late) == ([], [])


def test_the_model_is_asked_under_a_claim_each_time() -> None:
    effect = {"id": 7, "effect_key": EFFECT}
    facts: Any = SimpleNamespace(
        sightings={"chat.completions": [{"key": EFFECT, "at": 10.0}]},
        effect_by_key={EFFECT: effect},
        claims_of={7: [{"started_at": 9_000}]},
        forgets=False,
        lost=lambda _: False,
        slack_ms=1,
    )
    assert list(claims.model_asked(facts)) == []
    facts.sightings["chat.completions"] *= 2
    assert list(claims.model_asked(facts)) == ["the question of effect 7: 2 requests were seen, of 1 claims"]
    facts.effect_by_key = {}
    assert list(claims.model_asked(facts)) == ["the model was asked under the key eeeeeeee, which no effect has"]
