"""`quotebot ops list|show|watch|cancel`: the commands recorded in the ledger."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ledger.operator.actions import cancel_effect, cancel_operation
from ledger.operator.dead_letters import Filters
from ledger.operator.explain import effect_facts, operation_facts, waiting
from ledger.operator.trace import OperationFilter, label_of, list_effects
from ledger.operator.trace import list_operations as listed
from ledger.operator.trace import trace as traced
from quotebot.cli import exits, tables, terminal, trace
from quotebot.cli.children import stop_on_signals
from quotebot.cli.terminal import bot_runs
from quotebot.execution.executor import failure_answer
from quotebot.views import messages, waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ledger.database import Row, Tx
    from ledger.ledger import Ledger
    from ledger.operator.actions import Ruling
    from ledger.operator.explain import Waiting
    from ledger.records import EffectIntent, Operation

POLL_SECONDS: Final = 0.25
HEARTBEAT_SECONDS: Final = 10.0  # limit to notice a reader that has gone
LETTER: Final = (
    *("id", "operation_key", "correlation_id", "class", "target", "aggregate_id", "status", "category", "last_error"),
    *("attempts", "first_failed_at", "prior_replay_count", "replayed_by", "state"),
)
GATE: Final = ("name", "state", "cause", "reason", "held_by", "held_at", "until_at")

Picture = dict[str, Any]
_ENDED: Final = frozenset({"completed", "delivered", "superseded", "discarded"})
app = App(name="ops", help="List recorded commands, retry or cancel them")
app.command("quotebot.cli.resubmit:resubmit")
Json = Annotated[bool, Parameter(name="--json", negative="")]
CommandState = Literal["reserved", "in_progress", "failed_retryable", "failed_terminal", "completed", "discarded"]
EffectState = Literal["pending", "in_flight", "uncertain"]


@app.command
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
    async with terminal.existing_ledger() as ledger:
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
                await asyncio.wait_for(stop.wait(), POLL_SECONDS)
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
        "operations": [_operation(tx, row) for row in listed(tx, OperationFilter(), limit)],
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


def _tries(row: Picture) -> str:
    if not row["attempts"] or row["next_attempt_at"] is None:
        return ""
    why = "" if row["category"] is None else f" ({row['category']})"
    return f", {row['attempts']} failed{why}, next at {tables.time_words(row['next_attempt_at'])}"


def _operation(tx: Tx, row: Row) -> Picture:
    effects = [trace.pick(effect, trace.EFFECT) for effect in tx.all("effects_of_operation", operation_id=row["id"])]
    return {**trace.pick(row, trace.OPERATION), "id": f"op{row['id']}", "effects": effects}


def _dead_letter(row: Row) -> Picture:
    reference = f"op{row['id']}" if row["kind"] == "operation" else str(row["id"])
    return {**trace.pick(row, LETTER), "id": reference}


@app.command(name="list")
async def list_operations(
    *,
    state: CommandState | EffectState | None = None,
    effect_class: Annotated[str | None, Parameter(name="--class")] = None,
    quote: str | None = None,
    actor: str | None = None,
    kind: str | None = None,
    since: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 50,
    json_output: Json = False,
) -> int:
    """List commands, and the effects that wait, are blocked, under way or uncertain.

    Commands: the unfinished first, then dead letters, then what is done; the newest of each first. Effects: the oldest first.

    Parameters
    ----------
    state
        Only those in this state: of commands, or (pending, in_flight, uncertain) of effects.
    effect_class
        Only effects of this class, e.g. crm.create.
    quote
        Only those about this quote, e.g. Q-2026-0042, and the command that created it.
    actor
        Only those of this person, by Slack user id, and their effects.
    kind
        Only of this kind, e.g. quote.submit, and their effects.
    since
        Only those that came in the last 90s, 30m, 2h or 7d.
    limit
        At most this many of each.
    json_output
        Print JSON.
    """
    try:
        since_ms = terminal.duration_ms(since)
        terminal.checked_class(effect_class)
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    of_effects = effect_class is not None or state in get_args(EffectState)
    async with terminal.existing_ledger() as ledger:
        now, runs, attempts = ledger.clock.now_ms(), await bot_runs(ledger), trace.budget()
        choice = OperationFilter(
            state=state,
            aggregate_id=None if quote is None else trace.quote_or(quote),
            actor=actor,
            action_kind=kind,
            since=None if since_ms is None else now - since_ms,
        )
        found = [] if of_effects else await ledger.database.read(lambda tx: listed(tx, choice, limit + 1))
        effects = await ledger.database.read(
            lambda tx: [
                _effect(row, operation, waiting(effect_facts(tx, row, now, attempts(row["class"]), bot_runs=runs)))
                for row, operation in ([] if state in get_args(CommandState) else list_effects(tx, choice, effect_class, limit + 1))
            ]
        )
    shown, more = found[:limit], max(len(found), len(effects)) > limit
    if json_output:
        operations = [{**trace.public_operation(row), "id": f"op{row['id']}"} for row in shown]
        tables.print_json({"operations": operations, "effects": effects[:limit], "more": more})
        return exits.OK
    if not shown and not effects:
        exits.complain("No effects wait." if of_effects else "No commands.")
    if shown:
        _print_table(shown, now)
    if effects:
        print(end="\n" if shown else "")
        _print_effects(effects[:limit], now)
    if more:
        exits.complain(f"There are more than these {limit}: see them with a larger --limit.")
    return exits.OK


@app.command
async def show(reference: str, *, json_output: Json = False) -> int:
    """Show one command, its effects, and what it waits for.

    Parameters
    ----------
    reference
        op12, its key or the first eight digits of it, or the short reference that people were told (c-7f91ab12).
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        found = await trace.look_up(ledger, reference)
        if len(found) != 1:
            return not_one(reference, found, ledger.clock.now_ms())
        now, runs, attempts = ledger.clock.now_ms(), await bot_runs(ledger), trace.budget()("operation")
        action, told = await ledger.database.read(
            lambda tx: (traced(tx, found[0]), waiting(operation_facts(tx, found[0], now, attempts, bot_runs=runs)))
        )
    facts = trace.public(action)
    if json_output:
        tables.print_json({**facts, "waiting": trace.public_wait(told)})
        return exits.OK
    for name, value in facts["operation"].items():
        print(f"{name:20} {f'op{value}' if name == 'id' else tables.for_people(name, value)}")
    sentence, remedy = waits.explain(told)
    print(f"{'waiting':20} {sentence}")
    if action.effects:
        rows = [effect.row for effect in action.effects]
        print()
        tables.print_table(
            ("Effect", "Class", "State", "Tries", "Target"),
            [(str(row["id"]), row["class"], row["state"], str(row["attempts"]), row["target"]) for row in rows],
        )
    if remedy is not None:
        exits.complain(f"\nTo do: {remedy}")
    return exits.OK


