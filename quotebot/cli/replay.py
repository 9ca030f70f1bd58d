"""`quotebot replay`: puts dead letters back to work under the same key, and reports each outcome.

The command only changes the ledger; the running bot delivers. Rows are replayed in batches, each row with its own outcome, so an
interrupted replay continues with the same command: replayed rows are no longer dead letters.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ledger.clock import SystemClock
from ledger.gates import family
from ledger.operator.dead_letters import Filters
from quotebot.app.installation import dead_letters
from quotebot.cli import dead_letter_tables, exits, following, opened, replay_preview, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.ledger import Ledger
    from ledger.operator.dead_letters import DeadLetter, DeadLetters, ReplayResult

BATCH: Final = 100  # rows replayed at once: they share commits
_FAILED: Final = frozenset({"failed again", "cannot know", "not found", "discarded"})


@dataclass(frozen=True, slots=True)
class _Asked:
    """Checked options of the command. Without references the filters select the rows."""

    references: tuple[str, ...]
    filters: Filters
    limit: int | None
    interval_ms: float
    actor: str
    reason: str | None

    @property
    def look_now(self) -> bool:
        return self.filters.status == "uncertain"


async def replay(
    *references: str,
    operation_key: str | None = None,
    request_id: str | None = None,
    quote: str | None = None,
    effect_class: Annotated[str | None, Parameter(name="--class")] = None,
    category: str | None = None,
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
    """Put dead letters back to work: the same row under the same key, so that nothing already done is done again.

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
        Only this class, e.g. crm.create.
    category
        Only this failure category.
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
        Wait until each is settled.
    json_output
        Print JSON.
    """
    try:
        asked = _checked(
            references, operation_key, request_id, quote, effect_class, category, status, since, only, limit, rate, actor, reason
        )
    except ValueError as error:
        exits.complain(f"{error}. Nothing was replayed.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        chosen = await _chosen(ledger, asked)
        if not chosen:
            exits.complain(f"Nothing matched; nothing was replayed.{dead_letter_tables.no_such_class(effect_class)}")
            return exits.NOTHING_MATCHED
        if dry_run:
            await _show_plan(ledger, chosen, json_output=json_output)
            return exits.OK
        if len(chosen) > 1 and not yes and not await _confirmed(ledger, chosen):
            return exits.USAGE
        results = await _replayed(ledger, chosen, asked)
        idle = any(result.outcome == "queued" for result in results) and not await following.bot_runs(ledger)
        if idle:
            exits.complain("Queued. No bot is running here: they wait for the next start of `quotebot run`.")
        await _tell_held(ledger, results)
        if wait:
            results = await following.settled(_dead_letters(ledger), results, asked.interval_ms * len(chosen) / 1000)
        elif not idle and any(result.outcome == "queued" for result in results):
            how_to_follow = " Use --wait to follow." if sys.stderr.isatty() else ""  # not for the sandbox's page
            exits.complain(f"Queued: the running bot delivers them.{how_to_follow}")
    return _report(results, json_output=json_output)


def _checked(
    references: tuple[str, ...],
    operation_key: str | None,
    request_id: str | None,
    quote: str | None,
    effect_class: str | None,
    category: str | None,
    status: Literal["failed", "uncertain"] | None,
    since: str | None,
    only: str | None,
    limit: int | None,
    rate: str | None,
    actor: str | None,
    reason: str | None,
) -> _Asked:
    """Return the checked options. Raises ValueError for the first invalid one."""
    narrowing = (operation_key, request_id, quote, effect_class, category, since, only)
    if references and any(value is not None for value in (*narrowing, limit)):
        raise ValueError("Name ids or give filters, not both: an id already names one row")
    if not references and status is None and all(value is None for value in narrowing):
        raise ValueError("Say what to replay: an id from `quotebot dead list`, or a filter such as --class crm.create")
    classes = () if only is None else tuple(name.strip() for name in only.split(","))
    if not all(classes) or any("%" in name for name in classes):
        raise ValueError(f"{only!r} is no list of classes: write slack.card,crm.create")
    since_ms = dead_letter_tables.duration_ms(since)
    filters = Filters(
        status="uncertain" if status == "uncertain" else "pending",
        effect_class=effect_class,
        classes=classes,
        category=category,
        aggregate_id=dead_letter_tables.checked_quote(quote),
        since=None if since_ms is None else SystemClock().now_ms() - since_ms,
        operation_key=operation_key,
        request_id=request_id,
    )
    return _Asked(
        dead_letter_tables.checked_references(references),
        filters,
        limit,
        dead_letter_tables.interval_ms(rate),
        terminal.operator(actor),
        reason,
    )


async def _chosen(ledger: Ledger, asked: _Asked) -> list[tuple[str, DeadLetter | None]]:
    """Return the references to replay with the rows that the operator sees; None for an id that is no dead letter."""
    if asked.references:
        return list(zip(asked.references, await _dead_letters(ledger).show_each(asked.references), strict=True))
    found = await _dead_letters(ledger).list(asked.filters, limit=asked.limit)
    return [(letter.reference, letter) for letter in found]


async def _replayed(ledger: Ledger, chosen: Sequence[tuple[str, DeadLetter | None]], asked: _Asked) -> list[ReplayResult]:
    """Replay in batches. On an error, report the progress and raise it."""
    begun_at, follow = ledger.clock.now_ms(), dead_letter_tables.follow(ledger)
    results: list[ReplayResult] = []
    for start in range(0, len(chosen), BATCH):
        ended = await asyncio.gather(
            *(
                _dead_letters(ledger).replay(
                    reference,
                    actor=asked.actor,
                    reason=asked.reason,
                    follow=follow,
                    cycle_seen=letter.cycle if letter is not None and letter.status == "pending" else None,
                    due_at=begun_at + round(asked.interval_ms * number),
                    look_now=asked.look_now,
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
    async with replay_preview.asking(ledger) as ask:
        foreseen = await _dead_letters(ledger).preview([reference for reference, _ in chosen], ask)
    plan = replay_preview.described(chosen, foreseen)
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, "would_replay": [reference for reference, _ in chosen], "plan": plan})
    else:
        replay_preview.print_plan(plan, on_stderr=False)


async def _confirmed(ledger: Ledger, chosen: Sequence[tuple[str, DeadLetter | None]]) -> bool:
    foreseen = await _dead_letters(ledger).preview([reference for reference, _ in chosen])
    replay_preview.print_plan(replay_preview.described(chosen, foreseen), on_stderr=True)  # stdout is kept for the outcome
    if not sys.stdin.isatty():
        exits.complain("Nothing was replayed. Add --yes to replay more than one without being asked.")
        return False
    print(f"Replay these {len(chosen)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().casefold() in ("y", "yes"):
        return True
    exits.complain("Nothing was replayed.")
    return False


async def _tell_held(ledger: Ledger, results: Sequence[ReplayResult]) -> None:
    """Report the gates that hold the queued rows until an operator resumes them; waiting for the rows would be useless."""
    classes = {result.effect_class for result in results if result.outcome in ("queued", "under way")}
    names = sorted(classes | {family(name) for name in classes})
    gates = await ledger.database.read(lambda tx: [tx.one("gate", name=name) for name in names])
    for row in gates:
        if row is not None and row["state"] == "held" and row["until_at"] is None:
            why = row["reason"] or row["cause"]
            exits.complain(f"{row['name']} is held ({why}), and so are these. To go on: quotebot resume {row['name']}")


def _report(results: Sequence[ReplayResult], *, json_output: bool) -> int:
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, "results": [asdict(result) for result in results]})
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


def _in_words(result: ReplayResult) -> str:
    said = "redone: delivered now" if result.outcome == "redone" else result.outcome.value
    if result.external_ref is not None:
        said += f" (at {result.external_ref})"
    if result.outcome == "cannot know":
        said += f"; look at the other side, then: quotebot dead resolve {result.reference} --delivered or --send-again"
    if result.detail is not None:
        said += f": {result.detail}"
    if result.replayed_by is not None:
        said += f"; last replayed by {result.replayed_by}"
    if result.replayed_at is not None:
        said += f" on {dead_letter_tables.time_words(result.replayed_at)}"
    return said


def _dead_letters(ledger: Ledger) -> DeadLetters:

    return dead_letters(ledger)
