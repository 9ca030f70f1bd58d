"""`quotebot replay`: puts dead letters back to work under the same key, and reports each outcome.

The command only changes the ledger; the running bot delivers. Rows are replayed in batches, each row with its own outcome, so an
interrupted replay continues with the same command: replayed rows are no longer dead letters.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import Progress

from adapters.failures import AdapterError
from ledger.clock import SystemClock
from ledger.gates import family
from ledger.operator.dead_letters import Expectation, Filters, Replay, ReplayPreview
from quotebot.app.installation import dead_letters
from quotebot.cli import exits, tables, terminal
from quotebot.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from ledger.ledger import Ledger
    from ledger.operator.dead_letters import DeadLetter, DeadLetters, ReplayResult
    from ledger.records import Effect

WAIT_SECONDS: Final = 600.0  # after the last row is due
WAIT_POLL_SECONDS: Final = 0.2
BATCH: Final = 100  # rows replayed at once: they share commits
_FAILED: Final = frozenset({"failed again", "cannot know", "not found", "discarded"})
LOOKUP_SECONDS: Final = 30.0


async def replay(
    *references: str,
    operation_key: str | None = None,
    request_id: str | None = None,
    quote: str | None = None,
    effect_class: Annotated[str | None, Parameter(name="--class")] = None,
    adapter: str | None = None,
    category: str | None = None,
    cause: str | None = None,
    status: Literal["failed", "uncertain"] | None = None,
    since: str | None = None,
    only: str | None = None,
    limit: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    rate: str | None = None,
    actor: Annotated[str | None, Parameter(name="--as")] = None,
    reason: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    wait: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Retry failed jobs (what is done already is not done again).

    Exit status: 0 done, 3 some failed or were refused, 4 nothing matched, 64 usage, 65 another was first, 75 still pending.

    Parameters
    ----------
    references
        Ids that `quotebot dead list` shows, e.g. 118 op12. Without any, the filters choose.
    operation_key
        Only those of this command and its effects: its operation key, or the short reference shown to people (c-...).
    request_id
        Only those of the request with this id of its source.
    quote
        Only of this quote.
    effect_class
        Only this class, e.g. crm.create, or family of classes, e.g. crm.
    adapter
        Only of this adapter: slack, salesforce, pdf or llm.
    category
        Only this failure category, e.g. timeout.
    cause
        Only this class, category and code, e.g. crm.create/mapping/INVALID_FIELD.
    status
        What was given up (failed, as without it), or what is in doubt (uncertain): it is looked for now.
    since
        Only those that failed in the last 90s, 30m, 2h or 7d.
    only
        Only these classes, e.g. slack.card,crm.create.
    limit
        At most this many; all without it.
    rate
        At most so many at a time, e.g. 1/s or 30/m: each is due a little later than the one before.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    reason
        Why, for the audit.
    dry_run
        Only say what would happen. Slack is asked what is there already, when its token is configured.
    yes
        Do not ask before replaying more than one.
    wait
        Wait until each is settled, for ten minutes at most.
    json_output
        Print JSON.
    """
    try:
        of_class = terminal.checked_class(effect_class, adapter)
        filters = _filters(references, operation_key, request_id, quote, of_class, category, cause, status, since, only, limit)
        named, gap_ms, who = terminal.checked_references(references), interval_ms(rate), terminal.operator(actor)
    except ValueError as error:
        return exits.complain(f"{error}. Nothing was replayed.", exits.USAGE)
    chosen: list[tuple[str, DeadLetter | None]]  # None for an id that is no dead letter
    async with terminal.existing_ledger() as ledger:
        found = dead_letters(ledger)
        if named:
            chosen = list(zip(named, await found.show_each(named), strict=True))
        else:
            chosen = [(letter.reference, letter) for letter in await found.list(filters, limit=limit)]
        if not chosen:
            return exits.complain("Nothing matched; nothing was replayed.", exits.NOTHING_MATCHED)
        if dry_run:
            await _show_plan(ledger, chosen, json_output=json_output)
            return exits.OK
        if len(chosen) > 1 and not yes and not await _confirmed(ledger, chosen):
            return exits.USAGE
        results = await _replayed(ledger, chosen, gap_ms, who, reason, look_now=status == "uncertain")
        idle = any(result.outcome == "queued" for result in results) and not await terminal.bot_runs(ledger)
        if idle:
            exits.complain("Queued. No bot is running here: they wait for the next start of `quotebot run`.")
        for name, why in (await held_by(ledger, _classes(results))).items():
            exits.complain(f"{name} is held ({why}), and so are these. To go on: quotebot resume {name}")
        if wait and not idle:
            results = await settled(found, results, gap_ms * len(chosen) / 1000, lambda names: held_by(ledger, names))
        elif not idle and any(result.outcome == "queued" for result in results):
            how_to_follow = " Use --wait to follow." if sys.stderr.isatty() else ""  # not for the sandbox's page
            exits.complain(f"Queued: the running bot delivers them.{how_to_follow}")
    ended = _report(results, json_output=json_output)
    return exits.PENDING if wait and idle and ended == exits.OK else ended


