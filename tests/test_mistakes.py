"""Tests of 24 known mistakes (SCENARIOS.md, M) that the product avoids: a test for each, or the name of the test that proves it.

A proof elsewhere is named with its file; a name that no longer exists fails.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import re
import sqlite3
from contextlib import closing
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import pytest

from adapters.failures import Failure
from adapters.pdf.renderer import DocumentLine, QuoteDocument
from adapters.salesforce.errors import BY_CODE as SALESFORCE_CODES
from adapters.salesforce.errors import SalesforceRefusal
from adapters.slack.errors import ERRORS as SLACK_CODES
from adapters.slack.errors import refusal
from ledger.ledger import Ledger
from ledger.machine import EFFECT_ARROWS, OPERATION_ARROWS
from ledger.records import DedupeResult
from ledger.recovery import begin_epoch, take_back
from quotebot.domain.quotes.lifecycle import ARROWS as QUOTE_ARROWS
from quotebot.domain.quotes.quote import QuoteState, parse_quote_id
from quotebot.sandbox.world import World
from tests.ledger.parts import AUDIT, Desk, ManualClock, applied, intent, restart, sure
from tests.ledger.places import SqlitePlace
from tests.quotebot.parts import gate_held
from tests.rig import Deal, bot_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

MISTAKES = range(1, 25)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a ledger with a second connection to its file."""
    clock = ManualClock()
    with closing(SqlitePlace(tmp_path / "ledger.db")) as place:
        database = await place.open(clock)
        epoch = await begin_epoch(database, clock.now_ms(), role="bot", build="1")
        yield Desk(Ledger(database, clock, AUDIT, epoch=epoch), clock, place.shell())
        await database.close()


def proven_by(checkout: Path, file: str, *names: str) -> None:
    """Check that the tests with these names are in that file, and that none of them is skipped for good or empty."""
    tree = ast.parse((checkout / file).read_text("utf-8"))
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for name in names:
        assert name in found, f"{file} has no {name} any more: who proves it now?"
        marks = {ast.unparse(mark).partition("(")[0] for mark in found[name].decorator_list}
        assert not marks & {"pytest.mark.skip", "pytest.mark.xfail"}
        assert any(isinstance(node, ast.Assert | ast.With | ast.AsyncWith | ast.Await) for node in ast.walk(found[name]))


async def test_m01_a_late_reservation_never_overwrites_what_was_completed(desk: Desk) -> None:
    first, twin = await asyncio.gather(desk.reserve(), desk.reserve())
    assert {first.sighting, twin.sighting} == {DedupeResult.NEW, DedupeResult.DUPLICATE}
    await desk.ledger.execute(sure(await desk.ledger.claim_operation()), applied(intent()))
    await desk.ledger.noted()
    before = desk.snapshot()
    late = await desk.reserve()
    assert (late.sighting, late.operation.state, late.operation.response) == (DedupeResult.DUPLICATE, "completed", {"code": "ok"})
    await desk.ledger.noted()
    after = desk.snapshot()
    assert {**after, "deliveries": []} == {**before, "deliveries": []}
    assert await desk.ledger.claim_operation() is None


async def test_m02_the_reservation_is_the_task_so_no_crash_comes_between_them(desk: Desk) -> None:
    commits = desk.ledger.database.health.commits
    await desk.reserve()
    assert desk.ledger.database.health.commits == commits + 1
    successor = await restart(desk)
    await take_back(successor.ledger)
    assert sure(await successor.ledger.claim_operation()).id == 1


