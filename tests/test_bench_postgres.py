"""Tests of the benchmark on PostgreSQL: its variants leave the rows they claim, and only valid figures are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench.postgres import AGAIN, BOUNDS, FIRST, judge

if TYPE_CHECKING:
    from pathlib import Path

    from tests.postgres import Server

BRIEF = 0.05  # seconds a variant runs


@pytest.mark.parametrize("variant", ["postgres c=4", "single commits c=4", "postgres acks c=4", "single commits acks c=4"])
async def test_each_variant_leaves_the_rows_of_its_commands(
    variant: str, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.lifecycle import servers  # noqa: PLC0415 -- imports the driver

    monkeypatch.setattr(servers, "WARM_UP_SECONDS", 0.0)
    url = postgres.create(())
    try:
        summary = await servers.run_variant(variant, url, tmp_path, BRIEF)
    finally:
        postgres.drop(url)
    assert summary["problems"] == []
    assert summary["ops"] > 0
    assert summary["trips_per_commit"] is None or summary["trips_per_commit"] > 1


def rounds(*problems: str) -> list[dict[tuple[int, str], dict[str, Any]]]:
    """Return one round in which every variant is just as fast as its goal wants."""
    speeds = {FIRST: 100.0, AGAIN: 100.0, BOUNDS[0][0]: 3.0, BOUNDS[0][1]: 1.0, BOUNDS[1][1]: 100 / 1.8, BOUNDS[2][1]: 500.0}
    return [{(0, name): {"ops_per_s": speed, "problems": list(problems)} for name, speed in speeds.items()}]


def test_each_ratio_is_judged_inside_its_round() -> None:
    assert [goal["verdict"] for goal in judge(rounds())] == ["ok"] * 3
    slower = rounds()
    for name in (FIRST, AGAIN, BOUNDS[0][0]):
        slower[0][0, name]["ops_per_s"] *= 0.9
    assert [goal["verdict"] for goal in judge(slower)] == ["missed"] * 3


def test_a_wrong_row_or_a_noisy_run_voids_the_verdict() -> None:
    assert {goal["verdict"] for goal in judge(rounds("a row is missing"))} == {"no verdict: a row is missing"}
    noisy = rounds()
    noisy[0][0, AGAIN]["ops_per_s"] = 70.0
    assert {goal["verdict"] for goal in judge(noisy)} == {"too noisy, no verdict"}
