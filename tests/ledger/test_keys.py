"""Tests of keys: every byte that is hashed. The vectors were made with sha256sum from the RFC 8785 text beside them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from ledger import keys

if TYPE_CHECKING:
    from ledger.keys import Json

PAYLOAD_TEXT = '{"account":"Acme","lines":[{"months":12,"sku":"CORE"}],"schema":1}'
PAYLOAD_HASH = "8ef659af3c4a7820fe0a792f3638aa5901bf766d890db48b551abe714b23675d"
CREATE_KEY = "c3c3ad7d3965dd9acc9bbbb25223623dc16664d073e6f8e83aa797057fabe900"
SUBMIT_KEY = "ba8a4773acf0d9e2cb3f51a6be5470838ba4c03d1742bc4d74e8960e5aa1b917"
POST_KEY = "d6da7543742fca724fb84106d0e8426401e48da3e90a685bf262af837b56fd23"
CARD_KEY = "39d625d248507f495a1487862e2fb8a8350502a3bc6f137f8619bfb83fb4883a"
ESCAPES_HASH = "bc8be3fc27cfb46de98bb53c47f093ef32fa838514421a733dd80f67689ceb34"

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
NAMES = (
    st.text(max_size=6)
    | st.text('abz\u007f\x00\n"\\/', max_size=4)
    | st.sampled_from(["\u20ac", "\ufb33", "\U0001f600", "\r", "1", "\u0080"])
)
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)
PARTS = st.tuples(
    st.text(max_size=6),
    st.text(max_size=6),
    st.text(max_size=6),
    st.text(max_size=6),
    st.none() | st.integers(0, 99),
    st.text(max_size=6),
)


def test_a_payload_hash_is_the_sha256_of_its_rfc_8785_text() -> None:
    payload: Json = {"schema": 1, "lines": [{"sku": "CORE", "months": 12}], "account": "Acme"}
    assert keys.canonical_json(payload).decode() == PAYLOAD_TEXT
    assert keys.digest(payload) == PAYLOAD_HASH


def test_control_characters_are_escaped_and_all_others_are_utf_8() -> None:
    value: Json = {"€": "20", "z": "é", "a": "\x0b"}
    assert keys.canonical_json(value).decode() == '{"a":"\\u000b","z":"é","€":"20"}'
    assert keys.digest(value) == ESCAPES_HASH


def test_the_operation_key_of_a_creation_never_changes() -> None:
    text = f'["quotebot/op/1","slack_slash","T01:1337.42","quote.create","new",0,"{PAYLOAD_HASH}"]'
    assert hashlib.sha256(text.encode()).hexdigest() == CREATE_KEY
    assert (
        keys.operation_key(
            source="slack_slash",
            source_request_id="T01:1337.42",
            action_kind="quote.create",
            aggregate_id="new",
            aggregate_version=0,
            payload_hash=PAYLOAD_HASH,
        )
        == CREATE_KEY
    )


def test_the_operation_key_of_a_command_without_a_version_holds_null() -> None:
    assert (
        keys.operation_key(
            source="cli",
            source_request_id="ops:7f3a",
            action_kind="quote.submit",
            aggregate_id="Q-2026-0001",
            aggregate_version=None,
            payload_hash=PAYLOAD_HASH,
        )
        == SUBMIT_KEY
    )


def test_effect_keys_grow_from_the_operation_and_from_the_parent_effect() -> None:
    assert keys.effect_key(CREATE_KEY, "slack.post", 0) == POST_KEY
    assert keys.effect_key(POST_KEY, "slack.card", 1) == CARD_KEY


def test_people_see_the_first_eight_digits() -> None:
    assert keys.correlation_id(CREATE_KEY) == "c-c3c3ad7d"


@pytest.mark.parametrize("value", [1.0, [0.5], {"price": 9.99}, {"lines": [{"months": (1, 2.5)}]}, float("nan")])
def test_a_float_is_refused_wherever_it_hides(value: Any) -> None:
    with pytest.raises(TypeError, match="use a decimal string"):
        keys.digest(value)


@pytest.mark.parametrize("value", [2**53, {"n": -(2**53)}, {1: "one"}, {"at": object()}, {"raw": b"bytes"}])
def test_what_json_cannot_carry_exactly_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        keys.digest(value)


@given(JSON_VALUES, st.randoms(use_true_random=False))
def test_the_order_and_the_spacing_of_a_payload_never_change_its_hash(value: Any, chance: Any) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            names = list(item)
            chance.shuffle(names)
            return {name: shuffled(item[name]) for name in names}
        return [shuffled(inner) for inner in item] if isinstance(item, list) else item

    spaced = json.loads(json.dumps(shuffled(value), indent=chance.choice([None, 1, 4]), ensure_ascii=chance.choice([True, False])))
    assert keys.digest(spaced) == keys.digest(value)


@given(ANY_JSON)
def test_whatever_is_accepted_has_exactly_the_bytes_of_rfc_8785(value: Any) -> None:
    assert keys.canonical_json(value) == rfc8785.dumps(value)


@given(ANY_JSON, st.floats(), st.lists(st.sampled_from(["list", "tuple", "name", "näme", "\U0001f600", "after"]), max_size=5))
def test_a_float_is_refused_however_deep_and_beside_whatever_name(beside: Any, number: float, path: list[str]) -> None:
    value: Any = number
    for step in path:
        containers = {"list": [beside, value], "tuple": (value, beside), "after": {"é": 1, "z": value}}
        value = containers.get(step, {step: value, "zz": beside})
    with pytest.raises(TypeError, match="use a decimal string"):
        keys.canonical_json(value)


@given(st.integers())
def test_a_number_is_exact_or_refused(number: int) -> None:
    if abs(number) < 2**53:
        assert keys.canonical_json([number]) == f"[{number}]".encode()
        return
    with pytest.raises((TypeError, ValueError)):
        keys.canonical_json([number])


@given(PARTS, PARTS)
def test_two_commands_share_a_key_only_when_every_dimension_is_equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    def key(parts: tuple[Any, ...]) -> str:
        names = ("source", "source_request_id", "action_kind", "aggregate_id", "aggregate_version", "payload_hash")
        return keys.operation_key(**dict(zip(names, parts, strict=True)))

    assert (key(one) == key(other)) == (one == other)


@pytest.mark.parametrize("joint", ["|", ",", '","', '"', "\\", "\x00"])
def test_no_character_moves_the_border_between_two_dimensions(joint: str) -> None:
    def key(source_request_id: str, action_kind: str) -> str:
        return keys.operation_key(
            source="cli",
            source_request_id=source_request_id,
            action_kind=action_kind,
            aggregate_id="new",
            aggregate_version=0,
            payload_hash=PAYLOAD_HASH,
        )

    assert len({key(f"a{joint}b", "c"), key("a", f"b{joint}c"), key(f"a{joint}b{joint}c", ""), key("", f"a{joint}b{joint}c")}) == 4


def test_the_tag_keeps_operations_and_effects_apart() -> None:
    assert keys.digest([keys.EFFECT_TAG, "k", "c", 0]) == keys.effect_key("k", "c", 0)
    assert keys.digest([keys.OPERATION_TAG, "k", "c", 0]) != keys.effect_key("k", "c", 0)
