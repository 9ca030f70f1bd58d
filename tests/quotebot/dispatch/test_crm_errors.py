"""Tests of the table of Salesforce's errors, row by row, from the bytes on a real socket to the texts that people see.

Each row goes through requests, simple-salesforce, the client, the dispatcher and the ledger. The checks are its class, the delay,
whether an attempt is used, the texts of card and thread, the audit, and whether it is a dead letter or a pause.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from adapters.failures import Failure
from adapters.salesforce.errors import BY_CODE, BY_STATUS
from ledger.records import Outcome
from quotebot import effects
from quotebot.commands.payloads import RefreshCard
from quotebot.dispatch.slack_card import QuoteCards
from tests.adapters.test_salesforce_errors import Scripted, graph, http, refusal, talking_to
from tests.quotebot.access_parts import viewer
from tests.quotebot.crm_parts import QUOTE, Crm
from tests.quotebot.parts import request_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.parts import Bench

LINES = 3  # of the golden quote
FIRST_WAIT_MS = 500
WRITING, SILENT = "Writing to Salesforce", "Salesforce isn't responding"  # on the card
PAUSED, MISSING = "Salesforce sync is paused", "Not in Salesforce yet"
End = Literal["retry", "wait", "pause", "dead"]


@dataclass(frozen=True, slots=True)
class Row:
    """One answer, and its meaning."""

    name: str
    answer: bytes
    category: Failure
    end: End
    wait_ms: int | None = None
    code: str = ""
    hang_up: bool = False


def means(failure: Failure) -> tuple[End, int | None]:
    """Return the end of an attempt that fails in this class, and the delay after it."""
    if failure is Failure.TRANSIENT:
        return "retry", FIRST_WAIT_MS
    if failure is Failure.THROTTLED:
        return "wait", 1_000
    return ("pause", None) if failure is Failure.AUTH else ("dead", None)


def rows() -> list[Row]:
    """Return the whole table: every known code inside a graph, every known status, and missing answers."""
    found = [
        Row(code, graph(code), failure, *means(failure), code=code)
        for code, failure in BY_CODE.items()
        if code
        not in (
            "DUPLICATE_VALUE",
            "INVALID_SESSION_ID",
        )  # a session has its own row below; a duplicate is read first: test_salesforce.py
    ]
    found += [Row(f"HTTP {status}", http(status, b""), failure, *means(failure)) for status, failure in BY_STATUS.items()]
    transient = (Failure.TRANSIENT, *means(Failure.TRANSIENT))
    return [
        *found,
        Row("a session that is never taken", refusal(401, "INVALID_SESSION_ID"), Failure.AUTH, "pause", code="INVALID_SESSION_ID"),
        Row("concurrent calls", refusal(403, "REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests Limit"), *transient),
        Row("the day's calls", refusal(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests"), Failure.THROTTLED, "wait", 1_000),
        Row("Retry-After", http(429, b"", "Retry-After: 30"), Failure.THROTTLED, "wait", 30_000),
        Row("Retry-After of an outage", http(503, b"", "Retry-After: 20"), Failure.TRANSIENT, "retry", 20_000),
        *(Row(f"HTTP {status}", http(status, b"<html>"), *transient) for status in (500, 502, 503, 504)),
        Row("a code nobody knows", refusal(400, "SOMETHING_NEW"), Failure.VALIDATION, "dead", code="SOMETHING_NEW"),
        Row("HTTP 404", http(404, b"<html>"), Failure.VALIDATION, "dead"),
        Row("a redirect", http(302, b"", "Location: https://evil.example/"), Failure.VALIDATION, "dead"),
        Row("a page of maintenance", http(200, b"<html>We are down</html>"), *transient),
        Row("an empty graph", http(200, b"{}"), *transient),
        Row("half an answer", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", *transient, hang_up=True),
        Row("no answer", b"", *transient, hang_up=True),
    ]


def written() -> bytes:
    """Return the answer to a graph that was written."""
    names = ["quote", *(f"line{number}" for number in range(1, LINES + 1))]
    results = [{"body": {"id": f"0Q0{name}"}, "httpHeaders": {}, "httpStatusCode": 201, "referenceId": name} for name in names]
    answer = {"graphs": [{"graphId": "1", "graphResponse": {"compositeResponse": results}, "isSuccessful": True}]}
    return http(200, json.dumps(answer).encode())


async def owed_again(crm: Crm, number: int) -> dict[str, Any]:
    """Enqueue the record of the quote once more; return the effect."""
    ledger = crm.bench.ledger
    await ledger.reserve(request_for(RefreshCard(), f"row {number}", quote_id=QUOTE, version=1))
    (claimed,) = await ledger.claim_operations(1)
    await ledger.execute(claimed, lambda _: Outcome("applied", {"text": "ok"}, (effects.create_in_crm(QUOTE, 1),)))
    return crm.effect("crm.create")


async def played(crm: Crm, script: Scripted, row: Row, number: int) -> None:
    """Run one attempt with the row's answer and check its consequences; then let Salesforce recover and settle."""
    effect = await owed_again(crm, number)
    since = crm.bench.row("SELECT max(id) AS id FROM audit_events")["id"]
    script.answer, script.hang_up = row.answer, row.hang_up
    assert await crm.step() == 1, row
    after = crm.bench.row("SELECT * FROM effects WHERE id = ?", effect["id"])
    wait = None if after["next_attempt_at"] is None else after["next_attempt_at"] - crm.bench.clock.now_ms()
    states = {"retry": ("pending", 1), "wait": ("pending", 0), "pause": ("pending", 0), "dead": ("failed", 1)}
    found = (after["state"], after["attempts"], after["category"])
    assert found == (*states[row.end], row.category.value), (
        row,
        after["last_error"],
    )
    assert row.end == "pause" or wait == row.wait_ms, (row, wait)
    assert row.code in after["last_error"], (row, after["last_error"])
    assert after["last_error"].endswith("."), row  # a sentence, with what to do next
    await seen_by_people(crm, row, effect)
    kept = {"retry": "effect.retry_scheduled", "wait": "effect.retry_scheduled", "pause": "effect.released", "dead": "system.error"}
    events = crm.bench.rows("SELECT event_type, failure_category FROM audit_events WHERE id > ?", since)
    assert any(event["event_type"].startswith(kept[row.end]) for event in events), (row, events)
    paused = "class.paused" in {event["event_type"] for event in events}
    assert paused is (row.end == "pause"), (row, events)
    script.answer, script.hang_up = written(), False
    if row.end == "pause":
        assert await crm.bench.ledger.resume("crm", "ops")
    await crm.settle()
    assert crm.bench.row("SELECT state FROM effects WHERE id = ?", effect["id"])["state"] == (
        "failed" if row.end == "dead" else "delivered"
    ), row