@app.command
async def cancel(
    reference: str,
    *,
    reason: str,
    actor: Annotated[str | None, Parameter(name="--as")] = None,
    json_output: Json = False,
) -> int:
    """Cancel a command that was not executed yet, or an effect that waits. Its person is told; nothing is deleted.

    Exit status: 0 cancelled, 3 it is too late (and why), 4 there is no such row.

    Parameters
    ----------
    reference
        A command (op12, c-7f91ab12, its key) or an effect (118).
    reason
        Why, for the audit and for the person who asked.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    json_output
        Print JSON.
    """
    try:
        who = terminal.operator(actor)
        why = terminal.reason_of(reason)
    except ValueError as error:
        return exits.complain(f"{error}. Nothing was cancelled.", exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        if reference.removeprefix("#").isdigit() and len(reference) <= len(str(terminal.ROW_ID_MAX)):
            ruling = await give_up_effect(ledger, int(reference.removeprefix("#")), who, why)
        else:
            found = await trace.look_up(ledger, reference)
            if len(found) != 1:
                return not_one(reference, found, ledger.clock.now_ms())
            ruling = await give_up_operation(ledger, found[0]["id"], who, why)
    return tables.report(ruling, json_output=json_output)


async def give_up_operation(ledger: Ledger, row_id: int, actor: str, reason: str) -> Ruling:
    """Cancel a command that was not executed yet, and enqueue a reply to its author."""
    now = ledger.clock.now_ms()

    def answer(tx: Tx, operation: Operation, why: str) -> tuple[Mapping[str, Any], Sequence[EffectIntent]]:
        told = f"It was cancelled by an operator: {why}"
        quote_id = None if operation.aggregate_id == "new" else operation.aggregate_id
        text = messages.terminal(told, operation.correlation_id, quote_id)
        return {"code": "cancelled", "quote_id": quote_id, "text": text}, failure_answer(tx, operation, told, now)

    ruling = await ledger.database.write(
        "cancel", lambda tx: cancel_operation(ledger, tx, row_id, actor=actor, reason=reason, now=now, answer=answer)
    )
    ledger.operations_changed.set()
    return ruling


async def give_up_effect(ledger: Ledger, row_id: int, actor: str, reason: str) -> Ruling:
    """Cancel a pending effect."""
    now, follow = ledger.clock.now_ms(), terminal.follow(ledger)
    return await ledger.database.write(
        "cancel", lambda tx: cancel_effect(ledger, tx, row_id, actor=actor, reason=reason, now=now, follow=follow)
    )


def _effect(row: Row, operation: Row, wait: Waiting) -> Picture:
    """Return an effect that is not done in its JSON form: the effect, the name of its command, and the cause of its wait."""
    found = trace.public_wait(wait)
    words = {name: found[name] for name in ("cause", "sentence", "remedy", "until", "behind")}
    named = {"correlation_id": row["correlation_id"], "quote": row["aggregate_id"], "label": label_of(operation)}
    return {**trace.pick(row, trace.EFFECT), **named, "operation": f"op{operation['id']}", "waiting": words}


def _print_effects(effects: Sequence[Picture], now: int) -> None:
    tables.print_table(
        ("ID", "Ref", "State", "Class", "Quote", "Tries", "Age", "Next try", "Cause", "Label", "Waits for"),
        [
            (
                str(effect["id"]),
                effect["correlation_id"],
                effect["state"],
                effect["class"],
                effect["quote"],
                str(effect["attempts"]),
                tables.age_words(now - effect["created_at"]),
                _next_try(effect["next_attempt_at"], now),
                effect["waiting"]["cause"],
                effect["label"],
                effect["waiting"]["sentence"],
            )
            for effect in effects
        ],
    )


def _next_try(due: int | None, now: int) -> str:
    return "-" if due is None else "due" if due <= now else f"in {tables.age_words(due - now)}"


def not_one(reference: str, found: Sequence[Row], now: int) -> int:
    """Report a reference that means no command, or several."""
    if not found:
        return exits.complain(
            f"There is no command {reference}: use op12, c-7f91ab12 or a key, as `quotebot ops list` shows them.",
            exits.NOTHING_MATCHED,
        )
    exits.complain(f"{reference} means {len(found)} commands. Nothing was done. Name one of them:")
    _print_table(found, now)
    return exits.USAGE


def _print_table(rows: Sequence[Row], now: int) -> None:
    tables.print_table(
        ("ID", "Ref", "State", "Label", "Tries", "Age", "Next try", "Why"),
        [
            (
                f"op{row['id']}",
                row["correlation_id"],
                row["outcome"] or row["state"],
                label_of(row),
                str(row["attempts"]),
                tables.age_words(now - row["created_at"]),
                _next_try(row["next_attempt_at"], now),
                row["category"] or "",
            )
            for row in rows
        ],
    )
