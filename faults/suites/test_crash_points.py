"""Tests of all crash points of all scenarios, in shards; and that every command kind and effect class is among them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from adapters.policies import POLICIES
from faults.harness.programs import run
from faults.lab.outcome import difference
from faults.lab.player import Left, Window, left_at, play, play_on, prepared, wrongs
from faults.lab.setting import ram
from faults.scenarios.workflows import STORIES
from faults.suites import crash_points
from faults.suites.crash_points import windows_of
from quotebot import effects
from quotebot.commands.registry import REGISTRY
from quotebot.sandbox.cluster import find_programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faults.lab.simulation import Cell
    from faults.scenarios.workflows import Story

ROOT: Final = Path(__file__).parents[2]
SAME: Final = ("end", "violations", "reached", "kinds", "classes")  # of two plays of one window
SHARDS: Final = 5

# Writes of the product that no scenario passes, and where they are tried instead.
NOT_IN_A_STORY: Final = {
    "access": "one audit row about a refused person, best effort: tests/quotebot/test_access_matrix.py; it owes nothing",
    "audit.keys": "one row of a start on an empty database, repeated by the next: tests/quotebot/app/test_postgres_storage.py",
    "audit.export": "one row, when an operator exports a proof: tests/quotebot/jobs/test_proof.py",
    "audit.rotate_key": "tests/ledger/audit/test_events.py",
    "begin_generation": "one transaction of a stopped bot, after point-in-time recovery: tests/quotebot/app/test_generations.py",
    "fail_operation": "a bug of ours, twice: tests/quotebot/execution/test_executor.py, faults/suites/model_machine.py",
    "clock.confirm": "one audit row, when an operator confirms the clock: tests/quotebot/cli/test_clock.py",
    "drop": "an envelope over 1 MiB: tests/quotebot/slack/test_receiver.py; it owes nothing",
    "forget_steps": "an upload that Slack has lost: tests/quotebot/dispatch/test_uncertain.py, the simulated days",
    "history.bind": "the first start with the ledger of an older build: tests/test_golden_ledgers.py dies at every statement of it",
    "history.bound_from": "its last row, likewise",
    "late_result": "a second process took the row over: faults/suites/storm_second_process.py, faults/suites/model_machine.py",
    "ledger.migrated": "one audit row after a migration: tests/test_golden_ledgers.py dies at every statement of it",
    "ledger.moved": "one audit row before a ledger is sealed: tests/quotebot/app/test_moves.py is killed at every step of a move",
    "ledger.move_undone": "one audit row after a seal was taken off: tests/quotebot/app/test_moves.py; it owes nothing",
    "ledger.rebuild": "one transaction, when derived rows are wrong: tests/quotebot/cli/test_history.py; it owes nothing",
    "name_unread": "one mark of a command that stays due, for a database only: tests/quotebot/app/test_rolling_upgrade.py",
    "payload_shown": "one audit row, when an operator looks at a payload",
    "shelve_operation": "a command of a newer build: tests/quotebot/execution/test_executor.py; nothing changes but its due time",
    "take_pace": "a turn in a channel, for a database only: a death costs that turn; tests/ledger/postgres/test_paces.py",
}


def windows(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("faults.suites.crash_points", *arguments, seconds=580)


@pytest.fixture(scope="session")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the shards write their scenarios' passages: one for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    return (base if "PYTEST_XDIST_WORKER" not in os.environ else base.parent) / "windows"


@pytest.mark.takes(60)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_crash_lost_answer_or_refusal_at_any_crash_point_ends_in_the_golden_state(shard: int, left: Path) -> None:
    done = windows(*[argument for story in STORIES[shard::SHARDS] for argument in ("--only", story.name)], "--left", str(left))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.mark.timeout(600)
def test_sigkill_ends_in_the_same_state_as_an_in_process_crash() -> None:
    command = [sys.executable, "-m", "faults.suites.crash_points", "--only", "finalize", "--apart"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.mark.parametrize("apart", [True, False])
def test_only_a_play_apart_gives_each_bot_a_process_to_kill(apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 -- pytest hands it over
    asked: list[bool] = []

    def played(*_: object, apart: bool = False, **__: object) -> dict[str, Any]:
        asked.append(apart)
        none: dict[str, Any] = dict.fromkeys(("violations", "reached", "untold"), ())
        return {"passages": ["a"], "states": [b"a"], "end": {}, "poisoned": False, "cut_short": False, **none}

    cell: Any = SimpleNamespace(twin=lambda: cell, end=lambda: None)
    monkeypatch.setattr(crash_points, "prepared", lambda *_: nullcontext(cell))
    monkeypatch.setattr(crash_points, "in_a_fork", lambda work: work())
    monkeypatch.setattr(crash_points, "play", played)
    window = Window(0, "a")
    tried = crash_points.try_story(STORIES[0], tmp_path, crash_points.Asked(window, apart=apart))
    assert tried.violations == []
    assert asked == [False, apart]  # the run without faults needs none


@pytest.mark.skipif(find_programs() is None and os.environ.get("CI") != "true", reason="no PostgreSQL server is installed")
@pytest.mark.takes(15)
@pytest.mark.timeout(600)
def test_crash_with_the_ledger_in_a_database_ends_in_the_golden_state() -> None:
    done = windows("--postgres", "--sample", "2", "--recoveries", "1", "--only", "finalize", "--only", "recovery")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert done.stdout.count("2 distinct, 1 in recovery, 0 violations") == 2, done.stdout  # a nightly run tries all


def test_only_the_stories_about_backups_need_a_ledger_in_a_file() -> None:
    assert [story.name for story in STORIES if story.needs_file] == ["back up", "put back"]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of a scenario: any number of cells in that state, and a folder; all of them end with the stack."""

    story: Story
    folder: Path
    cell: Cell
    stack: ExitStack

    def twin(self) -> Cell:
        made = self.cell.twin()
        self.stack.callback(made.end)
        return made

    def play(self, window: Window | None, *, looks: bool = False) -> dict[str, Any]:
        return play(self.twin(), self.story, Path(tempfile.mkdtemp(dir=self.folder)) / "played", window, looks=looks)

    def left_at(self, deaths: Sequence[Window]) -> dict[Window, Left]:
        left = left_at(self.twin(), self.story, self.folder / "left", deaths)
        for each in left.values():
            self.stack.callback(each.cell.end)
        return left

    def again(self, left: Left) -> Left:
        made = left.twin(Path(tempfile.mkdtemp(dir=self.folder)) / "twin")
        self.stack.callback(made.cell.end)
        return made


