"""`quotebot quote delegate`: delegation of decisions while an approver is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quotebot.cli import dead_letter_tables, exits, opened, quote_reads
from quotebot.cli.quote_work import TerminalCommand, UsageError, carry_out, options, plain
from quotebot.slack.delegation import DelegationRequest, DelegationsRequest, delegation_command, read_delegation
from quotebot.store import approvals
from quotebot.views import approval_messages

if TYPE_CHECKING:
    from ledger.ledger import Ledger

As = Annotated[str | None, Parameter(name="--as")]
Json = Annotated[bool, Parameter(name="--json", negative="")]


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
        exits.complain(plain(read.message))
        return exits.USAGE
    async with opened.existing_ledger() as ledger:
        team_id = team or await quote_reads.only_team(ledger)
        if team_id is None:
            exits.complain("Say in which workspace: --team T.... Nothing was done.")
            return exits.USAGE
        try:
            if isinstance(read, DelegationsRequest):
                return await _shown(ledger, team_id, user, json_output=json_output)
            asked = options(user, request_id, json_output=json_output, decides=True)
            payload = delegation_command(read, asked.user, ledger.clock.now_ms())
            return await carry_out(
                ledger, TerminalCommand(payload, f"delegation:{asked.user}", None, team_id, ("delegate", typed)), asked
            )
        except UsageError as error:
            exits.complain(str(error))
            return exits.USAGE


async def _shown(ledger: Ledger, team_id: str, user: str | None, *, json_output: bool) -> int:

    asked = options(user, "shown", json_output=json_output)
    now = ledger.clock.now_ms()
    found = await ledger.database.read(lambda tx: approvals.delegations_of(tx, team_id, asked.user, now))
    if json_output:
        rows = [{"absent": row.absent, "delegate": row.delegate, "since": row.since, "until": row.until} for row in found]
        dead_letter_tables.print_json({"schema_version": 1, "delegations": rows})
    else:
        print(plain(approval_messages.standing(found, asked.user)))
    return exits.OK
