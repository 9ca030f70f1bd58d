"""`quotebot dead list|show` and `quotebot replay`: the operator's way back from a dead letter."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from quotebot.cli import exits, opened, tables

if TYPE_CHECKING:
    from ledger.dead_letters import DeadLetter, ReplayResult
    from ledger.ledger import Ledger

app = App(name="dead", help="Look at what was given up (dead letters).")

ROW_ID_MAX = 2**63 - 1
SINCE_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WAIT_POLL_SECONDS = 0.2
WAIT_POLLS = 3_000
REDACTED = "[redacted: --show-payload shows it, and that is audited]"


@app.command(name="list")
async def list_letters(
    *,
    effect_class: Annotated[str | None, Parameter(name="--class")] = None,
    category: str | None = None,
    quote: str | None = None,
    since: str | None = None,
    limit: int = 100,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """List dead letters, oldest first.

    Parameters
    ----------
    effect_class
        Only this class, e.g. crm.create.
    category
        Only this failure category, e.g. transient.
    quote
        Only of this quote, e.g. Q-2026-0042.
    since
        Only those that failed in the last 90s, 30m, 2h or 7d.
    limit
        At most this many.
    json_output
        Print JSON.
    """
    try:
        since_ms = _duration_ms(since)
    except ValueError as error:
        exits.complain(f"{error}.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        letters = await _select(ledger, effect_class, category, quote, since_ms, limit)
    if json_output:
        _print_json({"schema_version": 1, "dead_letters": [_public(letter, show_payload=False) for letter in letters]})
    elif letters:
        _print_table(letters)
    else:
        exits.complain("No dead letters.")
    return exits.OK


@app.command
async def show(
    reference: str,
    *,
    show_payload: bool = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show one dead letter with its failures.

    Parameters
    ----------
    reference
        The id that `quotebot dead list` shows, e.g. 118 or op12.
    show_payload
        Show what was to be sent as well. That is audited.
    json_output
        Print JSON.
    """
    from quotebot.app import dead_letters  # noqa: PLC0415 -- see root.py

    try:
        _check_references(reference)
    except ValueError as error:
        exits.complain(f"{error}.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        letter = await dead_letters(ledger).show(reference)
        if letter is not None and show_payload:
            await dead_letters(ledger).record_payload_shown(letter, opened.operator())
    if letter is None:
        exits.complain(f"There is no dead letter {reference}.")
        return exits.NOTHING_MATCHED
    public = _public(letter, show_payload=show_payload)
    if json_output:
        _print_json({"schema_version": 1, "dead_letter": public})
        return exits.OK
    for name, value in public.items():
        print(f"{name:20} {_for_people(name, value)}")
    exits.complain(f"\nTo try it again: quotebot replay {letter.reference}")
    return exits.OK


async def replay(
    *references: str,
    effect_class: Annotated[str | None, Parameter(name="--class")] = None,
    category: str | None = None,
    quote: str | None = None,
    since: str | None = None,
    limit: int = 100,
    actor: Annotated[str | None, Parameter(name="--as")] = None,
    reason: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    wait: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Put dead letters back to work: the same row under the same key, so that nothing already done is done again.

    Exit status: 0 done, 3 some failed or were refused, 4 nothing matched, 64 usage, 75 still pending.

    Parameters
    ----------
    references
        Ids that `quotebot dead list` shows, e.g. 118 op12. Without any, the filters choose.
    effect_class
        Only this class, e.g. crm.create.
    category
        Only this failure category.
    quote
        Only of this quote.
    since
        Only those that failed in the last 90s, 30m, 2h or 7d.
    limit
        At most this many.
    actor
        Who replays, for the audit; the system user without it.
    reason
        Why, for the audit.
    dry_run
        Only say what would be replayed.
    yes
        Do not ask before replaying more than one.
    wait
        Wait until each is settled.
    json_output
        Print JSON.
    """
    from quotebot.app import dead_letters  # noqa: PLC0415 -- see root.py
    from quotebot.performer import follow_ups  # noqa: PLC0415 -- see root.py

    try:
        _check_references(*references)
        since_ms = _duration_ms(since)
    except ValueError as error:
        exits.complain(f"{error}. Nothing was replayed.")
        return exits.USAGE
    if not references and effect_class is category is quote is since is None:
        exits.complain("Say what to replay: an id from `quotebot dead list`, or a filter such as --class crm.create.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        chosen = list(references)
        if not chosen:
            letters = await _select(ledger, effect_class, category, quote, since_ms, limit)
            chosen = [letter.reference for letter in letters]
        if not chosen:
            exits.complain("Nothing matched; nothing was replayed.")
            return exits.NOTHING_MATCHED
        if dry_run:
            _print_plan(chosen, json_output=json_output)
            return exits.OK
        if len(chosen) > 1 and not yes and not _confirmed(chosen):
            return exits.USAGE
        results = [
            await dead_letters(ledger).replay(
                reference,
                actor=actor or opened.operator(),
                reason=reason,
                follow=lambda tx, effect: follow_ups(tx, effect, ledger.clock.now_ms()),
            )
            for reference in chosen
        ]
        if wait:
            results = [await _settled(ledger, result) for result in results]
    return _report(results, waited=wait, json_output=json_output)


async def _select(
    ledger: Ledger, effect_class: str | None, category: str | None, quote: str | None, since_ms: int | None, limit: int
) -> list[DeadLetter]:
    from quotebot.app import dead_letters  # noqa: PLC0415 -- see root.py

    return await dead_letters(ledger).list(
        effect_class=effect_class,
        category=category,
        aggregate_id=quote,
        since=None if since_ms is None else ledger.clock.now_ms() - since_ms,
        limit=limit,
    )


def _check_references(*references: str) -> None:
    """Raise ValueError unless each can be the id of a row; before the first replay, so that a slip replays nothing."""
    from ledger.dead_letters import parse_reference  # noqa: PLC0415 -- see root.py

    for reference in references:
        _, row_id = parse_reference(reference)
        if row_id > ROW_ID_MAX:
            raise ValueError(f"{reference} is larger than any id")


def _duration_ms(text: str | None) -> int | None:
    """Read "2h". Raises ValueError."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is no duration: write 90s, 30m, 2h or 7d")
    return int(match[1]) * SINCE_UNITS_MS[match[2]]


async def _settled(ledger: Ledger, result: ReplayResult) -> ReplayResult:
    """Follow one queued replay until it is settled, for ten minutes at most: the bot does the work, if one is running."""
    import asyncio  # noqa: PLC0415 -- see root.py

    from ledger.dead_letters import Replay  # noqa: PLC0415 -- see root.py
    from quotebot.app import dead_letters  # noqa: PLC0415 -- see root.py

    if result.outcome not in (Replay.QUEUED, Replay.UNDER_WAY):
        return result
    for _ in range(WAIT_POLLS):
        standing = await dead_letters(ledger).standing(result)
        if standing is not None:
            return standing
        await asyncio.sleep(WAIT_POLL_SECONDS)
    return replace(result, outcome=Replay.UNDER_WAY)


def _report(results: list[ReplayResult], *, waited: bool, json_output: bool) -> int:
    if json_output:
        _print_json({"schema_version": 1, "results": [asdict(result) for result in results]})
    else:
        for result in results:
            where = f" (at {result.external_ref})" if result.external_ref else ""
            who = f"; last replayed by {result.detail}" if result.detail else ""
            print(f"{result.reference:8} {result.effect_class:14} {result.outcome.value}{where}{who}")
        if any(result.outcome == "queued" for result in results) and not waited:
            exits.complain("Queued: the running bot delivers them. Use --wait to follow.")
    outcomes = {result.outcome.value for result in results}
    if outcomes == {"not found"}:
        return exits.NOTHING_MATCHED
    if outcomes & {"failed again", "not found", "closed"}:
        return exits.REFUSED
    return exits.PENDING if "under way" in outcomes else exits.OK


def _confirmed(chosen: list[str]) -> bool:
    exits.complain(_plan(chosen))  # stdout is kept for the outcome
    if not sys.stdin.isatty():
        exits.complain("Nothing was replayed. Add --yes to replay more than one without being asked.")
        return False
    print(f"Replay these {len(chosen)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _print_plan(chosen: list[str], *, json_output: bool) -> None:
    if json_output:
        _print_json({"schema_version": 1, "would_replay": chosen})
    else:
        print(_plan(chosen))


def _plan(chosen: list[str]) -> str:
    return f"Would replay {len(chosen)}: {', '.join(chosen)}"


def _public(letter: DeadLetter, *, show_payload: bool) -> dict[str, Any]:
    fields = asdict(letter)
    fields["id"] = letter.reference
    fields["class"] = fields.pop("effect_class")
    if not show_payload:
        fields["payload"] = REDACTED
    return fields


def _for_people(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_at"):
        return f"{datetime.fromtimestamp(value / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    return str(value) if isinstance(value, str | int) else json.dumps(value)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2, sort_keys=True, default=str))


def _print_table(letters: list[DeadLetter]) -> None:
    tables.print_table(
        ("ID", "Class", "Quote", "Ref", "Category", "Tries", "Replays", "Why"),
        (
            (
                letter.reference,
                letter.effect_class,
                letter.aggregate_id,
                letter.correlation_id,
                letter.category or "",
                str(letter.attempts),
                str(letter.prior_replay_count),
                letter.last_error or "",
            )
            for letter in letters
        ),
    )
