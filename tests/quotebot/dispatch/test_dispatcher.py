from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from pydantic import TypeAdapter, ValidationError

from adapters.failures import AdapterError, Failure
from adapters.policies import POLICIES
from adapters.slack.errors import unreadable
from quotebot.dispatch.dispatcher import OVERRUN_SECONDS
from tests.quotebot.deeds import DONE, Round, lost, transient

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

CRM_MS = [500, 1_000, 2_000, 4_000, 8_000, 16_000]
SLACK_MS = [250, 500, 1_000, 2_000, 4_000]


@pytest.fixture
def play(bench: Bench) -> Round:
    return Round(bench)


def throttled(seconds: float | None) -> AdapterError:
    return AdapterError(Failure.THROTTLED, "http_429", "Not so fast.", http_status=429, retry_after_seconds=seconds)


def refused(failure: Failure) -> AdapterError:
    return AdapterError(failure, "code", "No.", http_status=400)


async def test_what_is_due_is_delivered_once(play: Round) -> None:
    await play.owe("crm.create")
    play.performer.sends.append(DONE)
    assert await play.step() == 1
    row = play.row()
    assert (row["state"], row["attempts"], row["external_ref"], row["last_error"]) == ("delivered", 1, "17.5", None)
    assert await play.step() == 0


@pytest.mark.parametrize(
    ("effect_class", "delays_ms"), [("crm.create", CRM_MS), ("slack.post", SLACK_MS), ("pdf.render", [1_000, 3_000])]
)
@pytest.mark.parametrize("end", ["high", "low"])
async def test_retries_wait_as_the_matrix_says_and_end_in_a_dead_letter(
    bench: Bench, effect_class: str, delays_ms: list[int], end: str
) -> None:
    play = Round(bench, highest=end == "high")
    jittered = POLICIES[effect_class].jitter == "full"
    await play.owe(effect_class)
    play.performer.sends.extend(transient() for _ in range(len(delays_ms) + 1))
    assert await play.step() == 1
    for tries, delay_ms in enumerate(delays_ms, start=1):
        assert play.state() == ("pending", tries)
        assert play.delay() == (0 if jittered and end == "low" else delay_ms)
        assert await play.next_step() == 1
    row = play.row()
    assert (row["state"], row["attempts"], row["category"]) == ("failed", len(delays_ms) + 1, "transient")
    assert row["last_error"] == "No answer (network)."
    assert play.draws == ([(0.0, ms / 1000) for ms in delays_ms] if jittered else [])


async def test_a_success_after_failures_is_a_success(play: Round) -> None:
    await play.owe("crm.create")
    play.performer.sends.extend([transient(), lost(), DONE])
    await play.step()
    await play.next_step()
    await play.next_step()
    assert play.state() == ("delivered", 3)


@pytest.mark.parametrize("failure", [Failure.MAPPING, Failure.VALIDATION, Failure.NOT_FOUND, Failure.CONFLICT, Failure.LLM_SCHEMA])
async def test_what_another_try_cannot_help_is_dead_at_first_sight(play: Round, failure: Failure) -> None:
    await play.owe("crm.create")
    play.performer.sends.append(refused(failure))
    await play.step()
    assert play.state() == ("failed", 1)
    assert (play.row()["category"], play.draws) == (failure.value, [])
    (event,) = play.bench.rows("SELECT * FROM audit_events WHERE event_type = 'system.error'")
    assert (event["failure_category"], event["recovery_action"]) == (failure.value, "replay")


async def test_an_internal_error_is_repeated_once_and_then_dead(play: Round) -> None:
    await play.owe("crm.create")
    play.performer.sends.extend([RuntimeError("customer text"), RuntimeError("customer text")])
    await play.step()
    assert play.state() == ("pending", 1)
    await play.next_step()
    row = play.row()
    assert (row["state"], row["category"], row["attempts"]) == ("failed", "internal", 2)
    assert row["last_error"] == "The call failed: an error in our own code (bug)."