def _filters(
    references: tuple[str, ...],
    operation_key: str | None,
    request_id: str | None,
    quote: str | None,
    effect_class: str | None,
    category: str | None,
    cause: str | None,
    status: Literal["failed", "uncertain"] | None,
    since: str | None,
    only: str | None,
    limit: int | None,
) -> Filters:
    """Return the filters that select the rows if no reference does. Raises ValueError for the first invalid option."""
    narrowing = (operation_key, request_id, quote, effect_class, category, cause, since, only)
    if references and any(value is not None for value in (*narrowing, limit)):
        raise ValueError("Name ids or give filters, not both: an id already names one row")
    if not references and status is None and all(value is None for value in narrowing):
        raise ValueError("Say what to replay: an id from `quotebot dead list`, or a filter such as --class crm.create")
    classes = () if only is None else tuple(name.strip() for name in only.split(","))
    if not all(classes):
        raise ValueError(f"{only!r} is no list of classes: write slack.card,crm.create")
    for name in classes:
        terminal.checked_class(name)
    since_ms = terminal.duration_ms(since)
    return Filters(
        status="uncertain" if status == "uncertain" else "pending",
        effect_class=terminal.checked_class(effect_class),
        classes=classes,
        category=terminal.checked_category(category),
        cause=terminal.checked_cause(cause),
        aggregate_id=terminal.checked_quote(quote),
        since=None if since_ms is None else SystemClock().now_ms() - since_ms,
        operation_key=operation_key,
        request_id=request_id,
    )


async def _replayed(
    ledger: Ledger,
    chosen: Sequence[tuple[str, DeadLetter | None]],
    gap_ms: float,
    actor: str,
    reason: str | None,
    *,
    look_now: bool,
) -> list[ReplayResult]:
    """Replay in batches. On an error, report the progress and raise it."""
    begun_at, follow = ledger.clock.now_ms(), terminal.follow(ledger)
    results: list[ReplayResult] = []
    for start in range(0, len(chosen), BATCH):
        ended = await asyncio.gather(
            *(
                dead_letters(ledger).replay(
                    reference,
                    actor=actor,
                    reason=reason,
                    follow=follow,
                    cycle_seen=letter.cycle if letter is not None and letter.status == "pending" else None,
                    due_at=begun_at + round(gap_ms * number),
                    look_now=look_now,
                )
                for number, (reference, letter) in enumerate(chosen[start : start + BATCH], start)
            ),
            return_exceptions=True,
        )
        results += [result for result in ended if not isinstance(result, BaseException)]
        stopped = next((result for result in ended if isinstance(result, BaseException)), None)
        if stopped is not None:
            exits.complain(f"Stopped after {len(results)} of {len(chosen)}; give the same command again for the rest.")
            raise stopped
    return results


