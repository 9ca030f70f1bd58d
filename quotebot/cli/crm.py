"""`quotebot crm`: the mapping to Salesforce, its check against the org, and the reconcile queue."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from adapters.failures import AdapterError, Failure
from quotebot.app.installation import crm_mapping
from quotebot.cli import exits, quote_work, tables, terminal
from quotebot.cli.config import assignments
from quotebot.cli.doctor.others import crm_findings
from quotebot.cli.tables import print_table
from quotebot.commands.payloads import CRM_AGGREGATE, ReconcileCrm, SyncCrm
from quotebot.settings import load_settings
from quotebot.store import crm as store
from quotebot.store import crm_mirror, quotes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.salesforce.describe import MappingFinding
    from adapters.salesforce.mapping import CrmMapping
    from ledger.database import Tx
    from quotebot.domain.quotes.crm_fields import Conflict
    from quotebot.store.crm_mirror import Standing

app = App(name="crm", help="Check and reconcile the Salesforce connection")


@app.command
async def check(
    *,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Log in and compare the mapping with the org: every object and field is there, fits, and may be written by our login.

    Nothing is written. Exit status 0: they agree. 78: they do not, or no Salesforce is configured, or the login is refused.
    69: Salesforce could not be asked.

    Parameters
    ----------
    set_
        NAME=VALUE: a setting that is stronger than every file and the environment; may be given several times.
    json_output
        Print JSON.
    """
    try:
        found = await crm_findings(load_settings(assignments(set_)))
    except AdapterError as error:
        return exits.complain(str(error), exits.CONFIG if error.failure is Failure.AUTH else exits.UNAVAILABLE)
    if found is None:
        return exits.complain(
            "Salesforce is not configured, so its writes wait, paused. How to connect it: docs/salesforce.md", exits.CONFIG
        )
    if json_output:
        print(json.dumps({"schema_version": 1, "agrees": not found, "findings": [asdict(each) for each in found]}, indent=2))
    else:
        _tell(found)
    return exits.CONFIG if found else exits.OK


reconcile = App(name="reconcile", help="Settle what people changed in Salesforce and the bot may not overwrite.")
app.command(reconcile)