def test_m03_nothing_in_the_ledger_hangs_on_the_domain_and_nothing_cascades(checkout: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as file:
        for package in ("ledger", "quotebot/store"):
            for script in sorted((checkout / package / "schema").glob("*.sql")):
                file.executescript(script.read_text("utf-8"))
            if package == "ledger":
                own = {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        keys = [(table, *key) for table in _tables(file) for key in file.execute(f"PRAGMA foreign_key_list({table})")]
    assert {"operations", "deliveries", "effects", "audit_events"} <= own
    assert [key for key in keys if key[0] in own and key[3] not in own] == []
    assert {key[7] for key in keys} == {"NO ACTION"}


def _tables(file: sqlite3.Connection) -> list[str]:
    return [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


async def test_m04_the_key_in_the_crm_is_made_of_what_stays_the_same(deal: Deal) -> None:
    await deal.approved_deal()
    (quote,) = await deal.crm()
    ((ledger_id,),) = [row.values() for row in await deal.rows("SELECT value FROM meta WHERE name = 'ledger_id'")]
    assert quote["Quotebot_Key__c"] == f"{ledger_id}_Q-2026-0001_v1"


def test_m05_a_repeated_create_creates_nothing_and_resets_nothing(checkout: Path) -> None:
    proven_by(
        checkout,
        "faults/suites/test_crash_points.py",
        "test_crash_lost_answer_or_refusal_at_any_crash_point_ends_in_the_golden_state",
    )
    proven_by(checkout, "tests/quotebot/store/test_quotes.py", "test_one_operation_creates_one_quote")
    proven_by(
        checkout,
        "tests/adapters/test_salesforce.py",
        "test_a_repeat_finds_the_record_that_is_there",
        "test_another_content_under_the_same_key_is_a_conflict",
    )


def test_m06_money_is_exact_everywhere_and_the_margin_is_of_cost(checkout: Path) -> None:
    proven_by(checkout, "tests/quotebot/domain/test_money.py", "test_a_float_or_anything_else_that_is_no_exact_number_raises")
    proven_by(
        checkout,
        "tests/quotebot/domain/test_pricing.py",
        "test_a_snapshot_holds_no_float",
        "test_a_float_discount_raises",
        "test_every_line_and_every_column_adds_up_to_the_cent",
    )
    proven_by(
        checkout,
        "tests/quotebot/domain/test_policy.py",
        "test_each_margin_floor_is_exact_and_a_family_without_one_goes_to_the_top",
    )


def test_m07_a_snapshot_is_neither_deleted_nor_priced_anew(checkout: Path) -> None:
    proven_by(checkout, "tests/quotebot/store/test_quotes.py", "test_the_file_itself_refuses_to_rewrite_history")


def test_m08_there_is_one_table_per_machine_and_a_cancelled_quote_stays_cancelled(checkout: Path) -> None:
    assert QUOTE_ARROWS[QuoteState.CANCELLED] == frozenset()
    tables = [
        (str(path.relative_to(checkout)), target.id)
        for folder in ("ledger", "quotebot")
        for path in (checkout / folder).rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and "ARROWS" in target.id
    ]
    assert sorted(tables) == [
        ("ledger/machine.py", "EFFECT_ARROWS"),
        ("ledger/machine.py", "OPERATION_ARROWS"),
        ("quotebot/domain/quotes/lifecycle.py", "ARROWS"),
    ]
    assert OPERATION_ARROWS
    assert EFFECT_ARROWS
    proven_by(checkout, "tests/ledger/test_machine.py", "test_the_database_allows_exactly_the_arrows_of_the_table")
    proven_by(checkout, "tests/quotebot/domain/test_lifecycle.py", "test_a_pair_of_states_is_an_arrow_or_an_error")
    proven_by(checkout, "tests/quotebot/store/test_quotes.py", "test_an_arrow_that_is_not_drawn_is_not_stored")


async def test_m09_every_surface_names_a_quote_alike(deal: Deal) -> None:
    await deal.approved_deal()
    surfaces = [
        await deal.card_text(),
        " ".join(file["name"] for file in await deal.files()),
        " ".join(str(value) for quote in await deal.crm() for value in quote.values()),
        " ".join(row["quote_id"] for row in await deal.rows("SELECT quote_id FROM quotes")),
        " ".join(row["aggregate_id"] for row in await deal.rows("SELECT aggregate_id FROM effects")),
    ]
    for surface in surfaces:
        assert {parse_quote_id(number) for number in re.findall(r"[Qq]-?20\d\d-?\d*", surface)} == {"Q-2026-0001"}, surface


# Salesforce answers two different limits with this code and distinguishes them only in the text (adapters/salesforce/errors.py).
TOLD_APART_BY_TEXT = "REQUEST_LIMIT_EXCEEDED"


@pytest.mark.parametrize("text", ["timeout", "INVALID_SESSION_ID", "duplicate value found", "ratelimited", "not_found", ""])
def test_m10_an_error_is_what_its_code_says_whatever_its_text(text: str) -> None:
    for code, failure in SALESFORCE_CODES.items():
        assert SalesforceRefusal(400, code, text).failure() is failure
    for code, failure in SLACK_CODES.items():
        answer = {"ok": False, "error": code, "response_metadata": {"messages": [text]}}
        assert refusal("chat.postMessage", 200, {}, answer, {}).failure is failure
    assert (
        SalesforceRefusal(400, TOLD_APART_BY_TEXT, "ConcurrentRequests (Concurrent API Requests) Limit exceeded.").failure()
        is Failure.TRANSIENT
    )


def test_m11_what_guards_is_refused_when_it_is_missing(checkout: Path) -> None:
    proven_by(
        checkout,
        "tests/quotebot/test_settings.py",
        "test_the_defaults_start_nothing_and_name_both_tokens",
        "test_any_other_token_is_refused_without_being_shown",
        "test_half_a_salesforce_configuration_is_a_mistake_and_its_secret_stays_hidden",
    )


def test_m12_the_matrix_is_the_only_place_of_its_numbers(checkout: Path) -> None:
    proven_by(
        checkout,
        "tests/adapters/test_policies.py",
        "test_every_cell_of_the_matrix",
        "test_the_budget_is_spent_after_exactly_the_first_try_and_the_retries",
    )
    proven_by(
        checkout, "tests/quotebot/dispatch/test_dispatcher.py", "test_retries_wait_as_the_matrix_says_and_end_in_a_dead_letter"
    )


def test_m13_every_commit_is_synced(checkout: Path) -> None:
    proven_by(checkout, "tests/ledger/sqlite/test_file.py", "test_the_writer_runs_in_wal_mode_with_every_commit_synced")


def test_m14_html_is_never_a_pdf(checkout: Path) -> None:
    from adapters.failures import AdapterError  # noqa: PLC0415 -- next to the private function it concerns
    from adapters.pdf.renderer import _rendered  # noqa: PLC0415 -- the only function through which every render passes

    with pytest.raises(AdapterError) as refused:
        _rendered({"pages": 1}, b"<!doctype html><html><body>Quote</body></html>")
    assert refused.value.failure is Failure.RENDER
    proven_by(checkout, "tests/adapters/test_pdf.py", "test_a_field_the_template_needs_and_lacks_is_a_template_error")


def test_m15_no_competitor_can_reach_the_customers_document(checkout: Path) -> None:
    fields = [field.name for kind in (QuoteDocument, DocumentLine) for field in dataclasses.fields(kind)]
    templates = [
        path.read_text("utf-8") for path in (checkout / "adapters/pdf/templates").rglob("*") if path.suffix in {".html", ".css"}
    ]
    assert templates
    for word, text in product(("competitor", "cost", "margin"), (" ".join(fields), *templates)):
        assert not re.search(rf"\b{word}\b(?!:)(?!-)", text), word  # `margin:` and `margin-top` are CSS
    proven_by(
        checkout, "tests/quotebot/views/test_document.py", "test_what_the_customer_reads_holds_no_cost_no_margin_and_no_slack_id"
    )


def test_m16_idempotency_is_judged_by_the_external_services(checkout: Path) -> None:
    proven_by(
        checkout,
        "faults/suites/test_crash_points.py",
        "test_crash_lost_answer_or_refusal_at_any_crash_point_ends_in_the_golden_state",
    )
    proven_by(
        checkout,
        "faults/checks/test_checker.py",
        "test_damage_to_the_external_services_is_named",
        "test_every_invariant_has_a_damage_that_it_names",
    )


def test_m17_no_lock_is_released_or_committed_by_who_lost_it(checkout: Path) -> None:
    proven_by(
        checkout,
        "tests/ledger/test_fences.py",
        "test_an_effect_settled_under_a_lost_claim_is_audited_and_changes_nothing",
        "test_a_command_ended_under_a_lost_claim_is_audited_and_changes_nothing",
    )
    proven_by(checkout, "tests/ledger/test_machine.py", "test_what_ends_a_claim_holds_its_fence")


@pytest.mark.parametrize("kind", ["retry", "resend"])
async def test_m18_a_retry_whose_first_delivery_was_not_recorded_is_no_duplicate(tmp_path: Path, kind: str) -> None:
    async with (
        World(tmp_path / "world", ack_seconds=1.5).serve() as world,
        bot_in(world, tmp_path / "bot", ack_budget_seconds=0.2) as deal,
    ):
        with gate_held(deal.data_dir / "ledger.db"):
            unrecorded = await deal.slash()
        assert await deal.rows("SELECT 1 FROM deliveries") == []
        await deal.redeliver(unrecorded["request_id"], kind, 1)
        await deal.settled()
        assert len(await deal.cards()) == len(await deal.rows("SELECT 1 FROM quotes")) == 1


def test_m19_nothing_is_acknowledged_before_it_is_recorded(checkout: Path) -> None:
    proven_by(
        checkout,
        "faults/suites/test_ack_after_fsync.py",
        "test_every_ack_of_a_mutating_command_follows_the_fsync_of_its_reservation",
        "test_the_reader_sees_an_ack_that_leaves_too_early",
    )


def test_m20_nothing_that_could_fail_comes_between_an_ack_and_its_leaving(checkout: Path) -> None:
    for module in ("listeners", "surface"):
        tree = ast.parse((checkout / f"quotebot/slack/{module}.py").read_text("utf-8"))
        followed = [
            f"{module}, line {after.lineno}"
            for block in _blocks(tree)
            for statement, after in pairwise(block)
            if _is_ack(statement) and not (isinstance(after, ast.Return) and after.value is None)
        ]
        assert sum(map(_is_ack, ast.walk(tree))) > 0
        assert followed == []
    proven_by(checkout, "tests/quotebot/slack/test_receiver.py", "test_after_a_lost_ack_the_redelivery_is_answered_from_the_ledger")


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _is_ack(node: Any) -> bool:
    call = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Await) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "ack"


def test_m21_no_client_of_a_vendor_retries_by_itself(checkout: Path) -> None:
    proven_by(checkout, "tests/adapters/test_slack_answers.py", "test_a_client_that_retries_by_itself_is_refused")
    proven_by(checkout, "tests/adapters/test_slack_failures.py", "test_a_failed_call_is_one_request_and_one_kind_of_failure")
    proven_by(
        checkout,
        "tests/adapters/test_salesforce.py",
        "test_a_failed_attempt_is_one_request_and_the_next_one_leaves_exactly_one_quote",
    )


def test_m22_a_dead_token_costs_one_login_and_then_waits_for_a_person(checkout: Path) -> None:
    proven_by(
        checkout,
        "tests/adapters/test_salesforce.py",
        "test_a_session_that_stays_expired_costs_one_login_and_two_requests",
        "test_a_wrong_secret_is_an_auth_failure_that_does_not_repeat_it",
    )
    proven_by(
        checkout, "tests/ledger/test_gates.py", "test_a_login_refused_for_a_month_with_200_waiting_costs_no_attempt_and_no_effect"
    )


def test_m23_nothing_that_is_alive_is_rescued(checkout: Path) -> None:
    proven_by(
        checkout,
        "tests/ledger/test_fences.py",
        "test_a_renewed_claim_is_not_taken_and_a_process_never_takes_its_own",
        "test_a_claim_lapses_after_its_lease_and_not_a_millisecond_before",
    )
    proven_by(checkout, "tests/ledger/test_recovery.py", "test_recovery_leaves_settled_retrying_and_live_work_alone")


def test_m24_no_dead_letter_is_deleted_however_old_it_is(checkout: Path) -> None:
    proven_by(checkout, "tests/ledger/test_guards.py", "test_only_completed_delivered_superseded_or_discarded_rows_can_be_deleted")
    proven_by(
        checkout,
        "tests/ledger/test_retention.py",
        "test_command_with_an_unfinished_effect_is_not_purged",
        "test_a_command_that_is_not_done_stays_with_its_delivery",
    )


def test_each_of_the_24_mistakes_has_its_test() -> None:
    numbers = [int(name[6:8]) for name in globals() if re.match(r"test_m\d\d_", name)]
    assert numbers == list(MISTAKES)


def test_a_test_that_is_gone_or_skipped_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "@pytest.mark.skip(reason='later')\ndef test_a() -> None:\n    assert 1\ndef test_b() -> None:\n    pass\n"
    )
    for name in ("test_a", "test_b", "test_c"):
        with pytest.raises(AssertionError):
            proven_by(tmp_path, "t.py", name)
