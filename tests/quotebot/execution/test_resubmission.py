"""Tests of repeated commands: the same text is asked back, a creating button works once, a typed change keeps its version."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.commands.payloads import CreateAnother, SubmitQuote
from quotebot.domain.pricing.engine import LineRequest
from quotebot.domain.quotes.quote import QuoteState
from quotebot.execution.executor import Decider, Executor
from quotebot.handlers.quotes import RESUBMISSION_MS
from quotebot.store import quotes as store
from quotebot.views import messages
from tests.quotebot.parts import MATRIX, RULES, create_command, request_for
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Request
    from quotebot.commands.payloads import CreateQuote
    from tests.quotebot.parts import Bench

OLD_BUILD = {"account": "Acme", "channel": "C0SALES", "discount_percent": "15", "term_months": 12, "v": 1}


@pytest.fixture
def executor(bench: Bench) -> Executor:
    return Executor(bench.ledger, RULES, lambda _, high: high, MATRIX)


async def done(bench: Bench, executor: Executor, request: Request) -> dict[str, Any]:
    """Reserve and execute one command; return its operation's row with the response parsed."""
    operation = (await bench.ledger.reserve(request)).operation
    await executor.step()
    row = bench.row("SELECT * FROM operations WHERE id = ?", operation.id)
    return {**row, "response": json.loads(row["response"])}


async def typed(
    bench: Bench, executor: Executor, request_id: str, command: CreateQuote | None = None, **changes: Any
) -> dict[str, Any]:
    """Type `/quote new` now."""
    request = request_for(command or create_command(), request_id, received_at=bench.clock.now_ms())
    return await done(bench, executor, replace(request, **changes))


async def clicked(bench: Bench, executor: Executor, token: str, request_id: str, **changes: Any) -> dict[str, Any]:
    """Click "Create another" now."""
    request = request_for(CreateAnother(token), request_id, source="slack_interactive", received_at=bench.clock.now_ms())
    return await done(bench, executor, replace(request, **changes))


def quotes(bench: Bench) -> list[str]:
    return [row["quote_id"] for row in bench.rows("SELECT quote_id FROM quotes ORDER BY quote_id")]


async def moved_on(bench: Bench) -> None:
    """Make the next version of the quote, as another person would."""

    def work(tx: Tx) -> None:
        before = store.load(tx, "Q-2026-0001")
        assert before is not None
        after = replace(before, version=2, state=QuoteState.PRICED, approval=None, revised_by="U0OTHER", revised_at=MORNING)
        store.save(tx, before, after, MORNING)
        facts = {"state": "priced", "version": 2, "net_total": str(after.pricing.net_total)}
        bench.ledger.audit.append(
            tx, MORNING, "quote.revised", actor="U0OTHER", actor_type="user", aggregate_id="Q-2026-0001", after=facts
        )

    await bench.ledger.database.write("test", work)


# ---------------------------------------------------------------------------------------------------------- typed again


async def test_the_same_again_within_two_minutes_is_asked_back_and_creates_nothing(bench: Bench, executor: Executor) -> None:
    await typed(bench, executor, "1")
    bench.clock.advance(20_000)
    again = await typed(bench, executor, "2")
    text = "You just created the same quote, Q-2026-0001. Create another?"
    offer = {"token": again["operation_key"], "quote_id": "Q-2026-0001", "version": 1}
    assert (again["state"], again["outcome"]) == ("completed", "refused")
    assert again["response"] == {"code": "resubmission", "quote_id": "Q-2026-0001", "text": text, "offer": offer}
    assert quotes(bench) == ["Q-2026-0001"]
    (reply,) = bench.rows("SELECT class, target, payload FROM effects WHERE operation_id = ?", again["id"])
    assert (reply["class"], reply["target"]) == ("slack.reply", "U0REP")
    assert json.loads(reply["payload"]) == {"user": "U0REP", "channel": "C0SALES", "text": text, "offer": offer}


@pytest.mark.parametrize(("later", "outcome"), [(0, "refused"), (RESUBMISSION_MS, "refused"), (RESUBMISSION_MS + 1, "applied")])
async def test_the_question_is_asked_up_to_the_last_millisecond_of_the_two_minutes(
    bench: Bench, executor: Executor, later: int, outcome: str
) -> None:
    await typed(bench, executor, "1")
    bench.clock.advance(later)
    assert (await typed(bench, executor, "2"))["outcome"] == outcome


async def test_the_two_minutes_count_from_the_end_of_the_first_not_from_its_beginning(bench: Bench, executor: Executor) -> None:
    """The bot was away for ten minutes; the person typed again five minutes into that."""
    await bench.ledger.reserve(request_for(create_command(), "1"))
    bench.clock.advance(300_000)
    await bench.ledger.reserve(request_for(create_command(), "2", received_at=bench.clock.now_ms()))
    bench.clock.advance(300_000)
    while await executor.step():
        pass
    outcomes = [row["outcome"] for row in bench.rows("SELECT outcome FROM operations ORDER BY id")]
    assert sorted(outcomes) == ["applied", "refused"]
    assert quotes(bench) == ["Q-2026-0001"]