class UniqueViolation(sqlite3.IntegrityError):
    """A driver's own kind of IntegrityError."""


def validation_error() -> Exception:
    try:
        TypeAdapter(int).validate_python("customer text")
    except ValidationError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("effect_class", ["crm.create", "slack.post", "slack.reply"])
@pytest.mark.parametrize(
    "error",
    [
        *(kind("customer text") for kind in (ValueError, KeyError, TypeError, AssertionError, ZeroDivisionError)),
        *(sqlite3.IntegrityError("customer text"), UniqueViolation("customer text"), validation_error()),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_invalid_value_in_our_own_code_is_dead_at_first_sight(play: Round, error: Exception, effect_class: str) -> None:
    await play.owe(effect_class)
    play.performer.sends.append(error)
    await play.step()
    row = play.row()
    assert (row["state"], row["attempts"], row["category"], play.draws) == ("failed", 1, "internal", [])
    assert row["last_error"] == "The call failed: a value is invalid (invalid_value)."


async def test_a_document_that_cannot_be_rendered_twice_is_dead(play: Round) -> None:
    await play.owe("pdf.render")
    play.performer.sends.extend([refused(Failure.RENDER), refused(Failure.RENDER)])
    await play.step()
    assert play.state() == ("pending", 1)
    await play.next_step()
    assert play.state() == ("failed", 2)


# ------------------------------------------------------------------------------------------------------ throttled, paused


async def test_a_throttled_class_is_never_tried_before_retry_after(bench: Bench) -> None:
    play = Round(bench, highest=False)
    await play.owe("slack.post", "t")
    play.performer.sends.extend([throttled(7.5), DONE, DONE, DONE])
    await play.step()
    assert play.delay("t") == 7_500
    await play.owe("slack.post", "u")
    await play.owe("crm.create", "c")
    await play.step()
    assert play.performer.sent == ["t", "c"]  # another class works on
    play.bench.clock.advance(7_499)
    assert await play.step() == 0
    play.bench.clock.advance(1)
    assert await play.step() == 2
    assert (play.state("t"), play.state("u")) == (("delivered", 1), ("delivered", 1))  # the refused attempt is not counted


async def test_the_longer_of_two_holds_counts(bench: Bench) -> None:
    play = Round(bench, highest=False)
    await play.owe("slack.post", "t")
    await play.owe("slack.post", "u")
    play.performer.sends.extend([throttled(9.0), throttled(2.0)])
    assert await play.step() == 2
    play.bench.clock.advance(8_999)
    assert await play.step() == 0


async def test_throttling_without_a_time_waits_a_second_at_least(play: Round) -> None:
    await play.owe("slack.post")
    play.performer.sends.append(throttled(None))
    await play.step()
    assert (play.state(), play.delay()) == (("pending", 0), 1_000)


async def test_throttling_alone_never_makes_a_dead_letter(play: Round) -> None:
    await play.owe("slack.post")
    play.performer.sends.extend([throttled(1.0)] * 20)
    for _ in range(20):
        assert await play.next_step() == 1
    assert play.state() == ("pending", 0)


async def test_our_own_backoff_counts_where_it_is_longer_than_retry_after(play: Round) -> None:
    await play.owe("crm.create")
    play.performer.sends.extend([transient(), transient(), transient(), throttled(1.0)])
    await play.step()
    for _ in range(3):
        await play.next_step()
    assert (play.state(), play.delay()) == (("pending", 3), 2_000)


async def test_an_auth_failure_pauses_the_family_and_burns_nothing(play: Round) -> None:
    await play.owe("crm.create", "t")
    play.performer.sends.append(refused(Failure.AUTH))
    await play.step()
    await play.owe("crm.create", "u")
    assert play.state() == ("pending", 0)
    gate = play.bench.row("SELECT * FROM gates")
    assert (gate["name"], gate["state"], gate["cause"], gate["reason"], gate["until_at"]) == (
        "crm",
        "held",
        "auth",
        "No (code).",
        None,
    )
    play.bench.clock.advance(7 * 86_400_000)
    assert await play.step() == 0
    assert play.performer.sent == ["t"]


async def test_a_paused_family_does_not_hold_the_others(play: Round) -> None:
    await play.owe("crm.create", "t")
    play.performer.sends.extend([refused(Failure.AUTH), DONE])
    await play.step()
    await play.owe("slack.post", "u")
    await play.step()
    assert play.state("u") == ("delivered", 1)


async def test_a_resumed_class_continues_where_it_was(play: Round) -> None:
    await play.owe("crm.create")
    play.performer.sends.extend([refused(Failure.AUTH), DONE])
    await play.step()
    assert await play.bench.ledger.resume("crm.create", "operator")
    await play.step()
    assert play.state() == ("delivered", 1)
    trail = play.bench.rows("SELECT event_type FROM audit_events WHERE event_type LIKE 'class.%'")
    assert [event["event_type"] for event in trail] == ["class.paused", "class.half_open", "class.resumed"]
    assert not await play.bench.ledger.resume("crm.create", "operator")


# ------------------------------------------------------------------------------------------------------------- answers


async def test_an_answer_too_old_to_be_seen_is_dropped_unsent(play: Round) -> None:
    await play.owe("slack.reply", expires_at=play.bench.clock.now_ms() + 1_000)
    play.bench.clock.advance(1_000)
    await play.step()
    assert (play.state(), play.row()["category"], play.performer.sent) == (("superseded", 0), "expired", [])


async def test_an_answer_just_in_time_is_sent(play: Round) -> None:
    await play.owe("slack.reply", expires_at=play.bench.clock.now_ms() + 1_000)
    play.bench.clock.advance(999)
    play.performer.sends.append(DONE)
    await play.step()
    assert play.state() == ("delivered", 1)


@pytest.mark.parametrize("error", [lost(), unreadable("chat.postMessage", 200)], ids=["lost", "unreadable"])
async def test_an_answer_that_may_have_arrived_is_repeated_once_then_dropped(play: Round, error: AdapterError) -> None:
    await play.owe("slack.reply")
    play.performer.sends.extend([error, error])
    await play.step()
    assert play.state() == ("pending", 1)
    await play.next_step()
    assert (play.row()["state"], len(play.performer.sent), play.performer.looked) == ("superseded", 2, [])


async def test_an_answer_nobody_can_receive_any_more_is_dropped_and_no_dead_letter(play: Round) -> None:
    await play.owe("slack.reply")
    play.performer.sends.append(refused(Failure.NOT_FOUND))
    await play.step()
    assert play.row()["state"] == "superseded"
    assert play.bench.rows("SELECT 1 FROM dead_letters") == []


async def test_an_answer_that_slack_would_refuse_wherever_it_went_is_a_dead_letter(play: Round) -> None:
    await play.owe("slack.reply")
    play.performer.sends.append(refused(Failure.VALIDATION))
    await play.step()
    assert (play.row()["state"], play.row()["category"], len(play.performer.sent)) == ("failed", "validation", 1)


async def test_call_that_could_outlast_its_claim_is_not_made(play: Round, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []

    def may_call(claimed: float, seconds: float) -> bool:
        asked.append((claimed, seconds))
        return len(asked) > 1

    monkeypatch.setattr(bench.ledger, "may_call", may_call)
    await play.owe("crm.create")
    play.performer.sends.append(DONE)
    await play.step()
    assert (play.state(), play.row()["maybe_sent"], play.delay()) == (("pending", 0), 0, 1_000)
    await play.next_step()
    assert play.state() == ("delivered", 1)
    assert asked[0] == (bench.clock.monotonic() - 1, POLICIES["crm.create"].timeout_seconds + OVERRUN_SECONDS)
