"""Tests that dead letters are found by every filter, quickly even if there are many."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from ledger.operator.dead_letters import DeadLetter, Filters, parse_reference
from ledger.records import Delivered, Uncertain
from tests.ledger.dead_parts import INTERNAL, MAPPING, SENT, bury, replay
from tests.ledger.parts import QUOTE, START_MS, TROUBLE, intent, sure

if TYPE_CHECKING:
    from ledger.operator.dead_letters import DeadLetters
    from tests.ledger.parts import Desk


@pytest.mark.parametrize(("text", "reference"), [("118", ("effect", 118)), ("op12", ("operation", 12))])
def test_a_reference_is_a_number_or_op_and_a_number(text: str, reference: tuple[str, int]) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("text", ["", "op", "x1", "-1", "1.0", "opop1", "١", "1 "])  # noqa: RUF001 -- an Arabic digit on purpose
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 118 or op12"):
        parse_reference(text)


async def test_a_dead_letter_shows_what_failed_where_it_came_from_and_why(desk: Desk, letters: DeadLetters) -> None:
    desk.clock.advance(7)
    buried = await bury(desk)
    (letter,) = await letters.list()
    operation = desk.operation()
    assert letter == await letters.show(f"{buried.id}")
    assert (letter.kind, letter.reference, letter.effect_class, letter.aggregate_id) == ("effect", "1", "crm.create", QUOTE)
    assert (letter.operation_key, letter.source, letter.source_request_id) == (operation.operation_key, "slack_slash", "T01:r1")
    assert (letter.category, letter.last_error, letter.attempts) == ("mapping", MAPPING.error, 1)
    assert letter.first_failed_at == letter.last_attempt_at == letter.created_at == START_MS + 7
    assert (letter.state, letter.status, letter.prior_replay_count, letter.failure_history) == ("failed", "pending", 0, [])
    assert letter.payload == {"text": "hello"}


async def test_the_list_is_oldest_first_and_every_filter_narrows_it(desk: Desk, letters: DeadLetters) -> None:
    crm = await bury(desk, request_id="r1")
    desk.clock.advance(1_000)
    post = await bury(desk, intent(aggregate_id="Q-2026-0002"), TROUBLE, request_id="r2")
    desk.clock.advance(1_000)
    operation = await desk.claim_operation("r3")
    await desk.ledger.fail_operation(operation, INTERNAL, {"code": "failed"}, ())

    async def listed(limit: int | None = 100, *, newest: bool = False, **filters: object) -> list[str]:
        found = await letters.list(Filters(**filters), limit=limit, newest=newest)  # type: ignore[arg-type] # names of the filters
        return [letter.reference for letter in found]

    assert await listed() == ["1", "2", "op3"]
    assert await listed(effect_class="crm.create") == ["1"]
    assert await listed(effect_class="quote.submit") == ["op3"]
    assert await listed(effect_class="crm") == ["1"], "a family of classes"
    assert await listed(effect_class="cr") == []
    assert await listed(category="transient") == ["2"]
    assert await listed(cause="slack.post/transient/unknown") == ["2"], "a row without a code"
    assert await listed(cause="slack.post/transient") == []
    assert await listed(aggregate_id=QUOTE) == ["1", "op3"]
    assert await listed(since=START_MS + 1_000) == ["2", "op3"]
    assert await listed(2) == ["1", "2"]
    assert await listed(newest=True) == ["op3", "2", "1"]
    assert await listed(2, newest=True) == ["op3", "2"]
    assert await listed(None) == ["1", "2", "op3"]
    assert await listed(classes=("crm.create", "quote.submit")) == ["1", "op3"]
    assert await listed(classes=("crm",)) == []
    assert await listed(operation_key=operation.operation_key) == ["op3"]
    assert await listed(operation_key=post.correlation_id) == ["2"], "the short ref that people were told"
    assert await listed(request_id="T01:r2") == ["2"]
    assert await listed(request_id="r2") == ["2"], "a source's own id stands after the colon"
    assert await listed(request_id="2") == []
    await replay(letters, f"{crm.id}")
    assert await listed() == ["2", "op3"]
    assert await listed(status="replaying") == ["1"]
    assert sorted(await listed(status=None)) == ["1", "2", "op3"]
    await desk.ledger.settle(await desk.claim(), Delivered("a01", {}))
    assert await listed(status="replayed") == ["1"]
    assert await letters.show("9") is None
    assert sure(await letters.show(f"op{operation.id}")).category == "internal"
    assert post.state == "failed"


async def test_a_payload_shown_to_a_person_is_audited(desk: Desk, letters: DeadLetters) -> None:
    await bury(desk)
    await letters.record_payload_shown(sure(await letters.show("1")), "ops")
    event = desk.last_event("dead_letter.payload_shown")
    assert (event["actor"], event["aggregate_id"], event["after"]) == ("ops", QUOTE, {"id": "1"})


async def test_uncertain_effect_is_listed_even_if_it_never_failed(desk: Desk, letters: DeadLetters) -> None:
    await desk.owe(intent(), intent(target="another thread"))
    first, second = await desk.claim_each()
    await desk.ledger.settle(first, Uncertain(SENT, 60_000))
    assert await letters.list(Filters(status="pending")) == []
    (letter,) = await letters.list(Filters(status="uncertain"))
    assert (letter.reference, letter.status, letter.state, letter.maybe_sent) == (f"{first.id}", "uncertain", "uncertain", True)
    assert await letters.list(Filters(status="uncertain", aggregate_id="Q-2026-0009")) == []
    assert second.id != first.id


async def test_dead_letter_record_has_every_column_of_the_view(desk: Desk) -> None:
    await bury(desk)
    (row,) = desk.rows("SELECT * FROM dead_letters")
    columns = set(row.keys())
    assert {field.name for field in fields(DeadLetter)} - {"effect_class", "label"} | {"class"} == columns
