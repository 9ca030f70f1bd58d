"""`quotebot dead list|show|discard|resolve`: display of dead letters, and operator actions on them."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ledger.operator.dead_letters import Filters
from quotebot.app.installation import dead_letters
from quotebot.cli import exits, tables, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.operator.dead_letters import DeadLetter, Status
    from ledger.records import Effect


app = App(name="dead", help="List, inspect and resolve failed jobs")

ListedStatus = Literal["pending", "replaying", "replayed", "discarded", "uncertain", "all"]
REDACTED: Final = "[redacted: --show-payload shows it, and that is audited]"
_TIMESTAMP: Final = re.compile(r"[0-9]{10}\.[0-9]{6}")
_IN_A_LINK: Final = re.compile(r"(?:https://\S+/)?p([0-9]{10})([0-9]{6})(?:\?\S*)?")


@app.command(name="list")
async def list_dead_letters(
    *,
    status: ListedStatus = "pending",
    effect_class: Annotated[str | None, Parameter(name="--class")] = None,
    adapter: str | None = None,
    category: str | None = None,
    cause: str | None = None,
    quote: str | None = None,
    since: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 100,
    oldest: Annotated[bool, Parameter(negative="--newest")] = True,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """List dead letters, oldest first.

    Parameters
    ----------
    status
        Those that wait for somebody (pending), are on their way again (replaying), were delivered after all or became needless
        (replayed), were discarded, are in doubt (uncertain), or all.
    effect_class
        Only this class, e.g. crm.create, or family of classes, e.g. crm.
    adapter
        Only of this adapter: slack, salesforce, pdf or llm.
    category
        Only this failure category, e.g. timeout.
    cause
        Only this class, category and code, e.g. crm.create/mapping/INVALID_FIELD.
    quote
        Only of this quote, e.g. Q-2026-0042.
    since
        Only those that failed in the last 90s, 30m, 2h or 7d.
    limit
        At most this many.
    oldest
        Those that wait longest first; --newest turns it round.
    json_output
        Print JSON.
    """
    try:
        since_ms, quote_id = terminal.duration_ms(since), terminal.checked_quote(quote)
        wanted_class = terminal.checked_class(effect_class, adapter)
        terminal.checked_category(category)
        terminal.checked_cause(cause)
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    wanted: Status | None = None if status == "all" else status
    async with terminal.existing_ledger() as ledger:
        now = ledger.clock.now_ms()
        filters = Filters(
            status=wanted,
            effect_class=wanted_class,
            category=category,
            cause=cause,
            aggregate_id=quote_id,
            since=None if since_ms is None else now - since_ms,
        )
        found = await dead_letters(ledger).list(filters, limit=limit + 1, newest=not oldest)
    shown, more = found[:limit], len(found) > limit
    if json_output:
        printed = [_public(letter, show_payload=False) for letter in shown]
        tables.print_json({"dead_letters": printed, "more": more})
    elif shown:
        _print_table(shown, now)
    else:
        exits.complain("No dead letters.")
    if more and not json_output:
        exits.complain(f"There are more than these {limit}: see them with a larger --limit.")
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
    try:
        terminal.checked_references((reference,))
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        letter = await dead_letters(ledger).show(reference)
        if letter is not None and show_payload:
            await dead_letters(ledger).record_payload_shown(letter, terminal.user())
    if letter is None:
        return exits.complain(f"There is no dead letter {reference}.", exits.NOTHING_MATCHED)
    public = _public(letter, show_payload=show_payload)
    if json_output:
        tables.print_json({"dead_letter": public})
        return exits.OK
    for name, value in public.items():
        words = _history_words(letter) if name == "failure_history" else tables.for_people(name, value)
        print(f"{name:20} {words}")
    return exits.complain(f"\nTo try it again: quotebot replay {letter.reference}", exits.OK)


@app.command
async def discard(
    reference: str,
    *,
    reason: str,
    actor: Annotated[str | None, Parameter(name="--as")] = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Close a dead letter for good. Nothing is deleted; what waited for it will not happen either.

    Parameters
    ----------
    reference
        The id that `quotebot dead list` shows, e.g. 118 or op12.
    reason
        Why, for the audit.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    json_output
        Print JSON.
    """
    try:
        terminal.checked_references((reference,))
        who = terminal.operator(actor)
        why = terminal.reason_of(reason)
    except ValueError as error:
        return exits.complain(f"{error}. Nothing was discarded.", exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        ruling = await dead_letters(ledger).discard(reference, actor=who, reason=why, follow=terminal.follow(ledger))
    return tables.report(ruling, json_output=json_output)


@app.command
async def resolve(
    reference: str,
    *,
    reason: str,
    delivered: Annotated[bool, Parameter(negative="")] = False,
    send_again: Annotated[bool, Parameter(negative="")] = False,
    ref: str | None = None,
    actor: Annotated[str | None, Parameter(name="--as")] = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """End a doubt that only a person can end, after a look at the other side: it did arrive, or it never did.

    Parameters
    ----------
    reference
        The id that `quotebot dead list` shows, e.g. 118.
    reason
        Why, for the audit.
    delivered
        It is there: what waited for it goes on.
    send_again
        It is not there: it is sent again without looking for it first.
    ref
        With --delivered, what the other side calls it: the link of the message, the file's or the record's id.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    json_output
        Print JSON.
    """
    try:
        terminal.checked_references((reference,))
        who = terminal.operator(actor)
        why = terminal.reason_of(reason)
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    if delivered == send_again:
        return exits.complain("Use --delivered or --send-again.", exits.USAGE)
    if ref is not None and not delivered:
        return exits.complain("--ref belongs to --delivered.", exits.USAGE)
    if ref is not None:
        link = _IN_A_LINK.fullmatch(ref.strip())
        ref = ref.strip() if link is None else f"{link[1]}.{link[2]}"
    async with terminal.existing_ledger() as ledger:
        ruling = await dead_letters(ledger).resolve(
            reference,
            delivered=delivered,
            actor=who,
            reason=why,
            follow=terminal.follow(ledger),
            external_ref=ref,
            objection=_objection,
        )
    return tables.report(ruling, json_output=json_output)


def _objection(effect: Effect, given: str | None) -> str | None:
    """Return what is missing: everything in a quote's thread needs the timestamp of the thread's first message."""
    if effect.semantics == "pure":
        return f"What {effect.effect_class} made is not kept outside. Repeat it instead: quotebot replay {effect.id}."
    if effect.effect_class != "slack.post" or effect.payload["what"] != "root":
        return None
    if given is not None and _TIMESTAMP.fullmatch(given):
        return None
    return (
        f"{effect.id} is the first message of the thread of {effect.aggregate_id}, and all that follows is posted into it: "
        "give --ref with the link of the message (in Slack: More actions, Copy link)."
    )


def _public(letter: DeadLetter, *, show_payload: bool) -> dict[str, Any]:
    """Return a dead letter in its JSON form."""
    fields = asdict(letter)
    fields["id"] = letter.reference
    fields["class"] = fields.pop("effect_class")
    if not show_payload:
        fields["payload"] = REDACTED
    return fields


def _print_table(letters: Sequence[DeadLetter], now: int) -> None:
    """Print dead letters as a table; their age counts from their first failure."""
    tables.print_table(
        ("ID", "Status", "Class", "Quote", "Ref", "Category", "Code", "Tries", "Replays", "First failed", "Age", "Label", "Why"),
        (
            (
                letter.reference,
                letter.status,
                letter.effect_class,
                letter.aggregate_id,
                letter.correlation_id,
                letter.category or "",
                letter.code or "",
                str(letter.attempts),
                str(letter.prior_replay_count),
                tables.for_people("first_failed_at", _first_failure(letter)),
                tables.age_words(now - (_first_failure(letter) or letter.created_at)),
                letter.label,
                letter.last_error or _last_cycle(letter).get("last_error") or "",
            )
            for letter in letters
        ),
    )


def _first_failure(letter: DeadLetter) -> int | None:
    """Return the first failure (ms) of the open cycle, or else of the cycle that was closed last."""
    found: int | None = letter.first_failed_at or _last_cycle(letter).get("first_failed_at")
    return found


def _last_cycle(letter: DeadLetter) -> dict[str, Any]:
    return letter.failure_history[-1] if letter.failure_history else {}


def _history_words(letter: DeadLetter) -> str:
    """Return the closed cycles as text, one a line, oldest first."""
    return f"\n{'':20} ".join(map(_cycle_words, letter.failure_history)) or "-"


def _cycle_words(cycle: dict[str, Any]) -> str:
    tries = f"{cycle['attempts']} attempt{'' if cycle['attempts'] == 1 else 's'}"
    code = f", {cycle['code']}" if cycle.get("code") else ""
    failed, replayed = (tables.for_people(name, cycle.get(name)) for name in ("failed_at", "replayed_at"))
    return (
        f"cycle {cycle['cycle']}: {tries}, failed {failed} ({cycle.get('category') or 'unknown'}{code}): "
        f"{(cycle.get('last_error') or 'no reason is known').removesuffix('.')}. "
        f"Replayed by {cycle.get('replayed_by')} {replayed}"
    )
