"""Tests that every named scenario holds, and that their list equals the list of the specification."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, get_args

import pytest

from faults.drill import Outcome, UnknownDrillError, chosen, play, play_all, summary
from faults.report.reports import Report, keep
from faults.scenarios import SCENARIOS, Scenario
from faults.scenarios.stage import Mode, Stage, amended
from quotebot.sandbox.cluster import find_programs

if TYPE_CHECKING:
    from pathlib import Path

P0 = {"FI-001", "FI-002", "FI-010", "FI-011", "FI-016", "FI-017", "FI-018", "FI-021", "FI-022"}
P2 = {"FI-004"}
NAMES = [f"FI-{number:03}" for number in range(1, 23)] + [f"D-{number}" for number in range(1, 8)]
PLAYED = [scenario for scenario in SCENARIOS if scenario.play is not None]


def test_the_list_is_that_of_the_specification() -> None:
    assert [scenario.id for scenario in SCENARIOS] == NAMES
    assert {each.id: each.priority for each in SCENARIOS} == {
        name: "P0" if name in P0 else "P2" if name in P2 else "P1" for name in NAMES
    }


def test_every_kind_of_failure_is_among_them_and_no_other() -> None:
    assert {mode for scenario in SCENARIOS for mode in scenario.modes} == set(get_args(Mode))


def test_no_scenario_waits_for_a_part_of_the_product() -> None:
    assert {each.id: each.waits_for for each in SCENARIOS if each.play is None or each.waits_for} == {}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.id)
async def test_a_named_scenario_holds(scenario: Scenario, tmp_path: Path) -> None:
    outcome = await play(scenario, tmp_path / scenario.id)
    counts, _ = summary([outcome])
    keep(Report("drills", counts, () if outcome.state == "held" else (f"python -m faults.drill {scenario.id}",)))
    assert outcome.state == "held", "\n".join(outcome.lines)
    assert not (tmp_path / scenario.id).exists(), "nothing is left of what held"


@pytest.mark.skipif(find_programs() is None and os.environ.get("CI") != "true", reason="no PostgreSQL server is installed")
@pytest.mark.timeout(600)
async def test_a_named_scenario_holds_with_the_ledger_in_a_database(tmp_path: Path) -> None:
    from faults.lab.ledgers import ledger_server  # noqa: PLC0415 -- its driver is an extra

    (scenario,) = chosen(["FI-017"])  # a nightly run plays all of them
    with ledger_server() as server:
        outcome = await play(scenario, tmp_path / scenario.id, server.create_empty())
    assert outcome.state == "held", "\n".join(outcome.lines)


def test_only_the_scenario_of_the_lost_disk_needs_a_ledger_in_a_file() -> None:
    assert [scenario.id for scenario in SCENARIOS if scenario.needs_file] == ["D-5"]


def test_names_priorities_and_all_choose_each_drill_once() -> None:
    assert [each.id for each in chosen(["fi-017", "D-1", "FI-017"])] == ["FI-017", "D-1"]
    assert {each.id for each in chosen(["P0", "FI-001"])} == P0
    assert chosen(["all"]) == SCENARIOS


@pytest.mark.parametrize(("typed", "meant"), [("FI-17", "FI-017"), ("D1", "D-1"), ("fi-0022", "FI-022")])
def test_an_unknown_name_is_answered_with_the_one_that_may_be_meant(typed: str, meant: str) -> None:
    with pytest.raises(UnknownDrillError, match=f"There is no drill {typed}. Did you mean {meant}"):
        chosen([typed])


async def fails(stage: Stage) -> str:
    await stage.start()
    stage.equal("there are two cards", len(await stage.deal.cards()), 2)
    return "never"


WAITING = Scenario("FI-998", "P2", (), "something to come", "Nothing.", "Something.", None, waits_for="a part to come")
FAILING = Scenario("FI-999", "P2", (), "something that is not so", "Nothing.", "Something.", fails)


async def test_what_does_not_hold_is_named_and_its_files_are_kept(tmp_path: Path) -> None:
    told: list[tuple[str, Outcome]] = []
    outcomes = await play_all([WAITING, FAILING], tmp_path, lambda outcome, place: told.append((place, outcome)))
    waiting, failed = outcomes
    assert [place for place, _ in told] == ["[1/2] ", "[2/2] "]
    assert (waiting.state, waiting.words) == ("waiting", "a part to come")
    assert (failed.state, failed.words, failed.evidence) == ("failed", "there are two cards (seen: 0, not 2)", tmp_path / "FI-999")
    assert failed.lines[1:] == (
        "  did not hold: there are two cards (seen: 0, not 2)",
        f"  evidence: {tmp_path / 'FI-999'} (ledger and artefacts in bot/, bot.log, what the world saw in world/, failure.txt)",
        "  again: quotebot drill FI-999",
    )
    kept = {path.name for path in (tmp_path / "FI-999").iterdir()}
    assert {"bot", "bot.log", "world", "failure.txt"} <= kept
    assert (tmp_path / "FI-999" / "bot" / "ledger.db").exists()
    assert summary(outcomes) == ({"held": 0, "failed": 1, "waiting": 1}, "0 held, 1 failed, 1 waiting")


async def audited_otherwise(stage: Stage) -> str:
    await stage.start()
    await stage.deal.complete(stage.deal.slash())
    await stage.audited("quote.create", "reserved claimed quote.created applied")
    await stage.audited("slack.post", "claimed retry_scheduled claimed delivered")
    return "never"


async def test_an_audit_in_another_order_is_named_with_what_was_seen(tmp_path: Path) -> None:
    scenario = Scenario("FI-997", "P2", (), "an audit that is not so", "Nothing.", "Something.", audited_otherwise)
    outcome = await play(scenario, tmp_path / "FI-997")
    seen = "(seen: 'claimed delivered', not 'claimed retry_scheduled claimed delivered')"
    assert (outcome.state, outcome.words) == ("failed", f"the audit of slack.post is exactly this {seen}")


def test_every_failure_of_the_specification_asserts_its_audit() -> None:
    quiet = {"FI-004", "FI-005"}  # they leave no event
    for scenario in SCENARIOS:
        if scenario.id in NAMES[:20] and scenario.id not in quiet:
            assert scenario.play is not None
            assert "stage.audited(" in inspect.getsource(scenario.play), scenario.id


def test_a_scenario_that_no_longer_fits_the_product_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="amend the scenario"):
        amended(tmp_path, "quotebot/views/messages.py", "words that nobody wrote", "")
