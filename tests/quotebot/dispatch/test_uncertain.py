"""Tests of lost answers: an append is checked before it is repeated, and a late result changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import AdapterError, Failure
from adapters.policies import POLICIES, Matrix
from adapters.slack.api import ChannelFacts, PostedMessage
from ledger import recovery
from ledger.ledger import no_follow_ups
from ledger.records import Delivered, Effect, FollowUps
from quotebot.dispatch.dispatcher import OVERRUN_SECONDS, Dispatcher
from quotebot.dispatch.services import earliest_attempt
from quotebot.execution.executor import Executor
from quotebot.observability.clock_guard import TOLERANCE_MS
from tests.ledger.parts import Signs
from tests.quotebot.deeds import DONE, SETTLE_SECONDS, Round, Scripted, lost, transient
from tests.quotebot.parts import MATRIX, RULES, create_command, handlers_of, request_for

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from tests.quotebot.parts import Bench, ManualClock

SETTLE_MS = round(SETTLE_SECONDS * 1000)
FOUND = Delivered("17.5", {"ts": "17.5"}, already_there=True)


@pytest.fixture
def play(bench: Bench) -> Round:
    return Round(bench)


async def doubtful(play: Round, effect_class: str = "slack.post") -> None:
    """Enqueue an append and lose the answer to its first attempt."""
    await play.owe(effect_class)
    play.performer.sends.append(lost())
    await play.step()


async def test_append_that_may_have_been_applied_is_uncertain(play: Round) -> None:
    await doubtful(play)
    row = play.row()
    assert (row["state"], row["attempts"], row["maybe_sent"]) == ("uncertain", 1, 1)
    assert (row["uncertain_since"], play.delay()) == (play.bench.clock.now_ms(), 250)


async def test_found_on_the_other_side_it_is_delivered_and_never_sent_again(play: Round) -> None:
    await doubtful(play)
    play.performer.looks.append(FOUND)
    await play.next_step()
    row = play.row()
    assert (row["state"], row["external_ref"], row["result"]) == ("delivered", "17.5", '{"already_there":true,"ts":"17.5"}')
    assert (len(play.performer.sent), len(play.performer.looked)) == (1, 1)


async def test_absent_before_the_settle_delay_it_is_looked_at_again_when_the_delay_is_over(play: Round) -> None:
    await doubtful(play)
    lost_at = play.bench.clock.now_ms()
    play.performer.looks.extend([None, FOUND])
    await play.next_step()
    assert play.state() == ("uncertain", 1)
    assert play.row()["next_attempt_at"] == lost_at + SETTLE_MS
    await play.next_step()
    assert (play.row()["state"], len(play.performer.sent), len(play.performer.looked)) == ("delivered", 1, 2)


async def test_absence_counts_after_the_longest_call_where_several_replicas_work(play: Round) -> None:
    play.bench.ledger.ownership = Signs("one")
    await doubtful(play, "slack.file")
    lost_at, longest = play.bench.clock.now_ms(), round((POLICIES["slack.file"].timeout_seconds + OVERRUN_SECONDS) * 1000)
    play.performer.looks.append(None)
    await play.next_step()
    assert longest > SETTLE_MS
    assert play.row()["next_attempt_at"] == lost_at + longest


async def test_absent_after_the_settle_delay_it_is_sent_again(play: Round) -> None:
    await doubtful(play)
    play.performer.looks.extend([None, None])
    play.performer.sends.append(DONE)
    await play.next_step()
    await play.next_step()
    assert (play.state(), play.delay(), play.performer.started_over) == (("pending", 1), 0, ["t"])
    await play.step()
    assert (play.state(), len(play.performer.sent)) == (("delivered", 2), 2)


async def test_the_first_look_may_come_late_and_then_counts_at_once(play: Round) -> None:
    await doubtful(play)
    play.bench.clock.advance(SETTLE_MS)
    play.performer.looks.append(None)
    await play.step()
    assert play.state() == ("pending", 1)


async def test_doubt_from_a_clock_that_was_ahead_ends_after_the_settle_delay(play: Round) -> None:
    bench, day_ms = play.bench, 86_400_000
    bench.clock.ms += day_ms
    await doubtful(play)
    bench.clock.ms -= day_ms
    await recovery.take_back_lapsed(bench.ledger)
    play.performer.looks.extend([None, None])
    play.performer.sends.append(DONE)
    await play.next_step()
    assert (play.state(), play.delay()) == (("uncertain", 1), SETTLE_MS)
    await play.next_step()
    await play.step()
    assert (play.row()["state"], len(play.performer.sent)) == ("delivered", 2)


async def test_absence_does_not_count_while_the_clock_is_not_trusted(bench: Bench) -> None:
    """A message may be older than the time from which a clock that is ahead has it looked for."""
    trusted = False
    play = Round(bench, trusted=lambda: trusted)
    await doubtful(play)
    play.performer.looks.extend([None, None, None, FOUND])
    for _ in range(3):
        await play.next_step()
        assert play.state() == ("uncertain", 1)
    trusted = True
    await play.next_step()
    assert (play.row()["state"], len(play.performer.sent)) == ("delivered", 1)


async def test_a_lookup_reaches_back_over_any_clock_that_is_trusted(play: Round) -> None:
    await doubtful(play)
    bench = play.bench
    effect = Effect.of(await bench.ledger.database.read(lambda tx: tx.required("effect_by_id", id=1)))
    now, tolerated = bench.clock.now_ms(), TOLERANCE_MS
    assert earliest_attempt(effect, now) <= (effect.created_at - 2 * tolerated) / 1000
    assert earliest_attempt(effect, now - 2 * tolerated) == 0, "the clock was put back: the time of the attempt is not known"
    assert earliest_attempt(effect, now - 1_000) > 0


class SlowerClock:
    """A Slack whose clock is behind the machine's by `behind_ms`, and whose first answer is lost."""

    def __init__(self, clock: ManualClock, behind_ms: int) -> None:
        self._clock = clock
        self.behind_ms = behind_ms
        self.posted: list[tuple[str, float]] = []  # key and time of each message

    async def channel(self, **_: object) -> ChannelFacts:
        return ChannelFacts("public", ext_shared=False)

    async def post(self, *, channel: str, key: str, **_: object) -> PostedMessage:
        self.posted.append((key, (self._clock.now_ms() - self.behind_ms) / 1000))
        if len(self.posted) == 1:
            raise lost()
        return PostedMessage(channel, f"{self.posted[-1][1]:f}")

    async def find(self, *, channel: str, key: str, oldest_seconds: float, **_: object) -> PostedMessage | None:
        found = (at for known, at in self.posted if known == key and at >= oldest_seconds)
        return next((PostedMessage(channel, f"{at:f}") for at in found), None)


