"""`quotebot quote ...`: the commands of `/quote` from the terminal, recorded in the same ledger with source `cli`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.progress import Progress

from quotebot.app.installation import load_rules
from quotebot.cli import exits, quote_reads, tables, terminal
from quotebot.cli.quote_work import NEW, NO_TERMS, TerminalCommand, TermOptions, carry_out, options, plain
from quotebot.commands.payloads import (
    AcceptQuote,
    CancelQuote,
    CloneQuote,
    DecideApproval,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    ReviseQuote,
    SubmitQuote,
)
from quotebot.execution.membership import known_person
from quotebot.jobs.repricing import Repricing
from quotebot.settings import load_settings
from quotebot.slack import grammar
from quotebot.slack.delegation import DelegationRequest, DelegationsRequest, delegation_command, read_delegation
from quotebot.store import approvals
from quotebot.store.quotes import only_team
from quotebot.views import approval_messages, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.ledger import Ledger
    from quotebot.commands.registry import Payload
    from quotebot.domain.quotes.quote import Quote
    from quotebot.jobs.repricing import Repriced

app = App(name="quote", help="Create and manage quotes")
app.command(quote_reads.show)
app.command(quote_reads.list_quotes, name="list")
app.command(quote_reads.price)
app.command(quote_reads.preview)
app.command(quote_reads.compare)
app.command(quote_reads.explain)

As = Annotated[str | None, Parameter(name="--as")]
NotForDecisions = Annotated[str | None, Parameter(name="--as", show=False)]  # rejected with an explanation
Json = Annotated[bool, Parameter(name="--json", negative="")]
Version = Annotated[int | None, Parameter(validator=Number(gte=1, lte=100_000))]
SHOWN: Final = 100  # limit of differing snapshots
DIFFERENCES_SHOWN: Final = 20  # limit per snapshot


@app.command
async def new(
    *text: str,
    channel: str,
    terms: TermOptions = NO_TERMS,
    user: As = None,
    team: str | None = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Create a quote, e.g. quotebot quote new "for Acme: 150 pro, 150 sso; term 12m; discount 15%" --channel C0DEALS --as U0REP.

    Exit status of every command that changes something: 0 done, 3 refused (and why), 4 no such quote, 64 usage, 65 the request id
    was used for something else, 75 still under way: give the same command with the same --request-id again.

    Parameters
    ----------
    text
        What is typed after `/quote new`.
    channel
        The Slack channel where its card will live, by id.
    user
        For whom, by Slack user id, if QUOTEBOT_CLI_OPERATORS names you; without it for yourself, as QUOTEBOT_CLI_USERS names you.
    team
        The Slack workspace, by id; without it the one that every quote so far belongs to.
    request_id
        The same id twice is one effect; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    typed = terms.after(" ".join(text))
    whole = f"new {typed}"
    if len(whole) > grammar.TEXT_CHARACTERS_MAX:
        return exits.complain(plain(messages.too_long(grammar.TEXT_CHARACTERS_MAX)), exits.USAGE)
    rest = grammar.normalised(whole).partition(" ")[2]
    read = grammar.creation(rest, channel, (await terminal.active_rules()).catalogue)
    if isinstance(read, grammar.GrammarProblem):
        return exits.complain(plain(read.message), exits.USAGE)
    asked = options(user, request_id, json_output=json_output)
    async with terminal.existing_ledger() as ledger:
        team_id = team or await ledger.database.read(only_team)
        if team_id is None:
            return exits.complain("Say in which workspace: --team T....", exits.USAGE)
        return await carry_out(ledger, TerminalCommand(read, NEW, 0, team_id, ("new", typed, channel)), asked)


@app.command
async def clone(
    quote: str,
    *,
    account: Annotated[str | None, Parameter(name="--for")] = None,
    channel: str | None = None,
    version: Version = None,
    user: As = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Make a new quote with the content of another one, at today's prices.

    Parameters
    ----------
    quote
        The original, e.g. Q-2026-0042.
    account
        For another customer; without it the original's.
    channel
        Where the card of the new one will live; without it the original's channel.
    version
        Of this version of it; without it the newest.
    user
        For whom, by Slack user id.
    request_id
        The same id twice is one effect; a fresh one is printed without it.
    json_output
        Print JSON.
    """

    def command(found: Quote) -> TerminalCommand:
        payload = CloneQuote(found.quote_id, channel or found.channel, version, account)
        return TerminalCommand(payload, NEW, 0, found.team_id, ("clone", found.quote_id, version, account, channel))

    return await _about(quote, user, request_id, command, json_output=json_output)


