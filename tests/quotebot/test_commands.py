"""What a command's payload looks like in the ledger, version by version. The vectors were hashed from the text beside them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger import keys
from ledger.records import Sighting
from quotebot.commands import (
    REGISTRY,
    UPCASTERS,
    CreateAnother,
    CreateQuote,
    DecideApproval,
    DelegateApprovals,
    EscalateApproval,
    ExpireApproval,
    NeedsNewerBuild,
    Payload,
    RemindApprover,
    SubmitQuote,
    parse_stored,
)
from quotebot.domain.pricing import LineRequest, PriceRequest
from tests.quotebot.parts import create_command, request_for

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

LINES = '[{"quantity":150,"sku":"pro"},{"quantity":150,"sku":"sso"},{"quantity":1,"sku":"support"}]'
CREATE_1 = f'{{"account":"Acme","channel":"C0SALES","discount_percent":"15","lines":{LINES},"term_months":12,"v":1}}'
CREATE_2 = f'{{"account":"Acme","channel":"C0SALES","lines":{LINES},"requested_discount_percent":"15","term_months":12,"v":2}}'
TOKEN = "ab" * 32

# (kind, schema) -> canonical text, SHA-256 of it, operation key of request T0HOME:1
VECTORS: dict[tuple[str, int], tuple[str, str, str]] = {
    ("quote.create", 1): (
        CREATE_1,
        "67fed88b25dcdd4b473891623c9a4eb87d7e083ca53a14824d50afd2419a30f2",
        "9fae699d802322a5ae0864db5e8e83c63678bfd6412df5c6766e954391873e76",
    ),
    ("quote.create", 2): (
        CREATE_2,
        "87f904a751fcacfffff32fb4227c27669850ff55a1da02c9ef6e4ce2d3f9e29f",
        "d745e82eb0b4920afabf25a32b0cfd13bf9aed88640e4a3ac28335db588ff3f4",
    ),
    ("quote.create_another", 1): (
        f'{{"token":"{TOKEN}","v":1}}',
        "66c62645e8c12d3d8b9a51f5d2dc791893b82e64a93d8691fb640fa106cd217a",
        "7276b702bd200475d63267b26e61133d705548da56a82d0d38f2acf0aa892920",
    ),
    ("quote.submit", 1): (
        '{"v":1}',
        "afbf9d0f3560b0fd7795e81c42a0a79ee6b6fc67e064f77826aee642cad28d91",
        "b817424acc7f6a0446e32768836c7043dfef8f5f346ba00433d5707dde03a745",
    ),
    ("approval.delegate", 1): (
        '{"from":"U0VP","to":"U0CFO","until":1795257060000,"v":1}',
        "4867cc842d730abd0cf4b5864046be80f37b4023671dc70444313208e0aaa160",
        "cb16bf52fb94c5aa5c45f976f97c0264257d5e467ddc6cebb234cee921511bb5",
    ),
    ("approval.remind", 1): (
        '{"approval_id":"A-2026-0042-v1-1","slot":1,"v":1}',
        "c33f4cc751b5a0c3f63d017902dade9ddceb05497b2918781b4a0087b0e06235",
        "3d456d3519ea64237efa20a3f3bed7d87544b948b73d20e8959188972582aceb",
    ),
    ("approval.escalate", 1): (
        '{"approval_id":"A-2026-0042-v1-1","slot":1,"v":1}',
        "c33f4cc751b5a0c3f63d017902dade9ddceb05497b2918781b4a0087b0e06235",
        "0e82891adc449d5a9680723248a08c7a6daec9227f33e96bb07a1a1b16f93b7c",
    ),
    ("approval.expire", 1): (
        '{"approval_id":"A-2026-0042-v1-1","slot":1,"v":1}',
        "c33f4cc751b5a0c3f63d017902dade9ddceb05497b2918781b4a0087b0e06235",
        "9f549f411f8dd499171628239061cc00b4ebf7a01a1b8cd6f0bb58845c9dc9b3",
    ),
    ("approval.decide", 2): (
        '{"approval_id":"A-2026-0042-v1-1","decision":"approve","reason":null,"v":2}',
        "f0efe427361b4cfccf2d5a0a7d569d4050953419d48720847a2aa06a2b04c675",
        "5914121279dae23f85279690fda5c972ec9978d263ddc79ff1950ea736232a99",
    ),
    ("approval.decide", 1): (
        '{"approval_id":"A-2026-0042-v1-1","decision":"approve","reason":null,"v":1}',
        "9fdb2611ff025998e4feeddda00047553f767cbd8a97a71c5bc694c9c5818269",
        "6a89073bdd99d921152e7c722683b04fb5375d810f29cc40d97afacc765fd140",
    ),
}
CURRENT: dict[str, Payload] = {
    "quote.create": create_command(),
    "quote.create_another": CreateAnother(TOKEN),
    "quote.submit": SubmitQuote(),
    "approval.decide": DecideApproval("A-2026-0042-v1-1", "approve"),
    "approval.delegate": DelegateApprovals("U0VP", "U0CFO", 1_795_257_060_000),
    "approval.remind": RemindApprover("A-2026-0042-v1-1", 1),
    "approval.escalate": EscalateApproval("A-2026-0042-v1-1", 1),
    "approval.expire": ExpireApproval("A-2026-0042-v1-1", 1),
}


def stored(kind: str, schema: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VECTORS[(kind, schema)][0])
    return found


@pytest.mark.parametrize(("kind", "schema"), VECTORS)
def test_the_bytes_the_hash_and_the_key_of_every_schema_are_pinned(kind: str, schema: int) -> None:
    text, payload_hash, key = VECTORS[(kind, schema)]
    creates = kind.startswith("quote.create")
    assert keys.canonical_json(stored(kind, schema)).decode() == text
    assert hashlib.sha256(text.encode()).hexdigest() == keys.digest(stored(kind, schema)) == payload_hash
    assert key == keys.operation_key(
        source="slack_slash" if kind == "quote.create" else "slack_interactive",
        source_request_id="T0HOME:1",
        action_kind=kind,
        aggregate_id="new" if creates else "Q-2026-0042",
        aggregate_version=0 if creates else 1,
        payload_hash=payload_hash,
    )


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_this_build_writes_the_newest_pinned_schema(kind: str) -> None:
    newest = max(schema for known, schema in VECTORS if known == kind)
    assert REGISTRY[kind].schema == newest
    assert CURRENT[kind].canonical() == stored(kind, newest)


@pytest.mark.parametrize(("kind", "schema"), VECTORS)
def test_every_pinned_schema_is_read_as_the_same_command(kind: str, schema: int) -> None:
    assert parse_stored(kind, stored(kind, schema)) == CURRENT[kind]


def test_every_schema_below_the_current_one_has_an_upcaster_to_the_next() -> None:
    steps = {(kind, version) for kind, payload in REGISTRY.items() for version in range(1, payload.schema)}
    assert set(UPCASTERS) == steps
    for kind, version in steps:
        assert UPCASTERS[(kind, version)](stored(kind, version)) == stored(kind, version + 1)


def test_an_upcast_leaves_what_was_stored_as_it_is() -> None:
    old = stored("quote.create", 1)
    parse_stored("quote.create", old)
    assert old == stored("quote.create", 1)


@pytest.mark.parametrize(
    ("kind", "payload", "version"),
    [
        ("quote.create", {**json.loads(CREATE_2), "v": 3}, 3),
        ("quote.submit", {"v": 2}, 2),
        ("quote.submit", {}, None),
        ("quote.submit", {"v": "1"}, "1"),
        ("quote.unheard_of", {"v": 1}, 1),
    ],
)
def test_what_a_newer_build_wrote_needs_that_build(kind: str, payload: dict[str, Any], version: object) -> None:
    with pytest.raises(NeedsNewerBuild, match=f"{kind} with payload schema {version} was recorded by a newer build") as needed:
        parse_stored(kind, payload)
    assert (needed.value.kind, needed.value.version) == (kind, version)


def test_a_schema_that_no_upcaster_starts_from_is_refused() -> None:
    with pytest.raises(ValueError, match="payload schema 0 is too old"):
        parse_stored("quote.create", {"v": 0})


@pytest.mark.parametrize("discount", ["0", "12.5", "100", "1E+1"])
def test_a_creation_comes_back_as_it_was_asked(discount: str) -> None:
    command = CreateQuote("Ünï & Co", PriceRequest((LineRequest("pro", 1),), 36, Decimal(discount)), "C0SALES")
    assert parse_stored("quote.create", json.loads(json.dumps(command.canonical()))) == command


async def test_a_redelivery_after_a_deploy_that_changed_the_schema_is_the_first_operation(bench: Bench) -> None:
    """The payload and its hash differ, the raw input does not: the delivery stays bound to what was decided at first sight."""
    now = request_for(create_command(), "1")
    first = await bench.ledger.reserve(replace(now, payload=stored("quote.create", 1)))
    again = await bench.ledger.reserve(now)
    assert (first.sighting, again.sighting) == (Sighting.NEW, Sighting.DUPLICATE)
    assert again.operation.id == first.operation.id
    assert again.operation.operation_key == VECTORS[("quote.create", 1)][2]
    assert len(bench.rows("SELECT 1 FROM operations")) == 1
    assert bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'delivery.conflict'") == []
