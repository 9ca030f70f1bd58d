"""Tests of the used share of Salesforce's call allowance: in the metrics, and in the log when it is nearly used up."""

from __future__ import annotations

import requests
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from adapters.salesforce.calls import ApiUsage, SalesforceCalls
from adapters.salesforce.transport import ClientCredentials
from quotebot.app.clients import warn_allowance_short
from quotebot.observability.metrics import Metrics


def test_the_metrics_show_what_salesforce_said_last() -> None:
    said: list[ApiUsage] = []
    metrics = Metrics()
    metrics.watch_crm(lambda: said[-1] if said else None)
    assert "quotebot_crm_api_calls_used 0.0" in generate_latest(metrics.registry).decode()
    said.append(ApiUsage(4_000, 5_000))
    page = generate_latest(metrics.registry).decode()
    assert "quotebot_crm_api_calls_used 4000.0" in page
    assert "quotebot_crm_api_calls_allowed 5000.0" in page


def test_the_log_warns_once_each_time_it_runs_short() -> None:
    calls = SalesforceCalls(
        "https://acme.my.salesforce.com",
        ClientCredentials("id", "secret"),
        api_version="65.0",
        timeout_seconds=1.0,
        session=requests.Session(),
        threads=1,
        watch=warn_allowance_short,
    )
    with capture_logs() as logs:
        for used in (79, 80, 95, 10, 85):
            calls.note_usage(ApiUsage(used, 100))
    assert [(line["event"], line["used"]) for line in logs] == [("crm.allowance_short", 80), ("crm.allowance_short", 85)]