async def seen_by_people(crm: Crm, row: Row, effect: dict[str, Any]) -> None:
    """Check that the card names the state, and that a dead letter is announced in the thread once."""
    card = await QuoteCards(crm.performer.services).show(QUOTE, viewer())
    assert card is not None
    shown = json.dumps(card.blocks)
    found = [words for words in (WRITING, SILENT, PAUSED, MISSING) if words in shown]
    assert found in {"retry": ([SILENT],), "wait": ([WRITING], [SILENT]), "pause": ([PAUSED],), "dead": ([MISSING],)}[row.end], row
    notices = crm.bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' AND parent_id = ?", effect["id"])
    assert len(notices) == (1 if row.end == "dead" else 0), row
    letters = crm.bench.rows("SELECT 1 FROM dead_letters WHERE kind = 'effect' AND id = ?", effect["id"])
    assert len(letters) == (1 if row.end == "dead" else 0), row


async def test_every_row_of_the_error_table_ends_as_it_should_for_all_who_see_it(bench: Bench, tmp_path: Path) -> None:
    script = Scripted(written())
    async with talking_to(script, tmp_path / "org") as client:
        crm = Crm(bench, client, highest=True)
        await crm.approved()
        await crm.settle()
        for number, row in enumerate(rows()):
            await played(crm, script, row, number)
    assert len(rows()) > 45
