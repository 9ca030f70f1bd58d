"""Canary test: a whole deal under every kind of fault, and no secret in the log or in the ledger."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from faults.harness.rig import bot_process
from quotebot.sandbox.world import World
from tests.canaries import SESSION_BYTES, SIGNATURE_BYTES, TICKET_BYTES, WELL_KNOWN, Canary, Remembered, files_under, hits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig import Deal

HOME_OF_RESPONSE_URLS = "deliveries"


def everything_in(ledger: Path) -> dict[str, str]:
    """Return each table of the ledger as one text, without the only column that may contain response_urls."""
    with closing(sqlite3.connect(ledger)) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row["name"] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {}
        for table in tables:
            rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 -- names from the schema
            for row in rows:
                row.pop("transport", None)
            found[table] = json.dumps(rows, ensure_ascii=False, default=str)
        return found


async def bad_weather(deal: Deal) -> None:
    """Make every adapter fail in every known way, and still finish the deal."""
    for effect in ("5xx", "429", "reset_after", "malformed"):
        await deal.arm("slack", effect, method="chat.postMessage", retry_after=1)
    await deal.arm("slack", "reset_before", method="chat.update")
    await deal.arm("slack", "5xx", method="response_url")
    for effect in ("5xx", "reset_before"):
        await deal.arm("salesforce", effect)
    await deal.arm("salesforce", "auth_expired", method="sobjects/ContentVersion")  # of a session that was opened before


@pytest.fixture
def chance() -> Remembered:
    return Remembered()


@pytest.fixture
def planted(tmp_path: Path, chance: Remembered) -> World:
    return World(tmp_path / "world", tokens=chance)


async def test_no_secret_reaches_the_log_or_the_ledger(planted: World, chance: Remembered, tmp_path: Path) -> None:
    async with planted.serve() as world, bot_process(world, tmp_path) as (bot, deal):
        environment = world.environment()
        await bot.start()
        await bad_weather(deal)
        await deal.slash("new for Canary Islands: 150 pro; discount 15%")
        await deal.settled()
        await deal.click("quote.submit", user="U0REP")
        await deal.settled()
        await deal.click("approval.approve", user="U0REP")  # refused: a reply over its response_url
        await deal.click("approval.approve", user="U0MANAGER")
        await deal.settled()
        assert [fault for fault in await deal.get("faults") if not fault["hits"]] == []  # every fault has occurred
        assert await bot.stop() == 0
        hooks = [path.rpartition("/")[2] for path in world.slack.passes._response_urls]

    log = (tmp_path / "bot.log").read_text()
    secrets = {name: environment[name] for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SALESFORCE_CLIENT_SECRET")}
    assert "effect.retry" in log  # faults have occurred
    tables = everything_in(tmp_path / "bot" / "ledger.db")
    assert '"Canary Islands"' in tables["quotes"]  # the search finds texts that are there
    for name, secret in secrets.items():
        assert secret not in log, name
        assert [table for table, text in tables.items() if secret in text] == [], name
    for hook in hooks:
        assert hook not in log
        assert [table for table, text in tables.items() if hook in text] == []
    assert "Canary Islands" not in log  # nor the customer's name
    sessions = Canary("a CRM session", (*chance.given[SESSION_BYTES], *chance.given[SIGNATURE_BYTES]))
    tickets = Canary("a ticket, a trigger or an upload address", tuple(chance.given[TICKET_BYTES]), ("bot/ledger.db",))
    known = [Canary(name, (secret,)) for name, secret in WELL_KNOWN.items()]
    written = {name: data for name, data in files_under(tmp_path).items() if not name.startswith("world")}
    assert {"bot.log", "bot/ledger.db", "bot/ledger.db!quotes"} <= set(written)
    assert hits([sessions, tickets, *known], written) == []
