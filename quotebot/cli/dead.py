"""`quotebot dead list|show|discard|resolve`: display of dead letters, and operator actions on them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ledger.operator.dead_letters import Filters
from quotebot.app.installation import dead_letters
from quotebot.cli import dead_letter_tables, exits, opened, rulings, terminal

if TYPE_CHECKING:
    from ledger.operator.dead_letters import Status
    from ledger.records import Effect


app = App(name="dead", help="Look at what was given up (dead letters), and decide about it.")

ListedStatus = Literal["pending", "replaying", "replayed", "discarded", "uncertain", "all"]
_TIMESTAMP: Final = re.compile(r"[0-9]{10}\.[0-9]{6}")
_IN_A_LINK: Final = re.compile(r"(?:https://\S+/)?p([0-9]{10})([0-9]{6})(?:\?\S*)?")


@app.command(name="list")
async def list_dead_letters(
    *,
    status: ListedStatus = "pending",
    effect_class: Annotated[str | None, Parameter(name="--class")] = None,
    category: str | None = None,
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
        Only this class, e.g. crm.create.
    category
        Only this failure category, e.g. transient.
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
        since_ms, quote_id = dead_letter_tables.duration_ms(since), dead_letter_tables.checked_quote(quote)
    except ValueError as error:
        exits.complain(f"{error}.")
        return exits.USAGE
    wanted: Status | None = None if status == "all" else status
    async with opened.existing_ledger() as ledger:
        now = ledger.clock.now_ms()
        filters = Filters(
            status=wanted,
            effect_class=effect_class,
            category=category,
            aggregate_id=quote_id,
            since=None if since_ms is None else now - since_ms,
        )
        found = await dead_letters(ledger).list(filters, limit=limit + 1, newest=not oldest)
    shown, more = found[:limit], len(found) > limit
    if json_output:
        printed = [dead_letter_tables.public(letter, show_payload=False) for letter in shown]
        dead_letter_tables.print_json({"schema_version": 1, "dead_letters": printed, "more": more})
    elif shown:
        dead_letter_tables.print_table(shown, now)
    else:
        exits.complain(f"No dead letters.{dead_letter_tables.no_such_class(effect_class)}")
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
        dead_letter_tables.checked_references((reference,))
    except ValueError as error:
        exits.complain(f"{error}.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        letter = await dead_letters(ledger).show(reference)
        if letter is not None and show_payload:
            await dead_letters(ledger).record_payload_shown(letter, terminal.user())
    if letter is None:
        exits.complain(f"There is no dead letter {reference}.")
        return exits.NOTHING_MATCHED
    public = dead_letter_tables.public(letter, show_payload=show_payload)
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, "dead_letter": public})
        return exits.OK
    for name, value in public.items():
        print(f"{name:20} {dead_letter_tables.for_people(name, value)}")
    exits.complain(f"\nTo try it again: quotebot replay {letter.reference}")
    return exits.OK


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
        dead_letter_tables.checked_references((reference,))
        who = terminal.operator(actor)
        why = rulings.reason_of(reason)
    except ValueError as error:
        exits.complain(f"{error}. Nothing was discarded.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        ruling = await dead_letters(ledger).discard(reference, actor=who, reason=why, follow=dead_letter_tables.follow(ledger))
    return rulings.report(ruling, json_output=json_output)


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
        dead_letter_tables.checked_references((reference,))
        who = terminal.operator(actor)
        why = rulings.reason_of(reason)
        _check_choice(ref, delivered=delivered, send_again=send_again)
    except ValueError as error:
        exits.complain(f"{error}. Nothing was changed.")
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        ruling = await dead_letters(ledger).resolve(
            reference,
            delivered=delivered,
            actor=who,
            reason=why,
            follow=dead_letter_tables.follow(ledger),
            external_ref=None if ref is None else _as_timestamp(ref),
            objection=_objection,
        )
    return rulings.report(ruling, json_output=json_output)


def _check_choice(ref: str | None, *, delivered: bool, send_again: bool) -> None:
    if delivered == send_again:
        raise ValueError("Say either --delivered or --send-again")
    if ref is not None and not delivered:
        raise ValueError("--ref belongs to --delivered")


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


def _as_timestamp(ref: str) -> str:
    """Return the timestamp in a link to a Slack message; any other text unchanged."""
    link = _IN_A_LINK.fullmatch(ref.strip())
    return ref.strip() if link is None else f"{link[1]}.{link[2]}"
