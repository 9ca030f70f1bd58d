"""`quotebot crm status` and `crm sync`: the state of the Salesforce sync, and an immediate sync."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quotebot.cli import dead_letter_tables, exits, opened, quote_work
from quotebot.cli.tables import print_table
from quotebot.commands.crm import CRM_AGGREGATE, SyncCrm
from quotebot.dispatch.crm_mirror import is_stale
from quotebot.settings import load_settings
from quotebot.store import crm_mirror as store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.store.crm_mirror import Standing


async def status(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Show what of Salesforce is kept here: how many records of each kind, when they were read, and how old that is.

    Exit status 0: everything that is wanted (crm_mirror) was read of late. 3: something was not.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    settings = load_settings()
    async with opened.existing_ledger() as ledger:
        found = {each.kind: each for each in await ledger.database.read(store.standings)}
        now = ledger.clock.now_ms()
    kinds = sorted({*settings.crm_mirror, *found})
    stale = [kind for kind in settings.crm_mirror if is_stale(_whole_at(found.get(kind)), settings.crm_sync_minutes, now)]
    if json_output:
        rows = [_printed(kind, found.get(kind), wanted=kind in settings.crm_mirror, stale=kind in stale) for kind in kinds]
        print(json.dumps({"schema_version": 1, "mirrors": rows}, indent=2))
    elif not kinds:
        exits.complain("Nothing of Salesforce is kept here. What may be: crm_mirror in docs/salesforce.md")
    else:
        print_table(("KIND", "RECORDS", "WHOLE AS OF", "AGE", "STATE"), [_row(kind, found.get(kind), now, stale) for kind in kinds])
    return exits.REFUSED if stale else exits.OK


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
    try:
        asked = quote_work.options(user, request_id, json_output=json_output)
    except quote_work.UsageError as error:
        exits.complain(str(error))
        return exits.USAGE
    payload = SyncCrm(load_settings().crm_mirror)
    async with opened.existing_ledger() as ledger:
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
    return kind, records, dead_letter_tables.time_words(whole_at), dead_letter_tables.age_words(now - whole_at), state


def _printed(kind: str, standing: Standing | None, *, wanted: bool, stale: bool) -> dict[str, Any]:
    if standing is None:
        return {"kind": kind, "wanted": wanted, "records": 0, "whole_at": None, "read_at": None, "more": True, "stale": stale}
    cursor = standing.cursor
    told = {"records": standing.records, "whole_at": cursor.whole_at, "read_at": cursor.read_at, "more": cursor.more}
    return {"kind": kind, "wanted": wanted, **told, "stale": stale}
