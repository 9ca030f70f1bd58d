"""Tests of dead letters in the operators' channel: the card, its buttons, and two operators at once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from adapters.failures import AdapterError, Failure
from adapters.policies import RetryOverride
from ledger import recovery
from ledger.ledger import no_follow_ups
from ledger.operator.dead_letters import DeadLetter
from ledger.records import Trouble
from quotebot.app.installation import dead_letters, open_ledger
from quotebot.app.workers import _jobs
from quotebot.execution.executor import Executor
from quotebot.jobs.announcements import announce
from quotebot.jobs.maintenance import forget
from quotebot.observability.metrics import Metrics
from quotebot.settings import Settings
from quotebot.store.dead_letters import Backlog, DeadLetterCard, OpsCard
from quotebot.views import operator_messages
from quotebot.views.card import APPROVE
from quotebot.views.dead_letter_card import (
    DETAILS,
    DISCARD,
    EDIT,
    RETRY,
    dead_letter_card,
    dead_letter_value,
    details_view,
    discard_form,
    edit_form,
    parse_dead_letter_value,
)
from quotebot.views.ops_cards import CAUSE_DETAILS, REPLAY_ALL, cause_details, cause_value, ops_card, parse_cause_value
from tests.quotebot.deeds import DONE, Round
from tests.quotebot.parts import MATRIX, RULES, Bench, bench_at, create_command, request_for
from tests.quotebot.views.block_kit import message_problems, view_problems
from tests.quotebot.views.quote_examples import MORNING
from tests.rig import FIRST_QUOTE, Deal, bot_in, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from quotebot.sandbox.world import World

LETTER = DeadLetter(
    kind="effect",
    id=118,
    operation_key="ab" * 32,
    source="slack_interactive",
    source_request_id="T0HOME:1",
    effect_class="crm.create",
    target="Q-2026-0042",
    semantics="keyed",
    maybe_sent=False,
    aggregate_id="Q-2026-0042",
    correlation_id="c-7f91ab12",
    payload={},
    category="transient",
    code="SERVER_UNAVAILABLE",
    last_error="Salesforce did not answer <in time>.",
    attempts=7,
    first_failed_at=MORNING - 60_000,
    last_attempt_at=MORNING,
    created_at=MORNING - 120_000,
    updated_at=MORNING,
    cycle=2,
    prior_replay_count=1,
    handler_version="0.1.0",
    replayed_by="operator",
    state="failed",
    status="pending",
    external_ref=None,
    failure_history=[{"cycle": 1, "attempts": 7, "last_error": "503", "replayed_at": MORNING - 30_000}],
    label="approval:U0MANAGER:Q-2026-0042:decide:v1",
)
DECIDED = DeadLetterCard("118", "C0OPS", "k" * 64, "1.2", "discarded", "U0OPERATOR", MORNING, "not wanted")
STATUSES = ("pending", "replaying", "replayed", "discarded", "uncertain")


@pytest.mark.parametrize("status", STATUSES)
def test_dead_letter_card_matches_its_snapshot(status: str, snapshot: SnapshotAssertion) -> None:
    card = dead_letter_card(replace(LETTER, status=status), DECIDED if status == "discarded" else None)
    assert message_problems(card.text, card.blocks) == []
    assert card == snapshot


def test_details_and_the_discard_form_read_like_this(snapshot: SnapshotAssertion) -> None:
    assert view_problems(details_view(LETTER)) == []
    assert view_problems(discard_form(LETTER)) == []
    assert [details_view(LETTER), discard_form(LETTER)] == snapshot


def test_the_cards_of_operators_are_german_within_limits(german: None) -> None:
    card = dead_letter_card(LETTER, replace(DECIDED, decision="retried", reason=None))
    cause = OpsCard("cause:crm.create/transient/X", "T", "C", "k", "1.2", 1, "2", MORNING, MORNING, None, None, None)
    many = ops_card(cause, Backlog(2, 2, MORNING, None), "503")
    assert card.text == "Schreiben in Salesforce fehlgeschlagen · Q-2026-0042 (#118): ⚠️ Braucht Aufmerksamkeit"
    assert "7 Versuche, 1-mal wiederholt" in str(card.blocks)
    assert "Wiederholt von <@U0OPERATOR>, " in str(card.blocks)
    assert many.text == "Schreiben in Salesforce fehlgeschlagen · 2 Aufträge: Der Dienst war nicht erreichbar"
    assert [*message_problems(card.text, card.blocks), *message_problems(many.text, many.blocks)] == []
    views = [details_view(LETTER), discard_form(LETTER), edit_form(LETTER, {"a": 1}), cause_details("crm.create/auth/X", [], 0)]
    assert [view_problems(view) for view in views if view is not None] == [[], [], [], []]
    assert [view["title"]["text"] for view in views if view is not None] == [
        "Auftrag 118",
        "Auftrag verwerfen",
        "Ändern und neu senden",
        "Fehlgeschlagene Aufträge",
    ]


def test_hostile_text_keeps_a_dead_letter_within_limits_and_mentions_no_one() -> None:
    hostile = "<!channel> <@U0CFO> `x` \u202e" * 200
    cycles = [{"cycle": n, "attempts": 7, "last_error": hostile, "replayed_at": MORNING} for n in range(20)]
    letter = replace(LETTER, last_error=hostile, target=hostile, aggregate_id=hostile, failure_history=cycles)
    card = dead_letter_card(letter, replace(DECIDED, reason=hostile))
    assert message_problems(card.text, card.blocks) == []
    assert view_problems(details_view(letter)) == []
    assert view_problems(discard_form(letter)) == []
    assert "<!channel>" not in str((card, details_view(letter), discard_form(letter)))


@pytest.mark.parametrize(
    "text", ["", "{}", '{"v":2,"l":"118","c":1}', '{"v":1,"l":"x","c":1}', '{"v":1,"l":"118","c":0}', '{"v":1,"l":118,"c":1}']
)
def test_a_value_of_another_build_is_none(text: str) -> None:
    assert parse_dead_letter_value(text) is None
    assert parse_dead_letter_value(dead_letter_value(LETTER)) == ("118", 2)


# ------------------------------------------------------------------------------------------------------- in the running bot


@pytest.fixture
async def outage(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield a deal whose write to Salesforce failed for good, with its card in the operators' channel."""
    settings: dict[str, Any] = {
        "ops_channel": "C0OPS",
        "operators": ("U0OPERATOR", "U0DEALDESK"),
        "retry": {"crm.create": RetryOverride(retries=0)},
    }
    async with bot_in(world, tmp_path / "bot", **settings) as deal:
        await deal.submitted_deal()
        await deal.arm("salesforce", "5xx", method="composite/graph", times=50)
        await deal.click(APPROVE, user="U0MANAGER")
        await posted(deal)
        await deal.clear_faults()
        yield deal


