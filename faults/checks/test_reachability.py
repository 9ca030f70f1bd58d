"""Tests of the interesting states: an empty ledger is in none of them, a plain deal in a few."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from faults.checks import reachability
from faults.checks.checker import NOBODY, ClientRecord, Outside, outside_of
from faults.harness.rig import bot_in
from quotebot.app.installation import open_ledger
from quotebot.sandbox.world import World
from quotebot.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATES_MIN = 60
SLOW_MS = 30.0  # on a busy machine; an idle one needs a tenth

# States that every deal without any fault reaches ...
PLAIN = {"a quote was approved by a person", "a whole deal was done", "a process stopped as asked", "the audit was anchored"}
# ... and states that depend on how fast Slack was: a card not drawn yet when the next one is enqueued.
AS_IT_HAPPENS = {"a card was needless before its first try"}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Return the ledger of a bot that never received a request."""
    folder = tmp_path_factory.mktemp("empty")

    async def made() -> None:
        async with open_ledger(Settings(_env_file=None, data_dir=folder)):
            pass

    asyncio.run(made())
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        yield ledger


def test_there_are_enough_states_and_each_has_one_name() -> None:
    groups = (
        reachability.DOUBT,
        reachability.REPETITION,
        reachability.DELIVERIES,
        reachability.PEOPLE,
        reachability.GATES,
        reachability.DEAD,
    )
    count = sum(map(len, (*groups, reachability.LIVES, reachability.OUTSIDE)))
    assert count == len(reachability.STATES) >= STATES_MIN


@pytest.mark.parametrize("name", sorted(reachability.STATES))
def test_an_empty_ledger_is_in_no_state(empty: sqlite3.Connection, name: str) -> None:
    if name in reachability.IN_THE_LEDGER:
        assert empty.execute(reachability.IN_THE_LEDGER[name]).fetchall() == []
    else:
        assert reachability.OUTSIDE[name](empty, NOBODY, ()) is False


async def test_a_plain_deal_is_in_the_few_states_that_it_should_be_in(tmp_path: Path) -> None:
    async with World(tmp_path / "world").serve() as world, bot_in(world, tmp_path / "bot") as deal:
        await deal.approved_deal()
        outside = await outside_of(deal)
    with closing(sqlite3.connect(tmp_path / "bot" / "ledger.db")) as ledger:
        assert reachability.reached(ledger, outside) - AS_IT_HAPPENS == PLAIN
        took = []
        for _ in range(10):
            began = time.process_time()
            reachability.reached(ledger, outside)
            took.append((time.process_time() - began) * 1000)
    assert min(took) < SLOW_MS


def logged_request(number: int, method: str, status: int | None, *, applied: bool, key: str = "k") -> dict[str, object]:
    return {"seq": number, "at": 1.0, "system": "slack", "method": method, "key": key, "applied": applied, "status": status}


@pytest.mark.parametrize(
    ("name", "outside", "history"),
    [
        ("an upload was started over", [logged_request(1, "files.getUploadURLExternal", 200, applied=True)], ()),
        ("a deed was done and its answer lost", [logged_request(1, "chat.update", None, applied=True)], ()),
        ("a request was cut off before it arrived", [logged_request(1, "chat.update", None, applied=False)], ()),
        (
            "Salesforce was asked twice under one key",
            [logged_request(n, "composite/graph", 503, applied=False) for n in (1, 2)],
            (),
        ),
        (
            "an expired session was renewed",
            [
                logged_request(1, "composite/graph", 401, applied=False, key="a"),
                logged_request(2, "composite/graph", 200, applied=True),
            ],
            (),
        ),
        (
            "a delivery died with its process before it was recorded",
            [],
            (ClientRecord("T:1", "quote.create", "U1", acked=False, at_ms=1),),
        ),
    ],
)
def test_states_seen_only_by_external_services_are_reached_too(
    empty: sqlite3.Connection, name: str, outside: list[dict[str, object]], history: tuple[ClientRecord, ...]
) -> None:
    assert reachability.reached(empty, Outside([], [], {}, outside), history) == {name}


def test_lost_acknowledgement_is_distinguished_from_a_lost_delivery(empty: sqlite3.Connection) -> None:
    empty.execute(
        "INSERT INTO deliveries (source, source_request_id, action_kind, operation_id, fingerprint, transport, received_at, "
        "last_seen_at) VALUES ('slack_slash', 'T:1', 'quote.create', 1, 'f', '{}', 1, 1)"
    )
    unheard = ClientRecord("T:1", "quote.create", "U1", acked=False, at_ms=1)
    found = reachability.reached(empty, NOBODY, (unheard,))
    empty.rollback()
    assert found == {"a command was recorded whose acknowledgement was lost"}
