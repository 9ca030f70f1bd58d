"""Tests of the Salesforce stand-in with a client in another language: unmodified jsforce 3 on Node, if it is installed."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.faults import ArmedFaults
from quotebot.sandbox.request_log import Witness
from quotebot.sandbox.salesforce import SalesforceService
from quotebot.sandbox.salesforce.login import CLIENT_ID, CLIENT_SECRET, PASSWORD, USERNAME
from quotebot.sandbox.salesforce.org import ORG_ID, RUNNING_USER
from tests.sandbox.node_parts import FOLDER, needs

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0
pytestmark = needs("jsforce")


async def told_by_jsforce(service: SalesforceService, checkout: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *("node", str(checkout / "tests" / "node" / "jsforce.mjs")),
        env={
            "PATH": os.environ["PATH"],
            "NODE_FOLDER": str(FOLDER),
            "INSTANCE_URL": service.plain_url,
            "CLIENT_ID": CLIENT_ID,
            "CLIENT_SECRET": CLIENT_SECRET,
            "SF_USERNAME": USERNAME,
            "SF_PASSWORD": PASSWORD,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, err.decode()
    told: dict[str, Any] = json.loads(out)
    return told


async def test_jsforce_logs_in_writes_upserts_queries_and_sends_graphs(tmp_path: Path, checkout: Path) -> None:
    service = SalesforceService(Witness(), ArmedFaults(), tmp_path)
    await service.start()
    try:
        told = await told_by_jsforce(service, checkout)
    finally:
        await service.stop()

    assert told["login"] == {"user": RUNNING_USER, "organization": ORG_ID, "username": USERNAME}
    assert told["password"] == RUNNING_USER
    assert told["wrongPassword"]["name"] == "invalid_grant"
    assert told["soap"]["message"].startswith("INVALID_OPERATION: SOAP API login() is disabled")

    assert told["created"] == {"id": told["created"]["id"], "success": True, "errors": []}
    assert (told["retrieved"], told["updated"]["success"], told["deleted"]) == ("Acme", True, True)
    assert told["several"] == [True, False, True]
    assert told["rolledBack"] == ["ALL_OR_NONE_OPERATION_ROLLED_BACK", "REQUIRED_FIELD_MISSING"]
    refusals = {name: told[name]["code"] for name in ("missing", "wrongField", "absent", "twins", "malformed", "expired")}
    assert refusals == {
        "missing": "REQUIRED_FIELD_MISSING",
        "wrongField": "INVALID_FIELD",
        "absent": "NOT_FOUND",
        "twins": "MULTIPLE_CHOICES",
        "malformed": "MALFORMED_QUERY",
        "expired": "INVALID_SESSION_ID",
    }

    assert told["upserted"] == [{"success": True, "created": True}, {"success": True, "created": False}]
    assert told["query"] == {"total": 210, "first": 200, "done": [False, True], "rest": 10}
    assert (told["found"], told["counted"]) == (["Acme Corp"], 210)
    assert told["describe"] is True
    assert {"Account", "Quote", "QuoteLineItem"} <= set(told["global"])
    assert told["graph"] == [
        ["PROCESSING_HALTED", "REQUIRED_FIELD_MISSING"],
        [None, None],
        ["DUPLICATE_VALUE", "PROCESSING_HALTED"],
    ]
    assert (told["file"], told["bytes"]) == (["Quote"], "%PDF")
