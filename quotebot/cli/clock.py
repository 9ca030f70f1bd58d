"""`quotebot clock`: the bot's trust in this machine's clock, and a person's confirmation that it is right."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from quotebot.cli import exits, tables, terminal
from quotebot.observability import clock_guard
from quotebot.observability.clock_guard import SLACK, read_suspension

if TYPE_CHECKING:
    from quotebot.observability.clock_guard import Suspension

app = App(name="clock", help="Check and confirm this machine's clock")

Json = Annotated[bool, Parameter(name="--json", negative="")]


@app.command
async def status(*, json_output: Json = False) -> int:
    """Say whether the clock is trusted. While it is not, nothing expires and nothing is purged.

    Exit status: 0 it is trusted, 3 it is suspended.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        found = await ledger.database.read(read_suspension)
    if json_output:
        tables.print_json({"trusted": found is None, "suspension": None if found is None else asdict(found)})
    elif found is None:
        print("The clock is trusted.")
    else:
        exits.complain(_words(found))
    return exits.OK if found is None else exits.REFUSED


@app.command
async def confirm(*, json_output: Json = False) -> int:
    """Confirm that this machine's clock is right, after a look at it. The bot then goes on; the audit names you.

    Where Slack's clock shows another time this is refused: set the clock, and the bot goes on by itself.
    Exit status: 0 confirmed, 3 refused, 4 the clock is not suspended.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        now, actor = ledger.clock.now_ms(), terminal.user()
        found = await ledger.database.write("clock.confirm", lambda tx: clock_guard.confirm(tx, ledger.audit, now, actor))
    outcome = "not suspended" if found is None else "refused" if found.cause == clock_guard.SLACK else "confirmed"
    if json_output:
        suspension = None if found is None else asdict(found)
        tables.print_json({"outcome": outcome, "now_at": now, "suspension": suspension})
    elif found is None:
        exits.complain("The clock is not suspended. Nothing was changed.")
    elif outcome == "refused":
        exits.complain(f"{_words(found)} Nothing was changed.")
    else:
        print(f"Confirmed: it is {tables.time_words(now)}. The running bot goes on within seconds, another at its start.")
    return {"not suspended": exits.NOTHING_MATCHED, "refused": exits.REFUSED, "confirmed": exits.OK}[outcome]


def _words(found: Suspension) -> str:
    by = f"about {tables.age_words(abs(found.ahead_ms))} {'ahead' if found.ahead_ms > 0 else 'behind'}"
    head = f"The clock is suspended: it seems to be {by}. Nothing expires and nothing is purged."
    if found.cause == SLACK:
        return f"{head} Slack's clock shows another time: set this machine's clock, then the bot goes on by itself."
    return f"{head} If it is right: quotebot clock confirm"