async def posted(deal: Deal) -> dict[str, Any]:
    """Wait until the dead letter has its card, and return the card."""

    async def cards() -> list[dict[str, Any]]:
        return [m for m in (await deal.get("state"))["messages"] if m["channel"] == "C0OPS" and m["blocks"]]

    async def there() -> bool:
        return bool(await cards())

    await eventually(there, "the letter's card")
    await deal.settled()
    return (await cards())[0]


async def press(deal: Deal, user: str, action_id: str, *, stale: bool = False) -> None:
    card = await posted(deal)
    await deal.post("action", user=user, channel="C0OPS", message_ts=card["ts"], action_id=action_id, stale=stale)


async def told(deal: Deal, user: str) -> str:
    """Return the last ephemeral message to this operator."""
    messages = (await deal.get("state"))["messages"]
    text: str = [m["text"] for m in messages if m["channel"] == "C0OPS" and m["ephemeral_for"] == user][-1]
    return text


async def test_two_operators_at_once_have_one_effect_and_the_second_is_told_who_was_first(outage: Deal) -> None:
    card = await posted(outage)
    assert message_problems(card["text"], card["blocks"]) == []
    assert f"Salesforce write failed · {FIRST_QUOTE}" in card["text"]
    both = ("U0OPERATOR", "U0DEALDESK")  # both still see the button
    await asyncio.gather(*(press(outage, user, RETRY, stale=True) for user in both))
    await outage.settled()
    assert len(await outage.crm()) == 1
    retries = await outage.rows("SELECT actor, outcome FROM operations WHERE action_kind = 'letter.retry' ORDER BY id")
    assert [row["outcome"] for row in retries] == ["applied", "refused"]
    first, second = (row["actor"] for row in retries)
    assert f"it was retried by <@{first}>, " in await told(outage, second)
    assert len(await outage.rows("SELECT 1 FROM audit_events WHERE event_type = 'effect.replayed'")) == 1

    done = await posted(outage)
    assert "Done" in done["text"]
    assert f"Retried by <@{first}>" in str(done["blocks"])
    assert "is done now" in (await outage.replies())[-1]["text"]  # the thread's last message is no longer the failure
    assert "failed" not in await outage.card_text()


