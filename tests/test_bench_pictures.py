"""Tests of the pictures of the ledger benchmark: well-formed, with every line's name, and with units on the axes."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench.lifecycle import pictures

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["Quotebot", "naive program", "huey", "DBOS", "procrastinate", "limit, one at a time"]


def row(variant: str, ops_per_s: float, p50_ms: float, *, size: int = 0) -> dict[str, Any]:
    return {"size": size, "variant": variant, "problems": [], "ops_per_s": ops_per_s, "p50_ms": p50_ms}


def rows() -> list[dict[str, Any]]:
    """Return a row for every point, with throughput between 60 and 3,000 per second."""
    found = [row("limit", 800.0, 1.25), row("batch 64", 6000.0, 9.5)]
    for number, kind in enumerate(pictures.STYLES):
        for place, clients in enumerate(pictures.CONCURRENCY):
            found.append(row(f"{kind} c={clients}", 3000.0 / (number + 1) / 2 ** (3 - place), 0.7 * clients * (number + 1)))
    return found


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 -- our own words


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.file)
def test_a_picture_names_every_line_at_its_end_and_the_units_of_its_axes(picture: pictures.Picture) -> None:
    lines = pictures.lines_of(rows(), picture.figure)
    assert [line.name for line in lines] == NAMES
    words = texts(pictures.draw(picture, lines))
    for line in lines:
        assert f"{line.name}  {pictures.number(line.points[-1][1])}" in words
    assert {picture.title, picture.subtitle, picture.axis, pictures.CLIENTS_AXIS, "1", "16", "64", "256"} <= set(words)
    assert "commands per second" in picture.axis or "ms" in picture.axis


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.file)
def test_a_picture_stays_inside_its_white_panel(picture: pictures.Picture) -> None:
    root = ET.fromstring(pictures.draw(picture, pictures.lines_of(rows(), picture.figure)))  # noqa: S314 -- our own words
    panel = root.find(f"{SVG}rect")
    assert panel is not None
    assert (panel.get("fill"), panel.get("rx")) == ("#ffffff", "12")
    for circle in root.iter(f"{SVG}circle"):
        assert pictures.LEFT <= float(circle.get("cx", "-1")) <= pictures.WIDTH - pictures.RIGHT
        assert pictures.TOP <= float(circle.get("cy", "-1")) <= pictures.HEIGHT - pictures.BOTTOM
    assert all(0 <= float(text.get("y", "-1")) <= pictures.HEIGHT for text in root.iter(f"{SVG}text"))


def test_a_faster_line_is_higher_and_more_commands_are_further_right() -> None:
    axis = pictures.Axis.around([60.0, 3000.0])
    assert (axis.least, axis.most) == (50.0, 5000.0)
    assert axis.place(3000.0) < axis.place(600.0) < axis.place(60.0)
    assert axis.place(200.0) - axis.place(2000.0) == pytest.approx(axis.place(100.0) - axis.place(1000.0))
    assert [pictures.across(clients) for clients in pictures.CONCURRENCY] == sorted(map(pictures.across, pictures.CONCURRENCY))


def test_a_row_that_failed_or_has_a_history_is_no_point() -> None:
    found = [row("huey c=1", 100.0, 1.0), row("huey c=16", 120.0, 2.0, size=100_000)]
    found += [
        {"size": 0, "variant": "huey c=64", "problems": ["failed"]},
        {"size": 0, "variant": "dbos c=1", "problems": ["absent"]},
    ]
    (line,) = pictures.lines_of(found, "ops_per_s")
    assert (line.name, line.points) == ("huey", ((1, 100.0),))


def test_one_point_alone_can_be_drawn() -> None:
    lines = pictures.lines_of([row("quotebot c=1", 100.0, 1.0)], "ops_per_s")
    assert "Quotebot  100" in texts(pictures.draw(pictures.PICTURES[0], lines))


def test_names_that_would_overlap_move_apart_and_keep_their_order() -> None:
    placed = pictures.spread_out([100.0, 102.0, 300.0, 101.0, 399.0], 17.0, 70.0, 400.0)
    assert placed == [100.0, 134.0, 300.0, 117.0, 399.0]
    assert pictures.spread_out([398.0, 399.0, 400.0], 17.0, 70.0, 400.0) == [366.0, 383.0, 400.0]


@pytest.mark.parametrize(
    ("value", "told"), [(12_345.0, "12,300"), (1_764.4, "1,760"), (427.3, "427"), (6.666, "6.67"), (0.5, "0.5")]
)
def test_a_value_has_three_digits(value: float, told: str) -> None:
    assert pictures.number(value) == told


def test_colours_are_dark_enough_to_be_read_on_white() -> None:
    def light(colour: str) -> float:
        parts = [int(part, 16) / 255 for part in re.findall("[0-9a-f]{2}", colour)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    colours = [colour for _, colour, _ in pictures.STYLES.values()] + [pictures.INK, pictures.FAINT]
    assert [colour for colour in colours if 1.05 / (light(colour) + 0.05) < 4.5] == []
