"""Seeded bugs in the ledger, each a small patch of this process: the model must find every one. `python -m faults.mutants.model`.

A patch names the exact text it replaces, so a patch that no longer fits raises an error instead of seeding nothing.
"""

from __future__ import annotations

import argparse
import functools
import logging
import sys
from collections.abc import Callable  # noqa: TC003 -- BUGS is subscripted with it at import
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from faults.lab.processes import BrokenError, in_a_fork
from faults.mutants.patching import patch, put, replaced
from faults.suites.model import BLOCKS, empty_ledger, run_block
from ledger import ledger as transitions
from ledger import recovery
from ledger.audit import events
from ledger.claims import Suspects
from ledger.gates import Gate, Gates
from ledger.sqlite.engine import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.records import Effect


def edit(name: str, old: str, new: str) -> Callable[[], None]:
    """Return a bug that replaces `old` in the statement of that name, in every ledger opened from then on."""

    def plant() -> None:
        honest: Any = SqliteDatabase.open

        async def opened(cls: type[SqliteDatabase], /, path: Path, **options: Any) -> SqliteDatabase:
            statements = replaced(options["statements"], name, (old, new))
            return await honest.__func__(cls, path, **{**options, "statements": statements})  # type: ignore[no-any-return] # it is one

        put(SqliteDatabase, "open", classmethod(opened))

    return plant


@patch(recovery, "_release_effect")
def sends_appends_again(honest: Any, ledger: Any, tx: Any, now: int, effect: Effect, why: Any) -> None:
    """An effect in flight at a crash is sent again without a check."""
    honest(ledger, tx, now, replace(effect, semantics="keyed"), why)


@patch(Gate, "lift")
def half_open_by_itself(honest: Any, self: Gate, now: int, *, by_person: bool = False) -> Any:
    """The end of a wait releases all effects of an outage at once."""
    return replace(honest(self, now, by_person=by_person), state="flowing")


@patch(events.Audit, "of_effect")
def claim_not_audited(honest: Any, self: Any, tx: Any, at: int, event_type: str, effect: Effect, **details: Any) -> None:
    """One change in the ledger leaves no event."""
    if event_type != "effect.claimed":
        honest(self, tx, at, event_type, effect, **details)


@patch(events, "_sealed")
def every_head_sealed_as_one_chain(honest: Any, key_id: Any, key: Any, name: str, head: Any) -> Any:
    """The end of a chain is sealed under another chain's name."""
    return {**honest(key_id, key, "system", head), "aggregate_id": name}


BUGS: Final[dict[str, Callable[[], None]]] = {
    "settle without a fence": edit("deliver_effect", "AND fence = :fence", "AND fence >= :fence"),
    "completion without a fence": edit("complete_operation", "AND fence = :fence", "AND fence >= :fence"),
    "step recorded without a fence": edit("record_step", "AND fence = :fence", "AND fence >= :fence"),
    "child not woken": edit("wake_children", "after_id = :id", "after_id = -:id"),
    "children of a dropped one kept waiting": edit("supersede_children", "after_id = :id", "after_id = -:id"),
    "second claim in a lane": edit("due_operations", "older.id < o.id", "older.id < o.id - 1"),
    "order of a lane not kept": edit("due_effects", "older.id < e.id", "older.id > e.id"),
    "claims not counted": edit("claim_effect", "claims = claims + 1", "claims = claims"),
    "attempt burnt by a pause": edit("retry_effect", "attempts = attempts + :spent", "attempts = attempts + 1"),
    "steps lost by a retry": edit("retry_effect", "state = 'pending', epoch", "state = 'pending', steps = '{}', epoch"),
    "due at once after a retry": edit(
        "retry_operation", "next_attempt_at = :next_attempt_at", "next_attempt_at = :now + 0 * :next_attempt_at"
    ),
    "replay in the old cycle": edit("replay_operation", "cycle = cycle + 1", "cycle = cycle"),
    "doubt forgotten by a replay": edit("replay_effect_in_doubt", "state = 'uncertain', cycle", "state = 'pending', cycle"),
    "older update kept": edit("supersede_pending", "AND state = 'pending'", "AND state = 'pending' AND maybe_sent"),
    "reservation as an upsert": edit("insert_operation", "DO NOTHING", "DO UPDATE SET updated_at = excluded.updated_at"),
    "tombstone not found": edit("tombstone", "operation_key = :operation_key", "operation_key = :operation_key AND expires_at < 0"),
    "purged while its quote is busy": edit("aggregate_is_busy", "LIMIT 1", "LIMIT 0"),
    "waits of a clock that was ahead": edit("wake_effects_of_the_future", "updated_at > :now\n", "updated_at > :now + 1e15\n"),
    "append sent again after a crash": sends_appends_again,
    # a row that kills every process is retried for ever
    "poison never buried": partial(put, recovery, "_is_poison", lambda _ledger, _row: False),
    # a row that was claimed at two crashes is never tried
    "suspects not looked up": partial(put, Suspects, "load", lambda _self, _tx: None),
    # a pause has no effect
    "held class claimed": partial(put, Gates, "flowing", lambda _self, _name: True),
    # a new secret has no effect until a person resumes the class
    "login not tried again after a restart": partial(put, recovery, "_try_logins_again", lambda _ledger, _tx, _now: None),
    "outage let through at once": half_open_by_itself,
    "claim not audited": claim_not_audited,
    "head sealed as another chain's": every_head_sealed_as_one_chain,
    # a failed update is repeated over a newer one, and a login refused before the last resume pauses the class again
    "settlement not weighed": partial(put, transitions, "adjust_settlement", lambda _tx, _now, _effect, verdict: verdict),
}


def run_blocks(blocks: Sequence[int]) -> tuple[int, int, str | None]:
    """Run blocks of the model until ledger and model disagree; return the numbers of blocks and steps, and the disagreement."""
    steps = 0
    with empty_ledger() as template:
        for ran, block in enumerate(blocks, start=1):
            report = run_block(block, template, shrink=False)
            steps += report.counts["steps"]
            if report.violations:
                return ran, steps, report.violations[0]
    return len(blocks), steps, None


@functools.cache
def agrees(block: int) -> bool:
    """Tell whether model and ledger agree on this block without a bug; most bugs are found in the same few blocks."""
    return run_blocks([block])[2] is None


def hunt_apart(name: str) -> str:
    """Hunt in a fork, so that the bug ends with it; return "found after ...", or another result as a sentence."""

    def hunt() -> tuple[int, int, str | None]:
        BUGS[name]()
        return run_blocks(range(1, BLOCKS["change"] + 1))

    try:
        block, steps, says = in_a_fork(hunt)
    except BrokenError as error:
        return f"could not be planted, or broke the hunt: {str(error).strip().rpartition(chr(10))[2]}"
    if says is None:
        return "NOT FOUND"
    return f"found after {steps:,} steps" if agrees(block) else f"block {block} disagrees without it, too"


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt each bug; returns 1 if one is not found."""
    parser = argparse.ArgumentParser(prog="python -m faults.mutants.model", description=__doc__)
    parser.add_argument("--only", choices=BUGS, nargs="+", metavar="BUG", help="these bugs; by default all")
    asked = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    missed = 0
    for name in asked.only or BUGS:
        words = hunt_apart(name)
        missed += not words.startswith("found")
        print(f"{name}: {words}", flush=True)  # noqa: T201 -- the command's output
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