async def test_dead_letter_is_discarded_with_a_reason_by_operators_only(outage: Deal) -> None:
    await press(outage, "U0MANAGER", RETRY)
    await press(outage, "U0MANAGER", DISCARD)
    await outage.settled()
    assert await told(outage, "U0MANAGER") == operator_messages.NOT_OPERATOR
    await press(outage, "U0OPERATOR", DETAILS)
    await press(outage, "U0OPERATOR", DISCARD)
    view = (await outage.get("state"))["views"][-1]["view"]
    empty = await outage.post("submit", user="U0OPERATOR", view_id=view["id"], values={"reason": {"reason": "\u200f"}})
    assert empty["ack"]["errors"] == {"reason": operator_messages.REASON_NEEDED}
    await outage.post("submit", user="U0OPERATOR", view_id=view["id"], values={"reason": {"reason": "entered by hand"}})
    await outage.settled()
    card = await posted(outage)
    assert "Discarded by <@U0OPERATOR>" in str(card["blocks"])
    assert "> entered by hand" in str(card["blocks"])
    assert RETRY not in str(card["blocks"])
    await press(outage, "U0DEALDESK", RETRY, stale=True)
    await outage.settled()
    assert "it was discarded by <@U0OPERATOR>, " in await told(outage, "U0DEALDESK")
    assert await outage.crm() == []


