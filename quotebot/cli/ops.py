"""`quotebot ops list|show|watch|cancel`: the commands recorded in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ledger.operator.actions import cancel_effect, cancel_operation
from ledger.operator.explain import operation_facts, waiting
from ledger.operator.trace import OperationFilter
from ledger.operator.trace import list_operations as listed
from ledger.operator.trace import trace as traced
from quotebot.cli import dead_letter_tables, exits, opened, rulings, tables, terminal, trace, watching
from quotebot.cli.following import bot_runs
from quotebot.execution.transaction import failure_answer
from quotebot.views import messages, waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.database import Row, Tx
    from ledger.ledger import Ledger
    from ledger.operator.actions import Ruling
    from ledger.records import EffectIntent, Operation

app = App(name="ops", help="Look at the commands that the ledger remembers, and cancel what has not begun.")
app.command(watching.watch)

Json = Annotated[bool, Parameter(name="--json", negative="")]
State = Literal["reserved", "in_progress", "failed_retryable", "failed_terminal", "completed", "discarded"]


@app.command(name="list")
async def list_operations(
    *,
    state: State | None = None,
    quote: str | None = None,
    actor: str | None = None,
    kind: str | None = None,
    since: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 50,
    json_output: Json = False,
) -> int:
    """List commands: the unfinished first, then dead letters, then what is done; the newest of each first.

    Parameters
    ----------
    state
        Only those in this state.
    quote
        Only those about this quote, e.g. Q-2026-0042, and the one that created it.
    actor
        Only those of this person, by Slack user id.
    kind
        Only of this kind, e.g. quote.submit.
    since
        Only those that came in the last 90s, 30m, 2h or 7d.
    limit
        At most this many.
    json_output
        Print JSON.
    """
    try:
        since_ms = dead_letter_tables.duration_ms(since)
    except ValueError as error:
        exits.complain(f"{error}.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        now = ledger.clock.now_ms()
        choice = OperationFilter(
            state=state,
            aggregate_id=None if quote is None else trace.quote_or(quote),
            actor=actor,
            action_kind=kind,
            since=None if since_ms is None else now - since_ms,
        )
        found = await ledger.database.read(lambda tx: listed(tx, choice, limit + 1))
    shown, more = found[:limit], len(found) > limit
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, "operations": [_public(row) for row in shown], "more": more})
        return exits.OK
    if not shown:
        exits.complain("No commands.")
    else:
        _print_table(shown, now)
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
    async with opened.existing_ledger() as ledger:
        found = await trace.look_up(ledger, reference)
        if len(found) != 1:
            return _not_one(reference, found, ledger.clock.now_ms())
        now, runs, attempts = ledger.clock.now_ms(), await bot_runs(ledger), trace.budget()("operation")
        action, told = await ledger.database.read(
            lambda tx: (traced(tx, found[0]), waiting(operation_facts(tx, found[0], now, attempts, bot_runs=runs)))
        )
    facts = trace.public(action)
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, **facts, "waiting": trace.public_wait(told)})
        return exits.OK
    for name, value in facts["operation"].items():
        print(f"{name:20} {f'op{value}' if name == 'id' else dead_letter_tables.for_people(name, value)}")
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
        why = rulings.reason_of(reason)
    except ValueError as error:
        exits.complain(f"{error}. Nothing was cancelled.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        if reference.removeprefix("#").isdigit() and len(reference) <= len(str(dead_letter_tables.ROW_ID_MAX)):
            ruling = await give_up_effect(ledger, int(reference.removeprefix("#")), who, why)
        else:
            found = await trace.look_up(ledger, reference)
            if len(found) != 1:
                return _not_one(reference, found, ledger.clock.now_ms())
            ruling = await give_up_operation(ledger, found[0]["id"], who, why)
    return rulings.report(ruling, json_output=json_output)


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
    now, follow = ledger.clock.now_ms(), dead_letter_tables.follow(ledger)
    return await ledger.database.write(
        "cancel", lambda tx: cancel_effect(ledger, tx, row_id, actor=actor, reason=reason, now=now, follow=follow)
    )


def _not_one(reference: str, found: Sequence[Row], now: int) -> int:
    if not found:
        exits.complain(f"There is no command {reference}: use op12, c-7f91ab12 or a key, as `quotebot ops list` shows them.")
        return exits.NOTHING_MATCHED
    exits.complain(f"{reference} means {len(found)} commands. Nothing was done. Name one of them:")
    _print_table(found, now)
    return exits.USAGE


def _public(row: Row) -> dict[str, Any]:
    facts = trace.pick(row, trace.OPERATION)
    return {**facts, "id": f"op{facts['id']}"}


def _print_table(rows: Sequence[Row], now: int) -> None:
    tables.print_table(
        ("ID", "Ref", "State", "Kind", "About", "Who", "Tries", "Age", "Next try", "Why"),
        [
            (
                f"op{row['id']}",
                row["correlation_id"],
                row["outcome"] or row["state"],
                row["action_kind"],
                row["aggregate_id"],
                row["actor"],
                str(row["attempts"]),
                dead_letter_tables.age_words(now - row["created_at"]),
                "-" if row["next_attempt_at"] is None else _in(row["next_attempt_at"] - now),
                row["category"] or "",
            )
            for row in rows
        ],
    )


def _in(milliseconds: int) -> str:
    return "due" if milliseconds <= 0 else f"in {dead_letter_tables.age_words(milliseconds)}"