@pytest.mark.parametrize(
    ("payload", "changes"),
    [
        (create_command("20"), {}),
        (create_command(lines=(LineRequest("pro", 1),)), {}),
        (replace(create_command(), account="Borealis"), {}),
        (replace(create_command(), channel="C0OTHER"), {}),
        (create_command(), {"actor": "U0VP"}),
        (create_command(), {"team_id": "T0OTHER"}),
    ],
)
async def test_other_content_or_another_person_or_team_is_no_repetition(
    bench: Bench, executor: Executor, payload: CreateQuote, changes: dict[str, Any]
) -> None:
    await typed(bench, executor, "1")
    assert (await typed(bench, executor, "2", payload, **changes))["outcome"] == "applied"
    assert len(quotes(bench)) == 2


async def test_equal_commands_that_wait_together_make_one_quote(bench: Bench, executor: Executor) -> None:
    await asyncio.gather(*(bench.ledger.reserve(request_for(create_command(), str(n))) for n in range(10)))
    while await executor.step():
        pass
    assert quotes(bench) == ["Q-2026-0001"]
    counted = bench.rows("SELECT outcome, count(*) AS n FROM operations GROUP BY outcome ORDER BY outcome")
    assert [(row["outcome"], row["n"]) for row in counted] == [("applied", 1), ("refused", 9)]


