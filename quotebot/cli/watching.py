"""`quotebot ops watch`: live view of the ledger, as one line per change, or as one JSON document per change for a program.

It only reads, on a read-only connection that never waits for the bot. One long-running process is much cheaper than repeated
commands: starting a command takes about 0.3 s of processor time, one poll here about two milliseconds.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from ledger.operator.dead_letters import Filters
from ledger.operator.trace import OperationFilter, list_operations
from quotebot.cli import dead_letter_tables, exits, opened, trace
from quotebot.cli.signals import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.database import Row, Tx

LOOK_SECONDS: Final = 0.25
HEARTBEAT_SECONDS: Final = 10.0  # limit to notice a reader that has gone
LETTER: Final = (
    *("id", "operation_key", "correlation_id", "class", "target", "aggregate_id", "status", "category", "last_error"),
    *("attempts", "first_failed_at", "prior_replay_count", "replayed_by", "state"),
)
GATE: Final = ("name", "state", "cause", "reason", "held_by", "held_at", "until_at")

Picture = dict[str, Any]


async def watch(
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=200))] = 20,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Follow commands, their effects, and dead letters, until Ctrl-C: a line for each change, within a quarter of a second.

    Parameters
    ----------
    limit
        Look at this many commands: the unfinished, then dead letters, then the newest.
    json_output
        Print the whole picture as one line of JSON at every change, and every 10 seconds without one.
    """
    stop = stop_on_signals()
    loop = asyncio.get_running_loop()
    shown: Picture | None = None
    printed_at = loop.time()
    async with opened.existing_ledger() as ledger:
        while not stop.is_set():
            seen = await ledger.database.read(lambda tx: picture(tx, limit))
            now = ledger.clock.now_ms()
            if json_output and (seen != shown or loop.time() - printed_at >= HEARTBEAT_SECONDS):
                print(json.dumps({"schema_version": 1, "now": now, **seen}), flush=True)
                printed_at = loop.time()
            elif not json_output:
                for line in changes(shown, seen, now):
                    print(line, flush=True)
            shown = seen
            try:
                await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue
    return exits.OK


def picture(tx: Tx, limit: int) -> Picture:
    """Return one snapshot: totals of unfinished rows, commands with their effects, dead letters, and held classes.

    It contains no payload and no customer name; errors are those of `quotebot dead list`.
    """
    given_up = tx.all("newest_dead_letters", **Filters().parameters(), limit=limit)
    return {
        "unfinished": {f"{row['kind']} {row['state']}": row["found"] for row in tx.all("measure_unfinished", now=0)},
        "operations": [_operation(tx, row) for row in list_operations(tx, OperationFilter(), limit)],
        "dead_letters": [_dead_letter(row) for row in given_up],
        "gates": [trace.pick(row, GATE) for row in tx.all("all_gates") if row["state"] != "flowing"],
    }


def changes(before: Picture | None, after: Picture, now: int) -> Iterator[str]:
    """Yield a line for each new or changed row; for the first snapshot only the unfinished, dead or held rows."""
    moment = f"{datetime.fromtimestamp(now / 1000, tz=UTC):%H:%M:%S}"
    old = {} if before is None else {name: words for name, words, _ in _rows(before)}
    here = set()
    for name, words, done in _rows(after):
        here.add(name)
        if old.get(name) != words and not (before is None and done):
            yield f"{moment}  {name:8} {words}"
    for gate in [] if before is None else before["gates"]:
        if gate["name"] not in here:
            yield f"{moment}  {gate['name']:8} flows again"


def _rows(seen: Picture) -> Iterator[tuple[str, str, bool]]:
    """Yield each row's name, its text, and true if it will not change any more."""
    for operation in reversed(seen["operations"]):
        ended = operation["outcome"] or operation["state"]
        words = f"{operation['action_kind']} on {operation['aggregate_id']} by {operation['actor']}: {ended}"
        yield operation["id"], words + _tries(operation), operation["state"] in _ENDED
        for effect in operation["effects"]:
            told = f"  {effect['class']} to {effect['target']}: {effect['state']}"
            yield str(effect["id"]), told + _tries(effect), effect["state"] in _ENDED
    for gate in seen["gates"]:
        yield gate["name"], f"is {gate['state'].replace('_', ' ')}: {gate['reason'] or gate['cause']}", False


_ENDED: Final = frozenset({"completed", "delivered", "superseded", "discarded"})


def _tries(row: Picture) -> str:
    if not row["attempts"] or row["next_attempt_at"] is None:
        return ""
    why = "" if row["category"] is None else f" ({row['category']})"
    return f", {row['attempts']} failed{why}, next at {dead_letter_tables.time_words(row['next_attempt_at'])}"


def _operation(tx: Tx, row: Row) -> Picture:
    effects = [trace.pick(effect, trace.EFFECT) for effect in tx.all("effects_of_operation", operation_id=row["id"])]
    return {**trace.pick(row, trace.OPERATION), "id": f"op{row['id']}", "effects": effects}


def _dead_letter(row: Row) -> Picture:
    reference = f"op{row['id']}" if row["kind"] == "operation" else str(row["id"])
    return {**trace.pick(row, LETTER), "id": reference}