@pytest.mark.parametrize(("ahead_ms", "set_right"), [(TOLERANCE_MS, False), (3_600_000, True)], ids=["trusted", "then set back"])
async def test_a_card_is_posted_once_though_the_clock_was_ahead(bench: Bench, ahead_ms: int, *, set_right: bool) -> None:
    slack: Any = SlowerClock(bench.clock, ahead_ms)
    dispatcher = Dispatcher(
        bench.ledger, handlers_of(bench, slack=slack), lambda low, _: low, Matrix(POLICIES), settle_delay_seconds=1
    )
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await Executor(bench.ledger, RULES, lambda low, _: low, MATRIX).step()
    await dispatcher.step()
    await dispatcher.drain(5.0)
    if set_right:
        bench.clock.ms -= ahead_ms
        slack.behind_ms = 0
        await recovery.take_back_lapsed(bench.ledger)
    for _ in range(30):
        bench.clock.advance(1_000)
        await dispatcher.step()
        await dispatcher.drain(5.0)
    assert [row["state"] for row in bench.rows("SELECT state FROM effects WHERE class = 'slack.post'")] == ["delivered"]
    assert len(slack.posted) == 1


async def test_every_resend_that_gets_lost_too_is_looked_for_again(play: Round) -> None:
    await doubtful(play)
    play.bench.clock.advance(SETTLE_MS)
    play.performer.looks.append(None)
    await play.step()
    play.performer.sends.append(lost())
    await play.step()
    row = play.row()
    assert (row["state"], row["uncertain_since"]) == ("uncertain", play.bench.clock.now_ms())


async def test_what_cannot_have_been_seen_is_sent_again_without_looking(play: Round) -> None:
    await doubtful(play, "slack.file")
    play.performer.visible = False
    play.performer.sends.append(DONE)
    await play.next_step()
    await play.step()
    assert (play.row()["state"], play.performer.looked) == ("delivered", [])


async def test_failing_checks_keep_an_effect_uncertain_until_the_budget_is_spent(play: Round) -> None:
    await doubtful(play)
    play.performer.looks.extend(transient() for _ in range(5))
    for attempts, delay_ms in enumerate([500, 1_000, 2_000, 4_000], start=2):
        await play.next_step()
        assert (play.state(), play.delay()) == (("uncertain", attempts), delay_ms)
    await play.next_step()
    row = play.row()
    assert (row["state"], row["maybe_sent"], len(play.performer.sent)) == ("failed", 1, 1)


async def test_a_look_that_cannot_tell_ends_as_uncertain(play: Round) -> None:
    await doubtful(play)
    play.performer.looks.extend(AdapterError(Failure.UNCERTAIN, "too_many_messages", "Cannot tell.") for _ in range(5))
    for _ in range(5):
        await play.next_step()
    assert (play.row()["state"], play.row()["category"], len(play.performer.sent)) == ("failed", "uncertain", 1)


async def test_refused_login_during_a_check_keeps_the_effect_uncertain(play: Round) -> None:
    """After the resume it must still check before it sends."""
    await doubtful(play)
    play.performer.looks.extend([AdapterError(Failure.AUTH, "token_revoked", "No."), FOUND])
    await play.next_step()
    assert play.state() == ("uncertain", 1)
    assert await play.step() == 0
    await play.bench.ledger.resume("slack.post", "operator")
    await play.step()
    assert (play.row()["state"], len(play.performer.sent)) == ("delivered", 1)