async def test_of_a_failing_command_and_its_repetition_the_later_one_is_asked_to_confirm(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first waits for a retry; the second does not wait for it, and the first then finds the second's quote."""

    def decide(*_: object) -> None:
        raise RuntimeError

    first = await bench.ledger.reserve(request_for(create_command(), "1"))
    with monkeypatch.context() as broken:
        broken.setattr(Decider, "decide", decide)
        await executor.step()
    assert bench.row("SELECT state FROM operations")["state"] == "failed_retryable"
    assert (await typed(bench, executor, "2"))["outcome"] == "applied"
    bench.clock.advance(3_600_000)
    await executor.step()
    row = bench.row("SELECT outcome, response FROM operations WHERE id = ?", first.operation.id)
    assert (row["outcome"], json.loads(row["response"])["code"]) == ("refused", "resubmission")
    assert len(quotes(bench)) == 1


async def test_a_repetition_of_what_could_not_be_priced_is_no_repetition(bench: Bench, executor: Executor) -> None:
    wrong = create_command(lines=(LineRequest("prro", 1),))
    answers = [await typed(bench, executor, request_id, wrong) for request_id in ("1", "2")]
    assert [answer["response"]["code"] for answer in answers] == ["not_priceable"] * 2


async def test_command_of_the_previous_build_is_executed_and_its_repetition_detected(bench: Bench, executor: Executor) -> None:
    """Two payload schemas, two hashes, one content."""
    old = {**OLD_BUILD, "lines": create_command().canonical()["lines"]}
    first = await typed(bench, executor, "1", payload=old)
    assert first["outcome"] == "applied"
    assert json.loads(bench.row("SELECT payload FROM operations")["payload"])["v"] == 1
    again = await typed(bench, executor, "2")
    assert again["response"]["code"] == "resubmission"


# -------------------------------------------------------------------------------------------------------- create another


async def asked_back(bench: Bench, executor: Executor) -> str:
    """Type the same twice; return the token of the question."""
    await typed(bench, executor, "1")
    token: str = (await typed(bench, executor, "2"))["operation_key"]
    return token


async def test_create_another_creates_the_same_once_more(bench: Bench, executor: Executor) -> None:
    token = await asked_back(bench, executor)
    made = await clicked(bench, executor, token, "3")
    assert (made["outcome"], made["response"]["code"], made["response"]["quote_id"]) == ("applied", "created", "Q-2026-0002")
    first, second = bench.rows("SELECT * FROM quotes ORDER BY quote_id")
    assert second["created_by_operation"] == made["operation_key"]
    same = ("account", "channel", "requester", "team_id", "asked_hash")
    assert [second[name] for name in same] == [first[name] for name in same]
    assert bench.row("SELECT * FROM one_time_tokens") == {"token": token, "quote_id": "Q-2026-0002", "used_at": MORNING}
    effects = bench.rows("SELECT class FROM effects WHERE operation_id = ?", made["id"])
    assert [row["class"] for row in effects] == ["slack.post"]


async def test_a_second_click_is_told_what_the_first_one_made(bench: Bench, executor: Executor) -> None:
    token = await asked_back(bench, executor)
    await clicked(bench, executor, token, "3")
    late = await clicked(bench, executor, token, "4")
    assert (late["outcome"], late["response"]["code"]) == ("refused", "already_created")
    assert late["response"]["text"] == messages.already_created("Q-2026-0002")
    assert quotes(bench) == ["Q-2026-0001", "Q-2026-0002"]


async def test_clicks_that_wait_together_make_one_quote(bench: Bench, executor: Executor) -> None:
    token = await asked_back(bench, executor)
    click = request_for(CreateAnother(token), "0", source="slack_interactive")
    await asyncio.gather(*(bench.ledger.reserve(replace(click, source_request_id=f"T0HOME:click {n}")) for n in range(8)))
    while await executor.step():
        pass
    assert quotes(bench) == ["Q-2026-0001", "Q-2026-0002"]


async def test_a_click_is_executed_once_by_the_process_that_takes_over(bench: Bench, executor: Executor) -> None:
    token = await asked_back(bench, executor)
    await clicked(bench, executor, token, "3")
    other = Executor(await bench.another_bot(), RULES, lambda _, high: high, MATRIX)
    late = await clicked(bench, other, token, "4")
    assert late["response"]["code"] == "already_created"
    assert len(quotes(bench)) == 2


@pytest.mark.parametrize("changes", [{"actor": "U0VP"}, {"team_id": "T0OTHER"}])
async def test_only_the_person_who_was_asked_may_use_the_button(bench: Bench, executor: Executor, changes: dict[str, str]) -> None:
    token = await asked_back(bench, executor)
    stolen = await clicked(bench, executor, token, "3", **changes)
    assert (stolen["outcome"], stolen["response"]["code"]) == ("refused", "not_your_offer")
    assert quotes(bench) == ["Q-2026-0001"]
    assert (await clicked(bench, executor, token, "4"))["outcome"] == "applied"


async def test_the_key_of_a_command_that_was_not_asked_back_is_no_token(bench: Bench, executor: Executor) -> None:
    created = await typed(bench, executor, "1")
    for token in (created["operation_key"], "0" * 64):
        answer = await clicked(bench, executor, token, f"click {token}")
        assert (answer["outcome"], answer["response"]["code"]) == ("refused", "offer_gone")
    assert quotes(bench) == ["Q-2026-0001"]


async def test_what_was_created_after_all_is_asked_about_in_its_turn(bench: Bench, executor: Executor) -> None:
    await clicked(bench, executor, await asked_back(bench, executor), "3")
    third = await typed(bench, executor, "4")
    assert third["response"]["offer"]["quote_id"] in quotes(bench)
    assert third["response"]["code"] == "resubmission"


async def test_a_click_that_cannot_be_priced_any_more_leaves_its_token_unused(bench: Bench, executor: Executor) -> None:
    token = await asked_back(bench, executor)
    nothing_sold = replace(RULES.ruleset, catalogue=replace(RULES.catalogue, products={}))
    empty = Executor(bench.ledger, replace(RULES, ruleset=nothing_sold), lambda _, high: high, MATRIX)
    assert (await clicked(bench, empty, token, "3"))["response"]["code"] == "not_priceable"
    assert bench.rows("SELECT 1 FROM one_time_tokens") == []
    assert (await clicked(bench, executor, token, "4"))["outcome"] == "applied"


# -------------------------------------------------------------------------------------------------- what a command is about


async def test_a_typed_change_of_a_quote_that_moved_on_meanwhile_is_stale(bench: Bench, executor: Executor) -> None:
    await typed(bench, executor, "1")
    request = request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=None, source="slack_slash")
    reserved = await bench.ledger.reserve(request)
    assert reserved.operation.pinned_version == 1
    await moved_on(bench)
    await executor.step()
    row = bench.row("SELECT outcome, response FROM operations WHERE id = ?", reserved.operation.id)
    response = json.loads(row["response"])
    assert (row["outcome"], response["code"]) == ("refused", "stale")
    assert "v1: it's now v2" in response["text"]
    assert bench.row("SELECT state FROM quotes")["state"] == "priced"


async def test_a_typed_change_of_a_quote_that_stayed_is_done(bench: Bench, executor: Executor) -> None:
    await typed(bench, executor, "1")
    request = request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=None, source="slack_slash")
    assert (await done(bench, executor, request))["outcome"] == "applied"


async def test_a_redelivery_after_the_quote_moved_on_is_the_first_operation(bench: Bench, executor: Executor) -> None:
    """The version is the one that the person saw, and the pin is not part of the key: a redelivery is never a second command."""
    await typed(bench, executor, "1")
    seen = request_for(SubmitQuote(), "2", quote_id="Q-2026-0001", version=1)
    unseen = request_for(SubmitQuote(), "3", quote_id="Q-2026-0001", version=None, source="slack_slash")
    first = [await bench.ledger.reserve(request) for request in (seen, unseen)]
    while await executor.step():
        pass
    await moved_on(bench)
    again = [await bench.ledger.reserve(request) for request in (seen, unseen)]
    assert [each.sighting.value for each in (*first, *again)] == ["new", "new", "duplicate", "duplicate"]
    assert [each.operation.id for each in again] == [each.operation.id for each in first]
    assert await executor.step() == 0
