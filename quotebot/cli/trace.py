"""`quotebot trace` and `quotebot why`: the full history of one user action, and the cause of one row's wait."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ledger.operator.explain import why as look
from ledger.operator.trace import find_operations, label_of
from ledger.operator.trace import trace as traced
from quotebot.app.installation import matrix
from quotebot.cli import exits, tables, terminal
from quotebot.cli.terminal import bot_runs
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.execution.executor import INTERNAL_RETRIES
from quotebot.settings import load_settings
from quotebot.views import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.database import Row
    from ledger.ledger import Ledger
    from ledger.operator.explain import Waiting
    from ledger.operator.trace import Trace, TracedEffect

Json = Annotated[bool, Parameter(name="--json", negative="")]
LIMIT: Final = 100

# Columns that may be shown: no payload, no response, no error text. `quotebot dead show` and `quotebot why` show those.
OPERATION: Final = (
    *("id", "operation_key", "correlation_id", "source", "source_request_id", "action_kind", "aggregate_id"),
    *(
        "aggregate_version",
        "pinned_version",
        "actor",
        "actor_type",
        "team_id",
        "state",
        "outcome",
        "category",
        "attempts",
        "claims",
    ),
    *("cycle", "replaces_id", "received_at", "created_at", "claimed_at", "next_attempt_at", "finished_at", "retain_until"),
)
DELIVERY: Final = ("id", "source", "source_request_id", "action_kind", "seen", "received_at", "last_seen_at")
EVENT: Final = (
    *("id", "at", "event_type", "aggregate_id", "effect_id", "actor", "actor_type", "retry_count", "failure_category"),
    "recovery_action",
)
EFFECT: Final = (
    *(
        "id",
        "effect_key",
        "class",
        "target",
        "semantics",
        "state",
        "category",
        "attempts",
        "claims",
        "cycle",
        "parent_id",
        "after_id",
    ),
    *("maybe_sent", "external_ref", "created_at", "claimed_at", "next_attempt_at", "finished_at"),
)
ATTEMPT: Final = (
    *("cycle", "fence", "epoch", "kind", "started_at", "ended_at", "outcome", "http_status", "category", "retry_after_ms"),
    "delay_ms",
)


async def trace(reference: str, *, json_output: Json = False) -> int:
    """Show everything about one request.

    Exit status: 0 found, 4 nothing has that name.

    Parameters
    ----------
    reference
        The short reference that people were told (c-7f91ab12), an operation key or its first eight digits or more, op12,
        an effect's id, or a quote.
    json_output
        Print JSON.
    """
    name = quote_or(reference)
    async with terminal.existing_ledger() as ledger:
        found = await ledger.database.read(
            lambda tx: [traced(tx, row) for row in find_operations(tx, name, LIMIT)],
        )
    if not found:
        return exits.complain(
            f"Nothing is called {reference}: give a c-..., an operation key, op12, an effect's id or a quote.",
            exits.NOTHING_MATCHED,
        )
    if json_output:
        tables.print_json({"actions": [public(each) for each in found]})
        return exits.OK
    for each in reversed(found):  # in chronological order
        _print_tree(each)
    if len(found) == LIMIT:
        exits.complain(f"These are the newest {LIMIT}.")
    elif len(found) > 1 and name == reference and not name.startswith("Q-"):
        exits.complain(f"{len(found)} actions are called {reference}; give more digits of the key for one of them.")
    return exits.OK


async def why(reference: str, *, json_output: Json = False) -> int:
    """Explain what a job is waiting for.

    Exit status: 0 it is there, 4 there is no such row, 64 that is no id.

    Parameters
    ----------
    reference
        An effect's id (118), a command's (op12), or the short reference that people were told (c-7f91ab12).
    json_output
        Print JSON.
    """
    attempts = budget()
    async with terminal.existing_ledger() as ledger:
        now, runs = ledger.clock.now_ms(), await bot_runs(ledger)
        if reference.startswith("c-"):
            found = await look_up(ledger, reference)
            if len(found) > 1:
                ids = ", ".join(f"op{row['id']}" for row in found)
                return exits.complain(f"{reference} means {len(found)} commands: {ids}. Name one of them.", exits.USAGE)
            reference = f"op{found[0]['id']}" if found else reference
            if not found:
                return exits.complain(f"There is no command {reference}. See: quotebot ops list", exits.NOTHING_MATCHED)
        try:
            told = await ledger.database.read(lambda tx: look(tx, reference, now, budget=attempts, bot_runs=runs))
        except ValueError as error:
            return exits.complain(f"{error}.", exits.USAGE)
    if told is None:
        return exits.complain(f"There is no {reference}. See: quotebot ops list, quotebot dead list", exits.NOTHING_MATCHED)
    if json_output:
        tables.print_json({"waiting": public_wait(told)})
        return exits.OK
    sentence, remedy = waits.explain(told)
    print(sentence)
    if remedy is not None:
        print(f"To do: {remedy}")
    return exits.OK


def budget() -> Callable[[str], int]:
    """Return a function that gives the attempts of an effect class by the retry matrix in force, or of an `operation`."""
    lines = matrix(load_settings())
    return lambda name: 1 + (INTERNAL_RETRIES if name == "operation" else lines.of(name).retries)


def quote_or(reference: str) -> str:
    """Return a quote's id in its stored form, for any accepted spelling; any other text stripped."""
    return parse_quote_id(reference) or reference.strip()


