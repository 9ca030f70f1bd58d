"""Approval policies as CSV: the mistakes of a sheet are refused with the line and the column."""

from __future__ import annotations

import pytest

from quotebot.domain.approvals.policy_sheet import read_policy_sheet


def read(rows: str, separator: str = ",") -> object:
    """Return what a sheet with these rows says: a document, or its problems as lines."""
    found = read_policy_sheet("p.csv", f"rule,name,value,role\n{rows}\n".replace(",", separator).encode())
    return found if isinstance(found, dict) else [str(problem) for problem in found]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("discount,over,10,\ndiscount,,20,cfo", "line 2, column name: discount has no setting of the name over"),
        ("policy,discount,10,\ndiscount,,20,cfo", "line 2, column name: policy has no setting of the name discount"),
        ("name,first,10,", "line 2, column rule: 'name' is no rule"),
        ("policy,margin,x,\nmargin,saas,60,cfo", "line 2, column name: policy has no setting of the name margin"),
        ("margin,saas,60,cfo\nmargin,saas,50,cfo", "line 3, column name: there is another row for margin saas"),
        ("policy,name,a,\npolicy,name,b,", "line 3, column name: there is another row for policy name"),
        ("discount,,,cfo", "line 2, column value: the row has no value"),
        ("total,,1e5,cfo", "line 2, column value: '1e5' is no plain number"),
        ("routing,remind_hours,two,", "line 2, column value: 'two' is no plain number"),
    ],
)
def test_a_mistake_in_a_row_is_refused_with_its_place(rows: str, problem: str) -> None:
    found = read(rows)
    assert isinstance(found, list)
    assert problem in found[0]


@pytest.mark.parametrize("row", ["total;;100.000;cfo", "discount;blocked_over;40.000;", "margin;saas;60.000;cfo"])
def test_a_number_with_two_meanings_is_refused_in_a_sheet_of_semicolons(row: str) -> None:
    found = read(row, ";")
    assert isinstance(found, list)
    assert "can mean" in found[0]


def test_a_list_without_a_value_is_empty_and_any_other_row_needs_one() -> None:
    rows = "roles,ladder,ceo,\nroles,beside,,\nterms,other,,"
    assert read(rows) == {"discount": {"over": []}, "total": {"over": []}, "margin": {}} | {
        "roles": {"ladder": ["ceo"], "beside": []},
        "terms": {"other": []},
    }
    assert read("roles.names,ceo,,") == [
        "p.csv, line 2, column value: the row has no value; write it, or remove the row",
    ]


def test_a_role_that_is_no_text_is_left_for_the_policy_to_refuse() -> None:
    assert read("total,,10,[5]") == {"discount": {"over": []}, "total": {"over": [{"amount": "10", "role": 5}]}, "margin": {}}