@pytest.fixture
async def dead_creation(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield a bot whose ledger has a dead creation of a quote for Acme, with its card in the operators' channel."""
    (tmp_path / "bot").mkdir(mode=0o700)
    async with bench_at(tmp_path / "bot" / "ledger.db") as bench:
        await bench.ledger.reserve(request_for(replace(create_command(), channel="C0DEALS"), "dead", team_id="T0QUOTE"))
        (claimed,) = await bench.ledger.claim_operations(10)
        await bench.ledger.fail_operation(claimed, Trouble("internal", "A bug of ours."), {"code": "failed"}, ())
        await recovery.give_back(bench.ledger)
    async with bot_in(world, tmp_path / "bot", ops_channel="C0OPS", operators=("U0OPERATOR", "U0DEALDESK")) as deal:
        await posted(deal)
        yield deal


async def submit_edit(deal: Deal, payload: str, reason: str) -> Any:
    """Submit the newest form of an edited copy, and return the answer."""
    view = (await deal.get("state"))["views"][-1]["view"]
    values = {"payload": {"payload": payload}, "reason": {"reason": reason}}
    return (await deal.post("submit", user="U0OPERATOR", view_id=view["id"], values=values))["ack"]


async def test_operator_edits_a_dead_command_which_runs_once_as_its_authors(dead_creation: Deal) -> None:
    deal = dead_creation
    await press(deal, "U0MANAGER", EDIT)
    await deal.settled()
    assert await told(deal, "U0MANAGER") == operator_messages.NOT_OPERATOR
    await press(deal, "U0OPERATOR", EDIT)
    (form,) = [each["view"] for each in (await deal.get("state"))["views"]]
    assert view_problems(form) == []
    content = json.loads(form["blocks"][1]["element"]["initial_value"])
    assert content == create_command().canonical() | {"channel": "C0DEALS"}
    (shown_to,) = await deal.rows("SELECT actor FROM audit_events WHERE event_type = 'dead_letter.payload_shown'")
    assert shown_to["actor"] == "U0OPERATOR"

    for text, error in (
        ("{", "That is no JSON."),
        (json.dumps(content), "That changes nothing. A replay runs it again as it is."),
        (json.dumps({**content, "customer": "Bolt"}), "quote.create has no field customer."),
    ):
        assert (await submit_edit(deal, text, "wrong customer"))["errors"] == {"payload": error}
    edited = json.dumps({**content, "account": "Bolt Ltd"})
    assert (await submit_edit(deal, edited, " "))["errors"] == {"reason": operator_messages.REASON_NEEDED}
    await submit_edit(deal, edited, "wrong customer")
    await deal.settled()
    await eventually(lambda: deal.rows("SELECT 1 FROM quotes"), "the quote")
    await deal.settled()

    (quote,) = await deal.rows("SELECT account, requester FROM quotes")
    assert (quote["account"], quote["requester"]) == ("Bolt Ltd", "U0REP")
    original, copy = await deal.rows("SELECT * FROM operations WHERE action_kind = 'quote.create' ORDER BY id")
    assert (original["state"], copy["state"], copy["replaces_id"]) == ("discarded", "completed", original["id"])
    (event,) = await deal.rows("SELECT actor, actor_type FROM audit_events WHERE event_type = 'operation.resubmitted'")
    assert (event["actor"], event["actor_type"]) == ("U0OPERATOR", "user")
    card = await posted(deal)
    assert f"Replaced by op{copy['id']} ({copy['correlation_id']}): wrong customer" in str(card["blocks"])
    assert EDIT not in str(card["blocks"])
    await press(deal, "U0OPERATOR", EDIT, stale=True)
    await deal.settled()
    assert "Your click changed nothing" in await told(deal, "U0OPERATOR")


async def test_operator_does_not_approve_the_quote_whose_command_they_edited(dead_creation: Deal) -> None:
    deal = dead_creation
    await press(deal, "U0DEALDESK", EDIT)
    view = (await deal.get("state"))["views"][-1]["view"]
    content = create_command().canonical() | {"channel": "C0DEALS", "account": "Bolt Ltd"}
    values = {"payload": {"payload": json.dumps(content)}, "reason": {"reason": "wrong customer"}}
    await deal.post("submit", user="U0DEALDESK", view_id=view["id"], values=values)
    await eventually(deal.cards, "the card")
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    await deal.complete(deal.click(APPROVE, user="U0DEALDESK"))
    (refused,) = await deal.rows("SELECT outcome, response FROM operations WHERE action_kind = 'approval.decide'")
    assert (refused["outcome"], json.loads(refused["response"])["code"]) == ("refused", "acted_for_others")
    assert [row["state"] for row in await deal.rows("SELECT state FROM quotes")] == ["pending_approval"]


async def test_second_operator_who_edits_a_replaced_command_is_told_who_was_first(dead_creation: Deal) -> None:
    deal = dead_creation
    operators = ("U0OPERATOR", "U0DEALDESK")
    for user in operators:
        await press(deal, user, EDIT)
    views = [each["view"] for each in (await deal.get("state"))["views"]]
    content = create_command().canonical() | {"channel": "C0DEALS"}
    for user, view, account in zip(operators, views, ("Bolt Ltd", "Globex"), strict=True):
        values = {"payload": {"payload": json.dumps({**content, "account": account})}, "reason": {"reason": "wrong"}}
        await deal.post("submit", user=user, view_id=view["id"], values=values)
        await deal.settled()
    await eventually(lambda: deal.rows("SELECT 1 FROM quotes"), "the quote")
    assert [row["account"] for row in await deal.rows("SELECT account FROM quotes")] == ["Bolt Ltd"]
    assert "it was discarded by <@U0OPERATOR>, " in await told(deal, "U0DEALDESK")


@pytest.mark.parametrize(
    ("changes", "editable"),
    [
        ({"kind": "operation", "effect_class": "quote.create"}, True),
        ({"kind": "operation", "effect_class": "approval.decide"}, False),
        ({"kind": "operation", "effect_class": "letter.announce", "source": "scheduler"}, False),
        ({"kind": "operation", "effect_class": "crm.reconcile", "source": "slack_interactive"}, False),
        ({}, False),
    ],
)
def test_only_a_persons_command_that_is_no_decision_is_edited(changes: dict[str, Any], editable: bool) -> None:  # noqa: FBT001 -- a case
    card = dead_letter_card(replace(LETTER, **changes), None)
    assert (EDIT in str(card.blocks)) == editable
    assert message_problems(card.text, card.blocks) == []


def test_a_command_too_long_for_the_form_is_left_to_the_terminal() -> None:
    letter = replace(LETTER, kind="operation", effect_class="quote.create")
    assert edit_form(letter, {"text": "x" * 3000}) is None
    form = edit_form(letter, {"lines": ["x"] * 580})
    assert form is not None
    assert view_problems(form) == []


@pytest.mark.parametrize(("channel", "runs"), [(None, False), ("C0OPS", True)])
def test_dead_letters_are_announced_only_if_a_channel_is_configured(bench: Bench, channel: str | None, runs: bool) -> None:  # noqa: FBT001 -- a case
    jobs = _jobs(bench.ledger, Settings(_env_file=None, ops_channel=channel), Metrics(), lambda: None)
    assert ("letters" in {job.name for job in jobs}) == runs


async def dead(round_: Round, count: int, code: str, effect_class: str = "crm.create", **more: Any) -> None:
    """Fail `count` effects for good with this code."""
    for _ in range(count):
        number = len(round_.bench.rows("SELECT id FROM operations"))
        await round_.owe(effect_class, f"{number:03}", **more)
        round_.performer.sends.append(AdapterError(Failure.VALIDATION, code, "The field is refused."))
        await round_.step()


async def announced(round_: Round) -> int:
    """Reserve what is due, execute it, send the messages, and return the number of commands."""
    executor = Executor(round_.bench.ledger, RULES, lambda low, _: low, MATRIX)
    reserved = await announce(round_.bench.ledger, "C0OPS")
    while await executor.step():
        pass
    round_.performer.sends.extend([DONE] * 1000)
    while await round_.step():
        pass
    round_.performer.sends.clear()
    return reserved


def shown(bench: Bench) -> dict[str, str]:
    """Return the subjects of the open cards with what they show."""
    return {row["subject"]: row["shown"] for row in bench.rows("SELECT subject, shown FROM ops_cards WHERE closed_at IS NULL")}


CAUSE = "cause:crm.create/validation/NO"


async def test_a_few_letters_get_a_card_each_and_more_of_a_class_one_per_cause(bench: Bench) -> None:
    round_ = Round(bench)
    await dead(round_, 5, "NO")
    assert await announced(round_) == 5
    await dead(round_, 3, "NO")
    await dead(round_, 2, "LATE")
    assert await announced(round_) == 2
    assert shown(bench) == {CAUSE: "8", "cause:crm.create/validation/LATE": "2"}
    assert await announced(round_) == 0
    bench.clock.advance(61_000)
    await dead(round_, 1, "NEW")
    await dead(round_, 1, "NO")
    assert await announced(round_) == 2, "another minute: the new cause gets a card of its letter, the known one is counted"
    assert shown(bench)[CAUSE] == "9"
    assert len(bench.rows("SELECT 1 FROM letter_cards")) == 6


async def test_no_letter_is_unannounced_while_twenty_cards_wait(bench: Bench) -> None:
    round_ = Round(bench)
    for minute in range(5):
        await dead(round_, 5, f"CODE{minute}")
        await announced(round_)
        bench.clock.advance(61_000)
    assert len(bench.rows("SELECT 1 FROM letter_cards")) == 20
    assert shown(bench) == {"cause:crm.create/validation/CODE4": "5"}
    await dead_letters(bench.ledger).discard("1", actor="operator", reason="not wanted", follow=no_follow_ups)
    await dead(round_, 1, "LATER")
    assert await announced(round_) == 1
    assert len(bench.rows("SELECT 1 FROM letter_cards")) == 21, "another card once one of the twenty is decided"


async def test_a_card_that_cannot_be_posted_raises_no_card(bench: Bench) -> None:
    round_ = Round(bench)
    await dead(round_, 8, "NO")
    assert await announce(bench.ledger, "C0OPS") == 6
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    while await executor.step():
        pass
    round_.performer.sends.extend([AdapterError(Failure.NOT_FOUND, "gone", "The channel is gone.")] * 6)
    while await round_.step():
        pass
    assert len(bench.rows("SELECT 1 FROM dead_letters WHERE status = 'pending'")) == 14
    bench.clock.advance(61_000)
    assert await announced(round_) == 0


@pytest.mark.parametrize("by_ms", [10_000, -3_600_000], ids=["ten seconds later", "the clock is set back"])
async def test_card_of_a_cause_counts_letters_as_they_come_and_go(bench: Bench, by_ms: int) -> None:
    round_ = Round(bench)
    await dead(round_, 8, "NO")
    await announced(round_)
    for reference in ("1", "2"):
        await dead_letters(bench.ledger).discard(reference, actor="operator", reason="not wanted", follow=no_follow_ups)
    assert (await announced(round_), shown(bench)) == (0, {CAUSE: "8"}), "one drawing in ten seconds"
    bench.clock.advance(by_ms)
    assert (await announced(round_), shown(bench)) == (1, {CAUSE: "6"})
    for row in bench.rows("SELECT id FROM effects WHERE state = 'failed'"):
        await dead_letters(bench.ledger).discard(str(row["id"]), actor="operator", reason="not wanted", follow=no_follow_ups)
    assert (await announced(round_), shown(bench)) == (1, {}), "the last one closes it at once"
    updates = (
        "SELECT json_extract(payload, '$.what') AS what FROM effects WHERE class = 'slack.card' AND target = 'ops:cause:' || ?"
    )
    assert [row["what"] for row in bench.rows(updates, CAUSE.removeprefix("cause:"))] == ["ops"] * 2


async def test_a_cause_whose_letters_fail_again_gets_a_new_message(bench: Bench) -> None:
    round_ = Round(bench)
    await dead(round_, 8, "NO")
    await announced(round_)
    bench.rows("UPDATE ops_cards SET ts = '17.5'")
    bench.clock.advance(10_000)
    await dead_letters(bench.ledger).replay("8", actor="operator", reason=None, follow=no_follow_ups)
    round_.performer.sends.append(AdapterError(Failure.VALIDATION, "NO", "The field is refused."))
    await round_.step()
    assert await announced(round_) == 1
    payloads = [row["payload"] for row in bench.rows("SELECT payload FROM effects WHERE aggregate_id LIKE 'ops:%' ORDER BY id")]
    assert [json.loads(payload)["what"] for payload in payloads] == ["ops", "ops", "closed"]
    bench.clock.advance(60_000)
    assert await announced(round_) == 0, "once per failure"


async def test_a_replay_of_a_large_cause_goes_on_in_batches_and_reaches_all(bench: Bench) -> None:
    round_ = Round(bench)
    await dead(round_, 120, "NO")
    await announced(round_)
    bench.rows("UPDATE ops_cards SET decided_by = 'U0OPERATOR', decided_at = ?", bench.clock.now_ms())
    batches = []
    while await announced(round_):
        batches.append(len(bench.rows("SELECT 1 FROM effects WHERE state = 'failed'")))
    assert batches == [70, 20, 0, 0]
    replays = bench.rows("SELECT actor, actor_type FROM audit_events WHERE event_type = 'effect.replayed'")
    assert {(row["actor"], row["actor_type"]) for row in replays} == {("U0OPERATOR", "user")}
    assert len(replays) == 120


@pytest.fixture
async def many(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield a bot on a ledger with 300 dead letters of three causes, and eight private replies that Slack refused."""
    async with bench_at(tmp_path / "bot" / "ledger.db") as bench:
        round_ = Round(bench)
        for code in ("INVALID_FIELD", "REQUIRED_FIELD", "BAD_PICKLIST"):
            await dead(round_, 100, code)
        said = {"user": "U0REP", "channel": "C0DEALS", "text": "Done."}
        await dead(round_, 8, "invalid_blocks", "slack.reply", payload=said, expires_at=MORNING + 3650 * 86_400_000)
        bench.rows("UPDATE deliveries SET transport = '{}'")  # there is no response_url to reply to
    async with bot_in(world, tmp_path / "bot", ops_channel="C0OPS", operators=("U0OPERATOR",)) as deal:
        yield deal


async def cards_of(deal: Deal, words: str) -> list[dict[str, Any]]:
    return [m for m in (await deal.get("state"))["messages"] if m["channel"] == "C0OPS" and words in m["text"]]


async def test_three_hundred_letters_of_three_causes_are_one_card_each(many: Deal) -> None:
    async def there() -> bool:
        return (len(await cards_of(many, "Salesforce write failed · 100 jobs")), len(await cards_of(many, "(#"))) == (3, 10)

    await eventually(there, "a card of each cause, and of five letters of each class")
    await many.settled()
    cards = await cards_of(many, "Salesforce write failed · 100 jobs")
    assert {card["text"] for card in cards} == {"Salesforce write failed · 100 jobs: The service refuses the request for good"}
    assert [message_problems(card["text"], card["blocks"]) for card in cards] == [[], [], []]
    await many.post("action", user="U0OPERATOR", channel="C0OPS", message_ts=cards[0]["ts"], action_id=CAUSE_DETAILS)
    view = (await many.get("state"))["views"][-1]["view"]
    assert "The 20 oldest" in str(view)


async def test_replay_all_delivers_every_letter_of_the_cause_and_closes_the_card(many: Deal) -> None:
    async def there(words: str) -> bool:
        return bool(await cards_of(many, words))

    await eventually(lambda: there("Private answer failed · 8 jobs"), "the card of the cause")
    await many.settled()
    (card,) = await cards_of(many, "Private answer failed · 8 jobs")
    for user in ("U0MANAGER", "U0OPERATOR"):
        await many.post("action", user=user, channel="C0OPS", message_ts=card["ts"], action_id=REPLAY_ALL)
    await eventually(lambda: there("Private answer · all done"), "the card to be closed")
    await many.settled()
    assert await told(many, "U0MANAGER") == operator_messages.NOT_OPERATOR
    assert len([text for text in await many.whispers("U0REP") if text == "Done."]) == 8
    (card,) = [each for each in await cards_of(many, "Private answer") if "all done" in each["text"]]
    assert "Retried by <@U0OPERATOR>" in str(card["blocks"])
    assert REPLAY_ALL not in str(card["blocks"])


async def test_a_letter_that_fails_again_is_announced_again(outage: Deal) -> None:
    first = await posted(outage)
    await outage.arm("salesforce", "5xx", method="composite/graph", times=50)
    await press(outage, "U0OPERATOR", RETRY)

    async def again() -> bool:
        return len([m for m in (await outage.get("state"))["messages"] if m["channel"] == "C0OPS" and m["blocks"]]) == 1 and bool(
            await cards_of(outage, "Continued in a newer message")
        )

    await eventually(again, "a new card")
    await outage.settled()
    second = await posted(outage)
    assert second["ts"] != first["ts"]
    assert "Needs attention" in second["text"]
    assert [m["ts"] for m in await cards_of(outage, operator_messages.CONTINUED)] == [first["ts"]]


@pytest.fixture
async def refused(world: World, tmp_path: Path) -> AsyncIterator[Deal]:
    """Yield a deal whose write to Salesforce waits, because its login is refused."""
    async with bot_in(world, tmp_path / "bot", ops_channel="C0OPS", operators=("U0OPERATOR",)) as deal:
        await deal.submitted_deal()
        await deal.arm("salesforce", "auth_expired", method="oauth2/token", times=50)
        yield deal


async def test_refused_login_is_one_card_that_follows_the_resume(refused: Deal, tmp_path: Path) -> None:
    with capture_logs() as lines:
        await refused.click(APPROVE, user="U0MANAGER")

        async def paused() -> bool:
            return bool(await cards_of(refused, "Salesforce is paused: login refused"))

        await eventually(paused, "the card of the pause")
    alerts = [line for line in lines if line["log_level"] == "error"]
    assert [(line["event"], line["gate"]) for line in alerts] == [("class.paused", "crm")]
    assert alerts[0]["do"] == "mend the login, then: quotebot resume crm"
    assert len(await refused.rows("SELECT 1 FROM audit_events WHERE event_type = 'class.paused'")) == 1
    await refused.clear_faults()
    async with open_ledger(settings_for(refused, tmp_path)) as ledger:
        assert await ledger.resume("crm", "operator")

    async def works() -> bool:
        return bool(await cards_of(refused, "Salesforce works again"))

    await eventually(works, "the card to be closed")
    await refused.settled()
    assert len([m for m in (await refused.get("state"))["messages"] if m["channel"] == "C0OPS"]) == 1
    assert len(await refused.crm()) == 1


def settings_for(deal: Deal, folder: Path) -> Settings:
    del deal
    return Settings(_env_file=None, data_dir=folder / "bot")


@pytest.mark.parametrize("category", [*Failure, "unknown"])
def test_card_of_a_cause_says_it_in_words(category: str) -> None:
    card = OpsCard(f"cause:crm.create/{category}/X", "T0HOME", "C0OPS", "k" * 64, "1.2", 1, "8", MORNING, MORNING, None, None, None)
    state = Backlog(8, 7, MORNING, None)
    drawn = ops_card(card, state, "ValueError in our own code." if category == "internal" else "No.")
    assert message_problems(drawn.text, drawn.blocks) == []
    assert "ValueError" not in str(drawn)
    assert drawn.text.startswith("Salesforce write failed · 8 jobs: ")
    assert drawn.text != "Salesforce write failed · 8 jobs: "
    assert ("The reason is not known" in drawn.text) == (category == "unknown")
    assert view_problems(cause_details(f"crm.create/{category}/X", [], 8)) == []
    assert parse_cause_value(cause_value(f"crm.create/{category}/X")) == f"crm.create/{category}/X"
    assert parse_cause_value('{"v":2,"cause":"x"}') is None


async def test_card_of_a_dead_letter_is_purged_with_its_row(bench: Bench) -> None:
    round_ = Round(bench)
    await round_.owe("crm.create")
    round_.performer.sends.append(AdapterError(Failure.VALIDATION, "no", "No."))
    await round_.step()
    for reference in ("1", "op1", "99", "op99"):
        insert = "INSERT INTO letter_cards (reference, channel, post_key, announced_at) VALUES (?, 'C0OPS', 'k', 1)"
        bench.rows(insert, reference)
    now = bench.clock.now_ms()
    counted = [(await forget(bench.ledger, now, dry_run=dry_run)).letter_cards for dry_run in (True, False, False, True)]
    assert counted == [2, 2, 0, 0]
    assert [row["reference"] for row in bench.rows("SELECT reference FROM letter_cards ORDER BY 1")] == ["1", "op1"]
    events = bench.rows("SELECT after FROM audit_events WHERE event_type = 'retention.purged'")
    assert [row["after"] for row in events] == ['{"letter_cards":2}']
