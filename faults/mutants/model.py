"""Seeded bugs in the ledger, each a small patch of this process: the model must find every one. `python -m faults.mutants.model`.

A patch names the exact text it replaces, so a patch that no longer fits raises an error instead of seeding nothing.
"""

from __future__ import annotations

import argparse
import functools
import logging
import sys
from collections.abc import Callable  # noqa: TC003 -- BUGS is subscripted with it at import
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from faults.lab.processes import BrokenError, in_a_fork
from faults.suites.model import BLOCKS, empty_ledger, run_block
from ledger import recovery, settlement
from ledger.audit import events
from ledger.claims import Suspects
from ledger.gates import Gate, Gates
from ledger.sqlite.engine import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.records import Effect


def put(owner: object, name: str, value: object) -> None:
    """Replace the attribute `name` of `owner` by `value`. Raises LookupError if there is none."""
    if not hasattr(owner, name):
        raise LookupError(f"{owner!r} has no {name}: the planted bug has to follow")
    setattr(owner, name, value)


def edit(name: str, old: str, new: str) -> Callable[[], None]:
    """Return a bug that replaces `old` in the statement of that name, in every ledger opened from then on."""

    def plant() -> None:
        honest: Any = SqliteDatabase.open

        async def opened(cls: type[SqliteDatabase], /, path: Path, **options: Any) -> SqliteDatabase:
            text = options["statements"][name]
            if text.count(old) != 1:
                raise LookupError(f"{old!r} is in {name} {text.count(old)} times, not once: the planted bug has to follow")
            statements = {**options["statements"], name: text.replace(old, new)}
            database: SqliteDatabase = await honest.__func__(cls, path, **{**options, "statements": statements})
            return database

        put(SqliteDatabase, "open", classmethod(opened))

    return plant


def append_sent_again_after_a_crash() -> None:
    """An effect in flight at a crash is sent again without a check."""
    honest = recovery._release_effect  # noqa: SLF001 -- a seeded bug

    def release(ledger: Any, tx: Any, now: int, effect: Effect, why: Any) -> None:
        honest(ledger, tx, now, replace(effect, semantics="keyed"), why)

    put(recovery, "_release_effect", release)


def poison_never_failed() -> None:
    """A row that kills every process is retried for ever."""
    put(recovery, "POISON_CLAIMS", 10**9)


def suspects_not_looked_up() -> None:
    """A row that was claimed at two crashes is never tried."""
    put(Suspects, "look", lambda _self, _tx: None)


def held_class_claimed() -> None:
    """A pause has no effect."""
    put(Gates, "flowing", lambda _self, _name: True)


def login_not_tried_again_after_a_restart() -> None:
    """A new secret has no effect until a person resumes the class."""
    put(recovery, "_try_logins_again", lambda _ledger, _tx, _now: None)


def half_open_by_itself() -> None:
    """The end of a wait releases all effects of an outage at once."""
    honest = Gate.lift
    put(Gate, "lift", lambda self, now, *, by_person=False: replace(honest(self, now, by_person=by_person), state="flowing"))


def claim_not_audited() -> None:
    """One change in the ledger leaves no event."""
    honest = events.Audit.of_effect

    def of_effect(self: Any, tx: Any, at: int, event_type: str, effect: Effect, **details: Any) -> None:
        if event_type != "effect.claimed":
            honest(self, tx, at, event_type, effect, **details)

    put(events.Audit, "of_effect", of_effect)


def every_head_sealed_as_one_chain() -> None:
    """The end of a chain is sealed under another chain's name."""
    honest = events._sealed  # noqa: SLF001 -- a seeded bug
    put(events, "_sealed", lambda key_id, key, name, head: {**honest(key_id, key, "system", head), "aggregate_id": name})


def settlement_not_weighed() -> None:
    """A failed update is repeated over a newer one, and a login refused before the last resume pauses the class again."""
    put(settlement, "adjust", lambda _tx, _now, _effect, verdict: verdict)


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
    "append sent again after a crash": append_sent_again_after_a_crash,
    "poison never buried": poison_never_failed,
    "suspects not looked up": suspects_not_looked_up,
    "held class claimed": held_class_claimed,
    "login not tried again after a restart": login_not_tried_again_after_a_restart,
    "outage let through at once": half_open_by_itself,
    "claim not audited": claim_not_audited,
    "head sealed as another chain's": every_head_sealed_as_one_chain,
    "settlement not weighed": settlement_not_weighed,
}


@dataclass(frozen=True, slots=True)
class Hunted:
    """Result of a hunt: the number of steps, and the block in which model and ledger disagreed; None if they never did."""

    steps: int
    block: int | None


def hunt(plant: Callable[[], None]) -> Hunted:
    """Seed a bug in this process and run blocks until one disagrees."""
    plant()
    steps = 0
    with empty_ledger() as template:
        for number in range(1, BLOCKS["change"] + 1):
            report = run_block(number, template, shrink=False)
            steps += report.counts["steps"]
            if report.violations:
                return Hunted(steps, number)
    return Hunted(steps, None)


@functools.cache
def agrees(block: int) -> bool:
    """Tell whether model and ledger agree on this block without a bug; most bugs are found in the same few blocks."""
    with empty_ledger() as template:
        return not run_block(block, template, shrink=False).violations


def hunt_apart(name: str) -> str:
    """Hunt in a fork, so that the bug ends with it; return "found after ...", or another result as a sentence."""
    try:
        hunted = in_a_fork(lambda: hunt(BUGS[name]))
    except BrokenError as error:
        return f"could not be planted, or broke the hunt: {str(error).strip().rpartition(chr(10))[2]}"
    if hunted.block is None:
        return "NOT FOUND"
    if not agrees(hunted.block):
        return f"block {hunted.block} disagrees without it, too"
    return f"found after {hunted.steps:,} steps"


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
