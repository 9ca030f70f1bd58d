"""Tests that the checks of messages meant for a model can fail."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from faults.checks import claims, effects, quiescence

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