@reconcile.command(name="list")
async def list_(
    *,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    limit: int = 100,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """List the differences that wait for a decision, the newest first.

    Parameters
    ----------
    everything
        The settled ones too.
    limit
        At most so many.
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        found = await ledger.database.read(lambda tx: store.listed(tx, max(1, limit), everything=everything))
    if json_output:
        print(json.dumps({"schema_version": 1, "conflicts": [asdict(each) for each in found]}, indent=2))
    elif not found:
        exits.complain("No difference waits for a decision.")
    else:
        print_table(
            ("ID", "QUOTE", "FIELD", "OURS", "THEIRS", "FOUND", "STATE"),
            [
                (
                    str(each.id),
                    f"{each.difference.quote_id} v{each.difference.version}",
                    each.difference.field,
                    each.difference.ours,
                    each.difference.theirs,
                    tables.time_words(each.found_at),
                    each.state if each.decided_by is None else f"{each.state}, by {each.decided_by}",
                )
                for each in found
            ],
        )
    return exits.OK


@reconcile.command
async def apply(
    conflict: int,
    /,
    *,
    take: Literal["ours", "theirs"],
    reason: str,
    user: Annotated[str | None, Parameter(name="--as")] = None,
    request_id: str | None = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Settle one difference: write the quote's own value, or leave what people in Salesforce put there.

    Only the value you were shown is overwritten: one that changed meanwhile comes back to the list.

    Parameters
    ----------
    conflict
        Its number in the list.
    take
        ours: write the quote's value; theirs: leave it as it is.
    reason
        Why, for the audit.
    user
        The Slack user for whom you act, e.g. U0OPS.
    request_id
        Give it again and nothing is done twice.
    json_output
        Print JSON.
    """
    asked = quote_work.options(user, request_id, json_output=json_output)
    async with terminal.existing_ledger() as ledger:
        found, team_id = await ledger.database.read(lambda tx: _conflict(tx, conflict))
        if found is None:
            return exits.complain(
                f"There is no difference {conflict}. Nothing was changed. See: quotebot crm reconcile list", exits.NOTHING_MATCHED
            )
        payload = ReconcileCrm(conflict, take, found.difference.theirs, reason)
        deed = quote_work.TerminalCommand(payload, CRM_AGGREGATE, None, team_id, ["crm reconcile", conflict, take, reason])
        return await quote_work.carry_out(ledger, deed, asked)


def _conflict(tx: Tx, conflict_id: int) -> tuple[Conflict | None, str]:
    """Return a difference and the workspace of its quote."""
    found = store.find(tx, conflict_id)
    quote = None if found is None else quotes.load(tx, found.difference.quote_id)
    return found, "" if quote is None else quote.team_id


@app.command
def fields(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print which field of the org gets what: the mapping in force.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    rows = _rows(crm_mapping(load_settings()))
    if json_output:
        written = [dict(zip(("object", "field", "holds", "written"), row, strict=True)) for row in rows]
        print(json.dumps({"schema_version": 1, "fields": written}, indent=2))
    else:
        print_table(("OBJECT", "FIELD", "HOLDS", "WRITTEN"), rows)
    return exits.OK


def _rows(mapping: CrmMapping) -> list[tuple[str, str, str, str]]:
    once, status = "once, with the record", mapping.status
    words = ", ".join(f"{name}: {word}" for name, word in status.words.items())
    wanted = mapping.opportunity
    opportunity = [] if wanted is None else [
        (wanted.sobject, wanted.key, "our key", once),
        *((wanted.sobject, field, held, once) for field, held in wanted.fields.items()),
        *((wanted.sobject, field, f"the word {word}", once) for field, word in wanted.given.items()),
        (wanted.sobject, wanted.amount, "total", "with the record of each version"),
        (mapping.quote, wanted.link, "its opportunity", once),
    ]  # fmt: skip
    accounts = mapping.mirrors.get("accounts")
    segment = None if accounts is None else accounts.facts.get("segment")
    choice = mapping.choice
    chosen = [] if choice is None else [
        (mapping.quote, choice.link, "the opportunity that was chosen", once),
        *(
            (choice.sobject, field, held, "never: it is read")
            for field, held in (
                (choice.name, "its name"),
                (choice.account, "its account"),
                (choice.closed, "whether it is closed"),
                (choice.stage, "its stage"),
                (choice.closes, "its day"),
                (choice.currency, "its currency"),
            )
            if field is not None
        ),
        *([] if choice.amount is None else [(choice.sobject, choice.amount, "total", "of the newest approved version")]),
    ]  # fmt: skip
    return [
        *opportunity,
        *chosen,
        (mapping.quote, mapping.quote_key, "our key", once),
        *((mapping.quote, field, held, once) for field, held in mapping.quote_fields.items()),
        (mapping.quote, status.field, f"status ({words})", f"as the quote goes on ({status.owner})"),
        (mapping.line, mapping.line_key, "our key", once),
        (mapping.line, mapping.line_parent, "its quote", once),
        *((mapping.line, field, held, once) for field, held in mapping.line_fields.items()),
        (mapping.document, mapping.document_key, "our key", "once, after the PDF was made"),
        (mapping.document, mapping.document_parent, "its quote", "once, after the PDF was made"),
        (mapping.lookup, mapping.lookup_name, "an account's name", "never: it is read"),
        *([] if accounts is None or segment is None else [(accounts.sobject, segment, "its segments", "never: it is read")]),
    ]


def _tell(found: tuple[MappingFinding, ...]) -> None:
    for each in found:
        print(f"{each.place}: {each.what}\n  Why:  {each.why}\n  Fix:  {each.fix}\n")
    print(
        f"{len(found)} to mend, then run it again." if found else "The org has everything the mapping writes, and lets us write it."
    )


@app.command
async def status(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Show what of Salesforce is kept here: how many records of each kind, when they were read, and how old that is.

    Exit status 0: everything that is wanted (crm_mirror) was read of late. 3: something was not.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    settings = load_settings()
    async with terminal.existing_ledger() as ledger:
        found = {each.kind: each for each in await ledger.database.read(crm_mirror.standings)}
        now = ledger.clock.now_ms()
    kinds = sorted({*settings.crm_mirror, *found})
    stale = [
        kind for kind in settings.crm_mirror if crm_mirror.is_stale(_whole_at(found.get(kind)), settings.crm_sync_minutes, now)
    ]
    if json_output:
        rows = [_printed(kind, found.get(kind), wanted=kind in settings.crm_mirror, stale=kind in stale) for kind in kinds]
        print(json.dumps({"schema_version": 1, "mirrors": rows}, indent=2))
    elif not kinds:
        exits.complain("Nothing of Salesforce is kept here. What may be: crm_mirror in docs/salesforce.md")
    else:
        print_table(("KIND", "RECORDS", "WHOLE AS OF", "AGE", "STATE"), [_row(kind, found.get(kind), now, stale) for kind in kinds])
    return exits.REFUSED if stale else exits.OK


@app.command
async def sync(
    *,
    user: Annotated[str | None, Parameter(name="--as")] = None,
    request_id: str | None = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Read what changed in Salesforce now, without waiting for the next time. A running bot does the reading.

    Parameters
    ----------
    user
        The Slack user for whom you act, e.g. U0OPS.
    request_id
        Give it again and nothing is done twice.
    json_output
        Print JSON.
    """
    asked = quote_work.options(user, request_id, json_output=json_output)
    payload = SyncCrm(load_settings().crm_mirror)
    async with terminal.existing_ledger() as ledger:
        deed = quote_work.TerminalCommand(payload, CRM_AGGREGATE, None, "", ["crm sync"])
        return await quote_work.carry_out(ledger, deed, asked)


def _whole_at(standing: Standing | None) -> int | None:
    return None if standing is None else standing.cursor.whole_at


def _row(kind: str, standing: Standing | None, now: int, stale: Sequence[str]) -> tuple[str, ...]:
    whole_at = _whole_at(standing)
    records = "0" if standing is None else str(standing.records)
    reading = standing is not None and standing.cursor.more
    state = "being read" if reading else "stale" if kind in stale else "follows"
    if whole_at is None:
        return kind, records, "never", "", state
    return kind, records, tables.time_words(whole_at), tables.age_words(now - whole_at), state


def _printed(kind: str, standing: Standing | None, *, wanted: bool, stale: bool) -> dict[str, Any]:
    if standing is None:
        return {"kind": kind, "wanted": wanted, "records": 0, "whole_at": None, "read_at": None, "more": True, "stale": stale}
    cursor = standing.cursor
    told = {"records": standing.records, "whole_at": cursor.whole_at, "read_at": cursor.read_at, "more": cursor.more}
    return {"kind": kind, "wanted": wanted, **told, "stale": stale}
