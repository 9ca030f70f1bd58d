"""Tests of `quotebot slo`: each bound equals that of an alert, and each number can miss it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from prometheus_client.core import GaugeMetricFamily

from quotebot.cli.metrics import ACK_SECONDS, OBJECTIVES, judge
from quotebot.observability.metrics import Metrics
from tests.quotebot.parts import tampered

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

    from quotebot.cli.metrics import Objective
    from tests.quotebot.cli.conftest import Run

LABELS: Final = {
    "quotebot_class_held_seconds": {"effect_class": "crm", "cause": "auth"},
    "quotebot_oldest_ready_seconds": {"kind": "effects", "state": "pending"},
    "quotebot_dead_letters_oldest_seconds": {"category": "validation"},
}


def told(name: str, value: float, **labels: str) -> Metric:
    family = GaugeMetricFamily(name, "A number.", labels=tuple(labels))
    family.add_metric(tuple(labels.values()), value)
    return family


def missed(*found: Metric) -> list[str]:
    return [each.name for each in judge(found) if each.met is False]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda each: each.name)
def test_each_number_is_as_promised_up_to_its_bound_and_missed_above_it(objective: Objective) -> None:
    labels = LABELS.get(objective.metric, {})
    at_it, above = (told(objective.metric, value, **labels) for value in (objective.most, objective.most + 1))
    assert (missed(at_it), missed(above), missed()) == ([], [objective.name], [])


def test_a_pause_by_hand_is_no_refused_login() -> None:
    assert missed(told("quotebot_class_held_seconds", 9_999, effect_class="crm", cause="operator")) == []


@pytest.mark.parametrize(("late", "share", "met"), [(0, 1.0, True), (1, 0.99, True), (2, 0.98, False)])
def test_acknowledgements_are_judged_by_the_share_that_was_in_time(late: int, share: float, *, met: bool) -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.observe_ack(("slash_commands", "interactive")[number % 2], ACK_SECONDS + 0.5 if number < late else 0.004)
    (acks, *_) = judge(metrics.registry.collect())
    assert (acks.found, acks.met) == (share, met)


def test_without_a_bot_nothing_is_known_of_acknowledgements() -> None:
    (acks, *_) = judge([])
    assert (acks.found, acks.met) == (None, None)


def test_the_bounds_are_those_of_the_alerts(checkout: Path) -> None:
    (group,) = yaml.safe_load((checkout / "docs/monitoring/alerts.yml").read_text("utf-8"))["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    bounds = {each.metric: each.most for each in OBJECTIVES}
    for alert, metric in (
        ("QuotebotWorkOverdue", "quotebot_oldest_ready_seconds"),
        ("QuotebotScheduleLate", "quotebot_schedule_lag_seconds"),
        ("QuotebotWalLarge", "quotebot_wal_bytes"),
    ):
        (bound,) = re.findall(r"> (\d+)$", rules[alert]["expr"])
        assert (metric in rules[alert]["expr"], float(bound)) == (True, bounds[metric]), alert
    assert rules["QuotebotDeadLetters"]["for"] == f"{bounds['quotebot_dead_letters_oldest_seconds'] / 60:g}m"
    assert rules["QuotebotAcksSlow"]["expr"].endswith(f"> {ACK_SECONDS:g}")


def test_an_old_dead_letter_is_missed_at_the_terminal_and_for_programs(command: Run, dead: Path) -> None:
    young = command("slo")
    assert (young.returncode, "MISSED" in young.stdout) == (0, False), young.stdout
    tampered(dead, "UPDATE effects SET first_failed_at = first_failed_at - 3600000 WHERE state = 'failed'")
    old = command("slo", "--json")
    found = {each["name"]: each["met"] for each in json.loads(old.stdout)["objectives"]}
    assert (old.returncode, found.pop("dead-letters"), found.pop("acks"), set(found.values())) == (1, False, None, {True})
    (line,) = [line for line in command("slo").stdout.splitlines() if "MISSED" in line]
    assert line.endswith("A dead letter is looked at within fifteen minutes")