@contextmanager
def beginning_of(name: str) -> Iterator[Beginning]:
    story = next(story for story in STORIES if story.name == name)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quotebot-windows-", dir=ram())))
        cell = stack.enter_context(prepared(story, folder))
        stack.callback(cell.end)
        yield Beginning(story, folder, cell, stack)


def deaths_of(golden: dict[str, Any]) -> list[Window]:
    return [window for window in windows_of(golden["passages"], golden["states"], every=False) if window.deed == "kill"]


def test_crash_resumed_from_a_snapshot_ends_like_a_full_replay() -> None:
    with beginning_of("finalize") as begun:
        kept = begun.left_at(deaths_of(begun.play(None)))
        assert len(kept) >= 3
        for window, left in kept.items():
            gone_to = begun.play(window)
            gone_on = play_on(left, begun.story)
            assert {name: gone_on[name] for name in SAME} == {name: gone_to[name] for name in SAME}, window


def test_crash_during_recovery_ends_alike_from_a_snapshot_and_from_a_full_replay() -> None:
    with beginning_of("submit") as begun:
        golden = begun.play(None)
        owing = golden["passages"].index("ack:sent") + 1  # from here on no person waits for the bot, and its effects are pending
        first, kept = next(iter(begun.left_at([death for death in deaths_of(golden) if death.index >= owing]).items()))
        looked = play_on(begun.again(kept), begun.story, looks=True)
        passed = looked["recovery"]
        assert looked["end"] == golden["end"]
        assert passed == begun.play(first, looks=True)["recovery"]
        assert "out:slack:chat.update:sent" in passed  # to its end, not the start alone
        seconds = windows_of(passed, looked["states"], every=False)
        for second in (seconds[0].index, seconds[-1].index):
            gone_to = begun.play(replace(first, second=second))
            gone_on = play_on(begun.again(kept), begun.story, second)
            assert {name: gone_on[name] for name in SAME} == {name: gone_to[name] for name in SAME}, passed[second]
        with pytest.raises(AssertionError, match="the second death did not come"):
            play_on(begun.again(kept), begun.story, len(passed))