async def _show_plan(ledger: Ledger, chosen: Sequence[tuple[str, DeadLetter | None]], *, json_output: bool) -> None:
    async with asking(ledger) as ask:
        foreseen = await dead_letters(ledger).preview([reference for reference, _ in chosen], ask)
    plan = described(chosen, foreseen)
    if json_output:
        tables.print_json({"would_replay": [reference for reference, _ in chosen], "plan": plan})
    else:
        print_plan(plan, on_stderr=False)


async def _confirmed(ledger: Ledger, chosen: Sequence[tuple[str, DeadLetter | None]]) -> bool:
    foreseen = await dead_letters(ledger).preview([reference for reference, _ in chosen])
    print_plan(described(chosen, foreseen), on_stderr=True)  # stdout is kept for the outcome
    if not sys.stdin.isatty():
        exits.complain("Nothing was replayed. Add --yes to replay more than one without being asked.")
        return False
    print(f"Replay these {len(chosen)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().casefold() in ("y", "yes"):
        return True
    exits.complain("Nothing was replayed.")
    return False


def _classes(results: Iterable[ReplayResult]) -> set[str]:
    """Return the classes of the rows that are not settled."""
    return {result.effect_class for result in results if result.outcome in (Replay.QUEUED, Replay.UNDER_WAY)}


async def held_by(ledger: Ledger, classes: Iterable[str]) -> dict[str, str]:
    """Return the gates that hold these classes until an operator resumes them, each with its reason."""
    names = sorted({each for name in classes for each in (name, family(name))})
    gates = await ledger.database.read(lambda tx: [tx.one("gate", name=name) for name in names])
    held = [row for row in gates if row is not None and row["state"] == "held" and row["until_at"] is None]
    return {row["name"]: row["reason"] or row["cause"] for row in held}


def _report(results: Sequence[ReplayResult], *, json_output: bool) -> int:
    if json_output:
        tables.print_json({"results": [asdict(result) for result in results]})
    else:
        for result in results:
            print(f"{result.reference:8} {result.effect_class:14} {_in_words(result)}")
    outcomes: set[str] = {result.outcome.value for result in results}
    if outcomes == {"not found"}:
        return exits.NOTHING_MATCHED
    if outcomes & _FAILED:
        return exits.REFUSED
    if "lost to another operator" in outcomes:
        return exits.CONFLICT
    return exits.PENDING if "under way" in outcomes else exits.OK


# Outcomes whose words differ from their names, which the JSON keeps.
_OUTCOMES: Final = {
    "redone": "delivered",
    "already there": "already delivered",
    "lost to another operator": "taken by another operator",
    "cannot know": "unconfirmed",
    "not found": "no such failed job; list them with `quotebot dead list`",
}


def _in_words(result: ReplayResult) -> str:
    said = _OUTCOMES.get(result.outcome.value, result.outcome.value)
    if result.external_ref is not None:
        said += f" ({result.external_ref})"
    if result.outcome == "cannot know":
        said += f"; check the other side, then: quotebot dead resolve {result.reference} --delivered or --send-again"
    if result.detail is not None:
        said += f": {result.detail}"
    if result.replayed_by is not None:
        said += f"; last replayed by {result.replayed_by}"
    if result.replayed_at is not None:
        said += f" on {tables.time_words(result.replayed_at)}"
    return said


def interval_ms(rate: str | None) -> float:
    """Parse "2/s" to the milliseconds between two rows; 0 without a rate. Raises ValueError."""
    if rate is None:
        return 0.0
    match = re.fullmatch(r"([1-9][0-9]{0,3})/([sm])", rate)
    if match is None:
        raise ValueError(f"{rate!r} is no rate: write 1/s, 20/s or 30/m")
    return tables.UNITS_MS[match[2]] / int(match[1])


async def settled(
    found: DeadLetters,
    results: Sequence[ReplayResult],
    spread_seconds: float,
    held: Callable[[Iterable[str]], Awaitable[Mapping[str, str]]],
) -> list[ReplayResult]:
    """Follow the queued rows until they are settled, for ten minutes after the last is due; the bot does the work.

    Ends early if a class that `held` returns holds all of them: they wait for an operator.
    """
    now = list(results)
    waiting = [number for number, result in enumerate(now) if result.outcome in (Replay.QUEUED, Replay.UNDER_WAY)]
    give_up_at = asyncio.get_running_loop().time() + WAIT_SECONDS + spread_seconds
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("Settled", total=len(now), completed=len(now) - len(waiting))
        while waiting and asyncio.get_running_loop().time() < give_up_at:
            ended = await found.standings([now[number] for number in waiting])
            for number, result in zip(waiting, ended, strict=True):
                now[number] = result or now[number]
            waiting = [number for number, result in zip(waiting, ended, strict=True) if result is None]
            bar.update(task, completed=len(now) - len(waiting))
            gates = await held({now[number].effect_class for number in waiting})
            if all(now[number].effect_class in gates or family(now[number].effect_class) in gates for number in waiting):
                break
            await asyncio.sleep(WAIT_POLL_SECONDS)
    for number in waiting:
        now[number] = replace(now[number], outcome=Replay.UNDER_WAY)
    if waiting:
        exits.complain(
            f"{len(waiting)} of {len(now)} are still under way, and this no longer waits for them. To see them: "
            "quotebot dead list --status replaying"
        )
    return now


@contextlib.asynccontextmanager
async def asking(ledger: Ledger) -> AsyncIterator[Callable[[Effect], Awaitable[ReplayPreview]] | None]:
    """Yield a function that looks up an effect in Slack and Salesforce; None if no token is configured."""
    from quotebot.app.clients import open_handlers  # noqa: PLC0415 -- HTTP clients, needed only for undecided dead letters

    async with open_handlers(load_settings(), ledger) as handlers:
        yield None if handlers is None else lambda effect: _looked(handlers, effect)


def described(chosen: Sequence[tuple[str, DeadLetter | None]], foreseen: Sequence[ReplayPreview]) -> list[dict[str, Any]]:
    """Return the plan in its JSON form."""
    return [
        {
            "id": reference,
            "class": None if letter is None else letter.effect_class,
            "quote": None if letter is None else letter.aggregate_id,
            "category": None if letter is None else letter.category,
            "expected": foresight.expectation.value,
            "detail": foresight.detail,
        }
        for (reference, letter), foresight in zip(chosen, foreseen, strict=True)
    ]


def print_plan(plan: Sequence[dict[str, Any]], *, on_stderr: bool) -> None:
    """Print the plan as a table, on stdout or on stderr beside the data."""
    rows = [
        (
            row["id"],
            row["class"] or "-",
            row["quote"] or "-",
            row["category"] or "-",
            row["expected"] + ("" if row["detail"] is None else f" ({row['detail']})"),
        )
        for row in plan
    ]
    with contextlib.redirect_stdout(sys.stderr if on_stderr else sys.stdout):
        print(f"Would replay {len(plan)}:")
        tables.print_table(("ID", "Class", "Quote", "Category", "What will happen"), rows)


async def _looked(handlers: Any, effect: Effect) -> ReplayPreview:
    if not handlers.may_have_happened(effect):
        return ReplayPreview(Expectation.WOULD_BE_REDONE)
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            found = await handlers.find(effect)
    except TimeoutError:
        return ReplayPreview(Expectation.CANNOT_KNOW, f"no answer within {LOOKUP_SECONDS:g} s")
    except AdapterError as error:
        return ReplayPreview(Expectation.CANNOT_KNOW, str(error))
    if found is None:
        return ReplayPreview(Expectation.WOULD_BE_REDONE)
    return ReplayPreview(Expectation.ALREADY_THERE, found.external_ref)