async def test_our_own_bug_in_an_append_is_looked_for_and_repeated_once(play: Round) -> None:
    await play.owe("slack.post")
    play.performer.sends.extend([RuntimeError(), RuntimeError()])
    await play.step()
    assert play.state() == ("uncertain", 1)
    play.bench.clock.advance(SETTLE_MS)
    play.performer.looks.append(None)
    await play.step()
    await play.step()
    assert (play.row()["state"], play.row()["category"], len(play.performer.sent)) == ("failed", "internal", 2)


@pytest.mark.parametrize("effect_class", ["crm.create", "slack.card", "pdf.render"])
async def test_what_may_be_repeated_is_repeated_without_looking(play: Round, effect_class: str) -> None:
    await play.owe(effect_class)
    play.performer.sends.extend([lost(), DONE])
    await play.step()
    assert play.state() == ("pending", 1)
    await play.next_step()
    assert (play.state(), play.performer.looked) == (("delivered", 2), [])


# -------------------------------------------------------------------------------------------------- crashes and lost fences


async def crashed(play: Round, effect_class: str) -> Round:
    """Leave an attempt in flight as a dead process does, and return the next process."""
    await play.owe(effect_class)
    (effect,) = await play.bench.ledger.claim_effects({effect_class: 1})
    assert effect.state == "in_flight"
    return await next_process(play)


async def next_process(play: Round) -> Round:
    successor = await play.bench.another_bot()
    await recovery.take_back(successor, answer=lambda _, __: (), follow=no_follow_ups)
    return Round(type(play.bench)(successor, play.bench.clock, play.bench.path))


async def test_after_a_crash_an_append_is_looked_for_first(play: Round) -> None:
    later = await crashed(play, "slack.post")
    later.performer.looks.append(FOUND)
    await later.step()
    assert (later.row()["state"], later.performer.sent) == ("delivered", [])


async def test_after_a_crash_an_answer_to_one_person_is_repeated_once(play: Round) -> None:
    later = await crashed(play, "slack.reply")
    later.performer.sends.append(lost())
    await later.step()
    await later.step()
    assert (later.row()["state"], len(later.performer.sent), later.performer.looked) == ("superseded", 1, [])


async def test_after_a_crash_a_keyed_effect_is_sent_again_under_its_key(play: Round) -> None:
    later = await crashed(play, "crm.create")
    later.performer.sends.append(DONE)
    await later.step()
    assert later.state() == ("delivered", 1)


async def taken_over(play: Round, act: Any) -> dict[str, Any]:
    """Run an attempt during which another process takes over the row; return the row as that process left it and as it is now."""
    left: dict[str, Any] = {}

    async def deed(effect: Effect) -> Delivered:
        left.update((await next_process(play)).row())
        result: Delivered = await act(play.bench.ledger, effect)
        return result

    await play.owe("slack.file")
    play.performer.sends.append(deed)
    await play.step()
    assert play.row() == left
    return left


async def test_a_step_under_a_lost_claim_leaves_everything_as_the_other_process_has_it(play: Round) -> None:
    async def step(ledger: Ledger, effect: Effect) -> Delivered:
        await ledger.record_step(effect, "ticket", {"file_id": "F1"})
        raise AssertionError("the step was recorded under a claim that was lost")

    left = await taken_over(play, step)
    assert (left["state"], left["steps"]) == ("uncertain", "{}")


async def test_a_late_result_is_audited_and_changes_nothing(play: Round) -> None:
    async def succeed(_: Ledger, __: Effect) -> Delivered:
        return DONE

    await taken_over(play, succeed)
    assert play.bench.row("SELECT count(*) AS n FROM audit_events WHERE event_type = 'effect.late_result'")["n"] == 1


async def test_steps_done_are_there_for_the_next_try(play: Round) -> None:
    async def half(effect: Effect) -> Delivered:
        await play.bench.ledger.record_step(effect, "ticket", {"file_id": "F1"})
        raise transient()

    seen: list[dict[str, Any]] = []

    async def rest(effect: Effect) -> Delivered:
        seen.append(effect.steps)
        return DONE

    await play.owe("slack.file")
    play.performer.sends.extend([half, rest])
    await play.step()
    await play.next_step()
    assert (seen, play.row()["state"]) == ([{"ticket": {"file_id": "F1"}}], "delivered")


async def test_effect_whose_follow_ups_fail_becomes_a_dead_letter_and_others_go_on(play: Round) -> None:
    class Forgetful(Scripted):
        def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
            raise LookupError(tx, effect.target)

    forgetful = Forgetful()
    forgetful.sends.append(DONE)
    play.dispatcher._performer = forgetful
    await play.owe("crm.create")
    await play.step()
    row = play.row()
    assert (row["state"], row["category"], row["maybe_sent"]) == ("failed", "internal", 1)