def test_only_the_ephemeral_reply_may_be_missing_when_its_request_is_cut_off_twice() -> None:
    with beginning_of("refused command") as begun:
        golden = begun.play(None)
        came = begun.play(twice_at("out:slack:response_url:before", begun, golden))
        assert [user for user, _ in came["untold"]] == ["U0REP"]
        assert wrongs(golden, came) == []
        assert [sentence[:26] for sentence in difference(golden["end"], came["end"])] == ['golden: whispers lacks ["U']


@pytest.mark.parametrize(("name", "point"), [("recovery", "file:create"), ("put back", "out:pdf:render:before")])
def test_third_crash_makes_poison_and_the_invariants_hold(name: str, point: str) -> None:
    with beginning_of(name) as begun:  # each begins with a crash
        golden = begun.play(None)
        came = begun.play(twice_at(point, begun, golden))
        assert came["poisoned"]
        assert wrongs(golden, came) == []
        assert not golden["poisoned"]


def twice_at(point: str, begun: Beginning, golden: dict[str, Any]) -> Window:
    """Return a crash at this point that is followed by another one there."""
    first = Window(golden["passages"].index(point), point)
    return replace(first, second=begun.play(first, looks=True)["recovery"].index(point))


MEMBERS: Final = {
    "K0 before reserve": "sql:reserve/insert_operation",
    "K1 after reserve, before ack": "ack:before",
    "K2 after ack, before claim": "ack:sent",
    "K3 claimed, before mutation": "commit:claim_operations:after",
    "K4 each statement of the mutation": "sql:execute/insert_quote",
    "K5 after commit, before dispatch": "commit:execute:after",
    "K6 effect claimed, before the call": "out:slack:chat.postMessage:before",
    "K7 the remote accepted, the result not recorded": "out:salesforce:graph:sent",
    "K8 between the three upload calls": "commit:record_step:after",
    "K9 result recorded, before follow-ups": "commit:settle:after",
    "K10 inside replay": "commit:replay:before",
    "K11 inside purge": "sql:retention.operations/delete_operation",
    "K12 inside a migration": "sql:open/create table",
    "K13 inside a scheduler tick": "sql:schedule/mark_slot",  # reserved, and not yet marked
    "K14 inside recovery": "commit:take_back:before",
    "K15 inside backup": "disk:rename.json",  # the copy has its name, but is no backup yet
    "K15 inside restore": "disk:rename.restored",
    "file steps": "file:rename",
}


@pytest.mark.late
@pytest.mark.timeout(600)
def test_scenarios_cover_all_command_kinds_effect_classes_writes_and_crash_points(left: Path) -> None:
    done = windows("--points", "--left", str(left))  # what no shard has played yet is played now
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, list[str]] = json.loads(done.stdout)
    owed = {value for value in vars(effects).values() if isinstance(value, str) and value in POLICIES}
    passed = {point.split("/")[0].removeprefix("sql:") for point in found["points"] if point.startswith("sql:")}

    assert set(REGISTRY) - set(found["kinds"]) == set()
    assert owed - set(found["classes"]) == set()
    assert written() - passed == set(NOT_IN_A_STORY)
    assert {family for family, point in MEMBERS.items() if point not in found["points"]} == set()


def written() -> set[str]:
    """Return the names of all transactions in the product: the first argument of every `.write("name", ...)`."""
    found = set()
    for package in ("quotebot", "ledger"):
        for module in (ROOT / package).rglob("*.py"):
            if "sandbox" in module.parts:
                continue
            for node in ast.walk(ast.parse(module.read_text("utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "write":
                    continue
                name = node.args[0] if len(node.args) > 1 else None  # a transaction has a name and its work
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    found.add(name.value)
    return found
