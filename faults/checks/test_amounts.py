"""The invariant on a chosen opportunity's amount, on valid evidence and on damaged evidence."""

from __future__ import annotations

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faults.checks.business import _opportunities

QUOTE, DEAL, RECORD = "Q-2027-0001", "006A", "0Q0A"


def facts(**changes: Any) -> Any:
    """Return a quote whose second version costs 80, recorded under its opportunity; `changes` damage that evidence."""
    row = {"Id": DEAL, "Amount": Decimal(80), "IsClosed": False} | changes.get("opportunity", {})
    effects = [
        {
            "class": "crm.create",
            "aggregate_id": QUOTE,
            "state": "delivered",
            "external_ref": f"{RECORD}{version}",
            "payload": json.dumps({"version": version}),
            "result": json.dumps({"opportunity": "chosen"}),
        }
        for version in (1, 2)
    ]
    owed = {"class": "crm.update", "aggregate_id": QUOTE, "state": changes.get("owed", "delivered")}
    records = [{"Id": f"{RECORD}{version}", "OpportunityId": changes.get("hangs_on", DEAL)} for version in (1, 2)]
    created = {"aggregate_id": QUOTE, "event_type": "quote.created", "after": json.dumps({"opportunity": DEAL})}
    return SimpleNamespace(
        outside=SimpleNamespace(crm={"Opportunity": [row], "Quote": records}),
        events=[created],
        crm_effects={effect["external_ref"]: effect for effect in effects},
        effects=[*effects, owed],
        at_rest=changes.get("at_rest", True),
    )


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, []),
        ({"opportunity": {"Amount": Decimal(100)}}, ["the opportunity 006A has the amount 100; Q-2027-0001 v2 costs 80"]),
        ({"opportunity": {"Amount": None}}, ["the opportunity 006A has the amount None; Q-2027-0001 v2 costs 80"]),
        ({"opportunity": {"Amount": None}, "at_rest": False}, []),
        ({"opportunity": {"Amount": None}, "owed": "failed"}, []),
        ({"opportunity": {"Amount": None, "IsClosed": True}}, []),
        (
            {"hangs_on": None},
            [f"the record 0Q0A{version} of Q-2027-0001 does not hang on the opportunity 006A" for version in (1, 2)],
        ),
    ],
)
def test_an_amount_that_is_not_the_newest_records_is_seen(changes: dict[str, Any], verdict: list[str]) -> None:
    totals = {(QUOTE, 1): Decimal(100), (QUOTE, 2): Decimal(80)}
    assert list(_opportunities(cast("Any", facts(**changes)), totals)) == verdict