def public_operation(row: Row) -> dict[str, Any]:
    """Return a command in its JSON form."""
    return {"label": label_of(row), **pick(row, OPERATION)}


def public(found: Trace) -> dict[str, Any]:
    """Return an action in its JSON form."""
    return {
        "operation": public_operation(found.operation),
        "delivery": None if found.delivery is None else pick(found.delivery, DELIVERY),
        "attempts": [pick(row, ATTEMPT) for row in found.attempts],
        "events": [pick(row, EVENT) for row in found.events],
        "effects": [
            {**pick(effect.row, EFFECT), "attempts_made": [pick(row, ATTEMPT) for row in effect.attempts]}
            for effect in found.effects
        ],
    }


def public_wait(found: Waiting) -> dict[str, Any]:
    """Return a wait in its JSON form."""
    sentence, remedy = waits.explain(found)
    return {
        "reference": found.facts.reference,
        "cause": found.cause,
        "sentence": sentence,
        "remedy": remedy,
        "until": found.until,
        "behind": found.behind,
    }


def pick(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    """Return some columns of a row."""
    return {name: row[name] for name in names}


def _print_tree(found: Trace) -> None:
    operation = found.operation
    began = operation["created_at"]
    ended = operation["outcome"] or operation["state"]
    tree = Tree(
        Text(
            f"{operation['correlation_id']}  op{operation['id']}  {operation['action_kind']} on {operation['aggregate_id']} "
            f"by {operation['actor']}: {ended}"
        )
    )
    _leaf(tree, began, began, "label", label_of(operation))
    _leaf(tree, began, began, "delivery", _delivery_words(found.delivery))
    owned = {effect.row["id"] for effect in found.effects}
    happened = [(row["at"], "audit", _event_words(row)) for row in found.events if row["effect_id"] not in owned]
    happened += [(row["ended_at"], "attempt", _attempt_words(row)) for row in found.attempts]
    for at, what, words in sorted(happened, key=lambda each: each[0]):
        _leaf(tree, began, at, what, words)
    for effect in found.effects:
        _add_effect(tree, began, effect, found.events)
    width = None if sys.stdout.isatty() else tables.PIPE_WIDTH
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as printed:  # rich would bypass the safe output stream
        console.print(tree)
    print(printed.get(), end="")


def _add_effect(tree: Tree, began: int, effect: TracedEffect, events: tuple[Row, ...]) -> None:
    row = effect.row
    waits = "" if row["after_id"] is None else f", after #{row['after_id']}"
    branch = tree.add(Text(f"effect #{row['id']}  {row['class']} to {row['target']}{waits}: {row['state']}"))
    happened = [(each["at"], "audit", _event_words(each)) for each in events if each["effect_id"] == row["id"]]
    happened += [(each["ended_at"], "attempt", _attempt_words(each)) for each in effect.attempts]
    _leaf(branch, began, row["created_at"], "owed", "")
    for at, what, words in sorted(happened, key=lambda each: each[0]):
        _leaf(branch, began, at, what, words)


def _leaf(tree: Tree, began: int, at: int, what: str, words: str) -> None:
    moment = datetime.fromtimestamp(at / 1000, tz=UTC)
    tree.add(Text(f"{moment:%Y-%m-%d %H:%M:%S}.{at % 1000:03d} UTC {relative(at - began):>10}  {what:8} {words}".rstrip()))


def relative(milliseconds: int) -> str:
    """Return the time since the action was recorded: "+250 ms", "+1.3 s" or "+5 min"."""
    sign = "-" if milliseconds < 0 else "+"
    size = abs(milliseconds)
    if size < tables.UNITS_MS["s"]:
        return f"{sign}{size} ms"
    return f"{sign}{size / 1000:.1f} s" if size < tables.UNITS_MS["m"] else sign + tables.age_words(size)


def _delivery_words(row: Row | None) -> str:
    if row is None:
        return "forgotten: it is kept for 7 days"
    times = "once" if row["seen"] == 1 else f"{row['seen']} times, last {tables.time_words(row['last_seen_at'])}"
    return f"{row['source']} {row['source_request_id']}, seen {times}"


def _event_words(row: Row) -> str:
    extra = [str(row[name]) for name in ("failure_category", "recovery_action") if row[name] is not None]
    return f"{row['event_type']} by {row['actor']}" + (f" ({', '.join(extra)})" if extra else "")


def _attempt_words(row: Row) -> str:
    facts: Mapping[str, str | None] = {
        "status": None if row["http_status"] is None else str(row["http_status"]),
        "category": row["category"],
        "next in": None if row["delay_ms"] is None else f"{row['delay_ms']} ms",
        "asked to wait": None if row["retry_after_ms"] is None else f"{row['retry_after_ms']} ms",
    }
    told = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    took = f"{row['kind']}, took {row['ended_at'] - row['started_at']} ms: {row['outcome']}"
    return f"{took} ({told})" if told else took


async def look_up(ledger: Ledger, reference: str) -> list[Row]:
    """Return the operations that match a reference."""
    return await ledger.database.read(lambda tx: find_operations(tx, quote_or(reference), LIMIT))
