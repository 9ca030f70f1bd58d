"""Tests of a running bot's HTTP endpoints, and of the dashboard and alert rules."""

from __future__ import annotations

import json
import re
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from adapters.failures import AdapterError, Failure
from ledger.database import Health
from ledger.gates import Gate
from ledger.measures import measure
from quotebot.observability.health import Vitals, reasons, serve_health
from quotebot.observability.metrics import COUNTERS, Metrics, families
from quotebot.settings import ConfigurationError
from tests.quotebot.deeds import Round
from tests.rig import bot_in

if TYPE_CHECKING:
    from pathlib import Path

    from quotebot.sandbox.world import World
    from tests.quotebot.parts import Bench

WELL = Health(
    broken=None,
    full_since=None,
    waiting=0,
    commits=1,
    writes=1,
    commit_seconds=0.1,
    last_commit_seconds=0.1,
    wal_bytes=0,
    ballast=True,
)
LOGIN = Gate("crm", state="held", cause="auth")
PAUSE = Gate("crm", state="held", cause="operator")
TRIED = Gate("crm", state="half_open", cause="auth")


@pytest.mark.parametrize(
    ("health", "gates", "ended", "connected", "expected"),
    [
        (WELL, [], [], True, []),
        (WELL, [PAUSE, TRIED], [], True, []),
        (replace(WELL, broken="IOERR"), [], [], True, ["the ledger takes no writes until a restart: IOERR"]),
        (replace(WELL, full_since=1), [], [], True, ["the ledger's disk is full"]),
        (WELL, [], [], False, ["there is no living connection to Slack"]),
        (WELL, [LOGIN], [], True, ["the login of crm is refused"]),
        (WELL, [LOGIN], ["dispatcher"], True, ["the dispatcher has ended", "the login of crm is refused"]),
    ],
)
def test_a_bot_is_ready_unless_something_keeps_all_of_it_from_working(
    health: Health, gates: list[Gate], ended: list[str], *, connected: bool, expected: list[str]
) -> None:
    assert reasons(health, gates, ended=ended, connected=connected) == expected


def test_a_replica_without_its_lock_is_not_ready() -> None:
    found = reasons(WELL, (), ended=(), connected=True, held=False)
    assert found == ["it does not hold its lock in the database, and begins no work"]


async def fetched(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    "headers",
    [{"Host": "rebound.example"}, {"Host": "127.0.0.1:1"}, {"Origin": "http://a.example"}, {"Sec-Fetch-Site": "cross-site"}],
)
async def test_health_server_refuses_pages_of_other_sites(bench: Bench, headers: dict[str, str]) -> None:
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as session:
        port = await serve_health(stack, 0, Vitals(bench.ledger, Metrics(), []))
        for path in ("/healthz", "/readyz", "/metrics", "/"):
            async with session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer:
                assert answer.status == 403


async def test_a_bot_without_a_connection_lives_but_is_not_ready_and_says_why(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        port = await serve_health(stack, 0, Vitals(bench.ledger, Metrics(), []))
        assert await fetched(port, "/healthz") == await fetched(port, "/livez") == (200, '{"alive": true}')
        status, body = await fetched(port, "/readyz")
        assert (status, json.loads(body)["reasons"]) == (503, ["there is no living connection to Slack"])
    with pytest.raises(aiohttp.ClientError):
        await fetched(port, "/healthz")


async def test_a_port_that_is_taken_ends_the_start_with_words(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with AsyncExitStack() as stack:
            with pytest.raises(ConfigurationError, match=f"Port {port} .*QUOTEBOT_HEALTH_PORT"):
                await serve_health(stack, port, Vitals(bench.ledger, Metrics(), []))


async def test_the_real_bot_is_ready_once_it_is_connected_and_shows_its_numbers(world: World, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with bot_in(world, tmp_path / "bot", health_port=port):
        assert await fetched(port, "/readyz") == (200, '{"ready": true, "reasons": []}')
        status, text = await fetched(port, "/metrics")
    found = {metric.name for metric in text_string_to_metric_families(text)}
    assert status == 200
    assert {"quotebot_ack_seconds", "quotebot_unfinished", "quotebot_wal_bytes"} <= found


async def names(bench: Bench) -> set[str]:
    """Return every name that may be queried: the served ones, with the suffixes of their kind."""
    endings = {"counter": ("_total",), "gauge": ("",), "summary": ("_sum", "_count"), "histogram": ("_bucket", "_sum", "_count")}
    metrics = Metrics()
    metrics.watch_replicas(lambda: 1, lambda: True)
    text = (await Vitals(bench.ledger, metrics, []).numbers()).decode()
    return {f"{metric.name}{ending}" for metric in text_string_to_metric_families(text) for ending in endings[metric.type]}


def rules(checkout: Path) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((checkout / "docs/monitoring/alerts.yml").read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions(checkout: Path) -> list[str]:
    """Return every expression of the dashboard and the alerts."""
    board = json.loads((checkout / "docs/monitoring/dashboard.json").read_text("utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]] + [rule["expr"] for rule in rules(checkout)]


async def labels(bench: Bench) -> dict[str, set[str]]:
    """Return the labels of every metric, of a bot that has values for each."""
    deeds, metrics = Round(bench), Metrics()
    await deeds.owe("crm.create")
    deeds.performer.sends.append(AdapterError(Failure.VALIDATION, "no", "No."))
    await deeds.step()
    await deeds.owe("crm.create", "another")
    await bench.ledger.pause("crm", "operator", "maintenance")
    metrics.observe_ack("slash_commands", 0.001)
    found = {f"quotebot_{name}_total": set(names) for name, _, names in COUNTERS.values()}
    text = (await Vitals(bench.ledger, metrics, []).numbers()).decode()
    for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def test_no_dashboard_or_alert_adds_up_what_every_replica_reads_from_the_ledger(bench: Bench, checkout: Path) -> None:
    of_ledger = {metric.name for metric in families(await measure(bench.ledger))}
    for expression in expressions(checkout):
        summed = re.findall(r"sum[^(]*(?:\([a-z_, ]+\))? ?\((?:rate|increase)?\(?(quotebot_\w+)", expression)
        assert [name for name in summed if name.removesuffix("_total") in of_ledger] == [], expression


async def test_the_dashboard_and_the_alerts_group_by_labels_that_the_metrics_have(bench: Bench, checkout: Path) -> None:
    known, asked = await labels(bench), 0
    for expression in expressions(checkout):
        (name, *_) = re.findall(r"quotebot_\w+", expression) or [""]
        grouped = {label.strip() for part in re.findall(r"by \(([^)]*)\)", expression) for label in part.split(",")}
        chosen = set(re.findall(r"[{,](\w+)=", expression)) - {"job"}
        assert (grouped | chosen) - known.get(name, set()) == set(), expression
        asked += len(grouped | chosen)
    assert asked > 15


async def test_the_dashboard_and_the_alerts_ask_for_metrics_that_are_there(bench: Bench, checkout: Path) -> None:
    asked = expressions(checkout)
    found = {name for expression in asked for name in re.findall(r"quotebot_\w+", expression)}
    assert len(found) > 15
    assert found - await names(bench) == set()


def test_every_alert_names_a_heading_of_the_page_for_operators(checkout: Path) -> None:
    page = (checkout / "docs/operating.md").read_text("utf-8")
    assert [rule["alert"] for rule in rules(checkout) if f"\n## {rule['annotations']['fix']}\n" not in page] == []
    assert {rule["labels"]["severity"] for rule in rules(checkout)} == {"page", "ticket"}
