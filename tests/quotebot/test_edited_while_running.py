"""Tests of writes to the ledger's file by an attacker without the keys while the bot runs: none of them decides anything."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from typing import Any, Final, cast

from ledger import keys
from ledger.audit.keyring import load_keyring
from ledger.audit.verification import verify_within
from ledger.sqlite.batch import SqliteTx
from ledger.sqlite.connections import open_read_only
from ledger.sqlite.migrations import require_schema
from quotebot.app.installation import schema_and_statements
from quotebot.commands.payloads import DecideApproval
from quotebot.store import history
from tests.quotebot.parts import tampered
from tests.rig import FIRST_QUOTE, Deal, eventually

FOR_THE_CFO: Final = "new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 39%"


async def requested(deal: Deal) -> None:
    """Submit a quote that only the CFO may approve."""
    await deal.slash(FOR_THE_CFO)
    await deal.settled()
    await deal.click("quote.submit", user="U0REP")
    await deal.settled()


async def put_in(deal: Deal, actor: str) -> str:
    """Insert an approval by `actor` into the queue with plain SQL; returns its key after the bot has processed it."""
    (request,) = await deal.rows("SELECT approval_id FROM approvals")
    decision = DecideApproval(request["approval_id"], "approve")
    payload = keys.canonical_json(cast("Any", decision.canonical())).decode()
    identity: dict[str, Any] = {
        "source": "slack_interactive",
        "source_request_id": "T0QUOTE:forged",
        "action_kind": DecideApproval.kind,
        "aggregate_id": FIRST_QUOTE,
        "aggregate_version": 1,
        "payload_hash": keys.sha256(payload.encode()),
    }
    key, now = keys.operation_key(**identity), round(time.time() * 1000)
    row = {
        **identity,
        "operation_key": key,
        "lane": FIRST_QUOTE,
        "payload": payload,
        "correlation_id": keys.correlation_id(key),
        "actor": actor,
        "actor_type": "user",
        "team_id": "T0QUOTE",
        **dict.fromkeys(("received_at", "next_attempt_at", "created_at", "updated_at"), now),
    }
    with contextlib.closing(sqlite3.connect(deal.data_dir / "ledger.db", timeout=20)) as connection, connection:
        connection.execute(f"INSERT INTO operations ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))  # noqa: S608 -- of the names above

    async def done() -> bool:
        return bool(await deal.rows(f"SELECT 1 FROM operations WHERE operation_key = '{key}' AND state = 'completed'"))  # noqa: S608 -- hexadecimal

    await eventually(done, "the command that was put in")
    await deal.settled()
    return key


async def test_a_command_put_into_the_queue_is_not_carried_out(deal: Deal) -> None:
    await requested(deal)
    key = await put_in(deal, "U0CFO")
    (operation,) = await deal.rows(f"SELECT outcome, response FROM operations WHERE operation_key = '{key}'")  # noqa: S608 -- hexadecimal
    assert (operation["outcome"], json.loads(operation["response"])["code"]) == ("refused", "history_broken")
    assert await deal.rows("SELECT state, decided_by FROM approvals") == [{"state": "pending", "decided_by": None}]


async def test_an_edited_row_is_not_bound_by_the_next_command(deal: Deal) -> None:
    await requested(deal)
    path = deal.data_dir / "ledger.db"
    tampered(path, """UPDATE approval_slots SET roles = '["sales_manager"]', asked = '["sales_manager"]'""")
    tampered(path, """UPDATE approvals SET required_roles = '["sales_manager"]'""")
    await deal.click("approval.approve", user="U0MANAGER")
    await deal.settled()
    assert await deal.rows("SELECT state, decided_by FROM approvals") == [{"state": "pending", "decided_by": None}]
    assert "Something outside Quotebot changed this record" in json.dumps((await deal.get("state"))["messages"])


async def test_an_effect_that_was_put_in_performed_and_removed_is_found(deal: Deal) -> None:
    await requested(deal)
    (owner,) = await deal.rows("SELECT operation_id, aggregate_id, correlation_id FROM effects ORDER BY id LIMIT 1")
    key, now, path = "ab" * 32, round(time.time() * 1000), deal.data_dir / "ledger.db"
    said = {"user": "U0CFO", "channel": None, "text": "Please approve.", "directly": True}
    row = {
        **owner,
        "effect_key": key,
        "class": "slack.reply",
        "semantics": "repeat_once",
        "target": "reply:U0CFO",
        "payload": json.dumps(said),
        **dict.fromkeys(("next_attempt_at", "created_at", "updated_at", "aged_from"), now),
    }
    insert = f"INSERT INTO effects ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608 -- of the names above
    with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection, connection:
        connection.execute(insert, list(row.values()))

    async def done() -> bool:
        return bool(await deal.rows(f"SELECT 1 FROM effects WHERE effect_key = '{key}' AND state = 'delivered'"))  # noqa: S608 -- hexadecimal

    await eventually(done, "the effect that was put in")
    with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection, connection:
        connection.execute("DELETE FROM effects WHERE effect_key = ?", (key,))
    keyring = load_keyring(deal.data_dir, may_create=False)
    migrations, statements = schema_and_statements()
    with contextlib.closing(open_read_only(path)) as connection:
        require_schema(connection, migrations)
        connection.execute("BEGIN")
        report = verify_within(SqliteTx(connection, statements, None), keyring, events_max=10_000, replay=history.replay)
    assert report is not None
    assert report.finding is not None
    assert (report.finding.table, report.finding.row) == ("effects", key)
