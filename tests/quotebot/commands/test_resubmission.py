"""Tests of the check of an edited payload."""

from __future__ import annotations

from typing import Any

import pytest

from quotebot.commands.resubmission import checked_edit, stored_fields
from tests.quotebot.parts import create_command

STORED: dict[str, Any] = stored_fields("quote.create", create_command().canonical())
LINE: dict[str, Any] = STORED["lines"][0]


def with_line(**more: object) -> dict[str, Any]:
    return {**STORED, "lines": [{**LINE, **more}, *STORED["lines"][1:]]}


@pytest.mark.parametrize(
    "same",
    [
        with_line(optional=False),
        with_line(agreed_price=None),
        with_line(requested_discount_percent="0"),
        {**STORED, "opportunity": None, "with_tax": False},
        {**STORED, "commercial": {"language": None}, "terms": []},
    ],
)
def test_a_field_with_its_default_is_the_same_as_none(same: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="That changes nothing"):
        checked_edit("quote.create", STORED, same)
    assert checked_edit("quote.create", STORED, {**same, "account": "Bolt"}) == checked_edit(
        "quote.create", STORED, {**STORED, "account": "Bolt"}
    )


@pytest.mark.parametrize(
    ("edited", "field"),
    [
        (with_line(optinal=False), "lines.0.optinal"),
        (with_line(price_reason="volume deal"), "lines.0.price_reason"),  # without a price it would be lost
        ({**STORED, "commercial": {"langauge": None}}, "commercial.langauge"),
        ({**STORED, "withtax": False}, "withtax"),
    ],
)
def test_a_field_that_nothing_reads_is_named(edited: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"quote.create has no field {field}"):
        checked_edit("quote.create", STORED, edited)