@app.command
async def revise(
    quote: str,
    *text: str,
    whole: Annotated[bool, Parameter(negative="")] = False,
    terms: TermOptions = NO_TERMS,
    version: Version = None,
    user: As = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Give a quote other content as a new version, e.g. quotebot quote revise Q-2026-0042 "200 pro, remove support; term 24m".

    Parameters
    ----------
    quote
        Which, e.g. Q-2026-0042.
    text
        What is to change, or with --whole all that is asked for from now on.
    whole
        The text is a whole request, not changes.
    version
        Only if this is still the newest version.
    user
        The requester, by Slack user id.
    request_id
        The same id twice is one effect; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    typed, catalogue = terms.after(" ".join(text)), (await terminal.active_rules()).catalogue
    request, changes = None, None
    if whole:
        request = grammar.read_request(typed, catalogue)
    else:
        changes = grammar.read_changes(typed, catalogue)
    problems = request if isinstance(request, tuple) else changes if isinstance(changes, tuple) else None
    if problems is not None:
        return quote_reads.misread_parts(problems)
    payload = ReviseQuote(
        changes=None if isinstance(changes, tuple) else changes, request=None if isinstance(request, tuple) else request
    )
    return await _change(quote, payload, version, ("revise", typed, whole), user, request_id, json_output=json_output)


@app.command
async def submit(
    quote: str,
    *,
    note: str | None = None,
    version: Version = None,
    user: As = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Submit a quote for approval; after requested changes also as it is, with a note that says why nothing is changed."""
    payload = SubmitQuote((note or "").strip() or None)
    typed = ("submit",) if payload.note is None else ("submit", payload.note)
    return await _change(quote, payload, version, typed, user, request_id, json_output=json_output)


@app.command
async def approve(
    quote: str,
    *,
    reason: str | None = None,
    version: Version = None,
    user: NotForDecisions = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Approve what a quote waits for, under your own authority; under dual control with a reason that names an incident."""
    return await _decide(quote, "approve", reason, version, user, request_id, json_output=json_output)


@app.command
async def reject(
    quote: str,
    *,
    reason: str,
    version: Version = None,
    user: NotForDecisions = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Reject a quote, with a reason for the requester."""
    return await _decide(quote, "reject", reason, version, user, request_id, json_output=json_output)


@app.command
async def finalize(
    quote: str, *, version: Version = None, user: As = None, request_id: str | None = None, json_output: Json = False
) -> int:
    """Lock an approved quote for sending."""
    return await _change(quote, FinalizeQuote(), version, ("finalize",), user, request_id, json_output=json_output)


@app.command
async def sent(
    quote: str, *, to: str, version: Version = None, user: As = None, request_id: str | None = None, json_output: Json = False
) -> int:
    """Mark a quote as sent to someone (Quotebot doesn't send email)."""
    return await _change(quote, MarkSent(to), version, ("sent", to), user, request_id, json_output=json_output)


@app.command
async def accept(
    quote: str, *, version: Version = None, user: As = None, request_id: str | None = None, json_output: Json = False
) -> int:
    """Mark a quote as won."""
    return await _change(quote, AcceptQuote(), version, ("accept",), user, request_id, json_output=json_output)


@app.command
async def lost(
    quote: str, *, reason: str, version: Version = None, user: As = None, request_id: str | None = None, json_output: Json = False
) -> int:
    """Mark a quote as lost, with the reason."""
    return await _change(quote, LoseQuote(reason), version, ("lost", reason), user, request_id, json_output=json_output)


@app.command
async def cancel(
    quote: str,
    *,
    reason: str | None = None,
    version: Version = None,
    user: As = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Cancel a quote."""
    return await _change(quote, CancelQuote(reason), version, ("cancel", reason), user, request_id, json_output=json_output)


async def _decide(
    quote: str,
    decision: Literal["approve", "reject"],
    reason: str | None,
    version: int | None,
    user: str | None,
    request_id: str | None,
    *,
    json_output: bool,
) -> int:
    """Decide the request that the quote currently waits for; without one, the ledger's refusal explains that."""

    def command(found: Quote) -> TerminalCommand:
        approval_id = "" if found.approval is None else found.approval.approval_id
        payload = DecideApproval(approval_id, decision, reason)
        return TerminalCommand(payload, found.quote_id, version, found.team_id, (decision, reason))

    return await _about(quote, user, request_id, command, json_output=json_output, decides=True)


async def _change(
    quote: str,
    payload: Payload,
    version: int | None,
    typed: tuple[object, ...],
    user: str | None,
    request_id: str | None,
    *,
    json_output: bool,
) -> int:
    def command(found: Quote) -> TerminalCommand:
        return TerminalCommand(payload, found.quote_id, version, found.team_id, typed)

    return await _about(quote, user, request_id, command, json_output=json_output)


async def _about(
    quote: str,
    user: str | None,
    request_id: str | None,
    command: Callable[[Quote], TerminalCommand],
    *,
    json_output: bool,
    decides: bool = False,
) -> int:
    """Execute a command about an existing quote."""
    async with terminal.existing_ledger() as ledger:
        found = await quote_reads.find(ledger, quote)
        if found is None:
            return quote_reads.no_such_quote(quote)
        asked = options(user, request_id, json_output=json_output, decides=decides)
        return await carry_out(ledger, command(found), asked)


@app.command
async def delegate(
    *text: str, user: As = None, team: str | None = None, request_id: str | None = None, json_output: Json = False
) -> int:
    """Let somebody approve instead of you while you are away, e.g. quotebot quote delegate U0CFO until 2026-12-24.

    Parameters
    ----------
    text
        What is typed after `/quote delegate`: a person and maybe days and a reason, or `off`; without it who stands in is shown.
    user
        Whose stand-ins are shown, by Slack user id. A delegation is made under your own name.
    team
        The Slack workspace, by id; without it the one that every quote so far belongs to.
    request_id
        The same id twice is one effect; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    typed = " ".join(text)
    read = read_delegation(typed)
    if not isinstance(read, DelegationRequest | DelegationsRequest):
        return exits.complain(plain(read.message), exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        team_id = team or await ledger.database.read(only_team)
        if team_id is None:
            return exits.complain("Say in which workspace: --team T....", exits.USAGE)
        if isinstance(read, DelegationsRequest):
            return await _shown(ledger, team_id, user, json_output=json_output)
        asked = options(user, request_id, json_output=json_output, decides=True)
        zone = await _zone_of(ledger, team_id, asked.user)
        payload = delegation_command(read, asked.user, ledger.clock.now_ms(), zone)
        return await carry_out(
            ledger, TerminalCommand(payload, f"delegation:{asked.user}", None, team_id, ("delegate", typed)), asked
        )


async def _zone_of(ledger: Ledger, team_id: str, user: str) -> str:
    known = await ledger.database.read(lambda tx: known_person(tx, team_id, user))
    return (known.zone if known is not None else "") or load_settings().time_zone


async def _shown(ledger: Ledger, team_id: str, user: str | None, *, json_output: bool) -> int:
    asked = options(user, "shown", json_output=json_output)
    now = ledger.clock.now_ms()
    found = await ledger.database.read(lambda tx: approvals.delegations_of(tx, team_id, asked.user, now))
    if json_output:
        rows = [{"absent": row.absent, "delegate": row.delegate, "since": row.since, "until": row.until} for row in found]
        tables.print_json({"delegations": rows})
    else:
        print(plain(approval_messages.standing(found, asked.user, await _zone_of(ledger, team_id, asked.user))))
    return exits.OK


@app.command
async def reprice(
    *,
    verify: Annotated[bool, Parameter(negative="")] = False,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Price every stored version of every quote again by the ruleset that priced it, and compare byte for byte. Changes nothing.

    Exit status: 0 all come out the same, 3 some differ (they are named), 64 usage.

    Parameters
    ----------
    verify
        Needed: there is nothing else to do. A quote gets other prices by being revised or cloned.
    json_output
        Print JSON.
    """
    if not verify:
        return exits.complain(
            "Stored prices never change: say --verify to check them. A quote gets other prices by `quotebot quote revise`.",
            exits.USAGE,
        )
    checked, differing = 0, 0
    shown: list[Repriced] = []
    async with terminal.existing_ledger() as ledger:
        repricing = Repricing(ledger, load_rules(load_settings()).ruleset)
        total = await repricing.count()
        with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("Pricing again", total=total)
            async for repriced in repricing.all():
                checked += 1
                bar.update(task, completed=checked)
                if repriced.differences:
                    differing += 1
                    shown += [repriced] if differing <= SHOWN else []
    if json_output:
        told = [{**asdict(each), "differences": each.differences[:DIFFERENCES_SHOWN]} for each in shown]
        tables.print_json({"snapshots": checked, "differing": differing, "shown": told})
    else:
        _tell(checked, differing, shown)
    return exits.REFUSED if differing else exits.OK


def _tell(checked: int, differing: int, shown: list[Repriced]) -> None:
    for each in shown:
        number = "" if each.ruleset_version is None else f", version {each.ruleset_version}"
        print(f"{each.quote_id} v{each.version} (priced by {each.ruleset}{number}):")
        for difference in each.differences[:DIFFERENCES_SHOWN]:
            print(f"  {difference}")
        if len(each.differences) > DIFFERENCES_SHOWN:
            print(f"  and {len(each.differences) - DIFFERENCES_SHOWN} more")
    if differing > len(shown):
        print(f"{differing - len(shown):,} more differ.")
    name = "snapshot" if checked == 1 else "snapshots"
    print(
        f"{checked:,} {name} priced again: {differing:,} differ."
        if differing
        else f"{checked:,} {name} priced again: all the same."
    )
