"""Approval policy as one CSV file: a row per rule or setting, read into the plain document of policy_document.py and written. Pure.

rule      name           value     role                  roles_needed  people  dual_control
policy    name           sample
discount                 10        sales_manager
discount  blocked_over   40
margin    saas           60        cfo
total                    100000    deal_desk | legal      all
routing   remind_hours   2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.catalogue.sheets import SheetProblem, cell_of_texts, flag, read_sheet, text_of, texts_of, write_sheet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.catalogue.sheets import SheetRow

COLUMNS: Final = ("rule", "name", "value", "role", "roles_needed", "people", "dual_control")
NEEDED: Final = ("rule", "value")
POLICY: Final = "policy"  # rule of the rows with the name, the version and the currency
ASCENDING: Final[Mapping[str, str]] = {"discount": "percent", "total": "amount", "term": "months", "payment": "days"}
BY_NAME: Final[Mapping[str, str]] = {"margin": "under", "quantity": "over"}
LISTS: Final = frozenset({("terms", "legal"), ("terms", "other"), ("calendar", "days"), ("calendar", "holidays")})


def read_policy_sheet(file: str, data: bytes) -> dict[str, Any] | list[SheetProblem]:
    """Return the plain document of a sheet, which `read_policy` checks, or the problems of the sheet itself."""
    problems: list[SheetProblem] = []
    document: dict[str, Any] = {"discount": {"over": []}, "total": {"over": []}, "margin": {}}
    for row in read_sheet(file, data, COLUMNS, NEEDED, problems):
        rule, name = text_of(row.cells.get("rule", "")), text_of(row.cells.get("name", ""))
        if not rule or (not name and rule not in ASCENDING):
            problems.append(
                row.problem("name", "the row says neither a limit of a rule nor a name", "write e.g. routing, remind_hours, 2")
            )
        elif rule == POLICY:
            document[name] = text_of(row.cells.get("value", ""))
        elif not name:
            document.setdefault(rule, {}).setdefault("over", []).append(_threshold(row, ASCENDING[rule]))
        else:
            table = document.setdefault(rule, {"over": []} if rule in ASCENDING else {})
            table[name] = _threshold(row, BY_NAME[rule]) if rule in BY_NAME else _value(row, rule, name)
    return problems or document


def write_policy_sheet(document: Mapping[str, Any]) -> str:
    """Return the CSV text of a policy's document; `read_policy_sheet` reads it back."""
    return write_sheet(COLUMNS, _rows(document))


def _rows(document: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for rule, table in document.items():
        if not isinstance(table, dict):
            yield {"rule": POLICY, "name": rule, "value": str(table)}
            continue
        for name, part in table.items():
            if name == "over" and rule in ASCENDING:
                yield from ({"rule": rule, **_cells(row, ASCENDING[rule])} for row in part)
            elif rule in BY_NAME:
                yield {"rule": rule, "name": name, **_cells(part, BY_NAME[rule])}
            else:
                yield {"rule": rule, "name": name, "value": _written(part)}


def _cells(row: Mapping[str, Any], key: str) -> dict[str, str]:
    roles = row.get("roles", [row.get("role", "")])
    named = {"value": str(row[key]), "role": cell_of_texts(roles)}
    return named | {name: _written(row[name]) for name in ("roles_needed", "people", "dual_control") if name in row}


def _written(value: object) -> str:
    if isinstance(value, list):
        return cell_of_texts([str(each) for each in value])
    return str(value).lower() if isinstance(value, bool) else str(value)


def _threshold(row: SheetRow, key: str) -> dict[str, Any]:
    roles = texts_of(row.cells.get("role", ""))
    found: dict[str, Any] = {key: row.cells.get("value", "")}
    found |= {"roles": roles} if len(roles) > 1 else {"role": "".join(roles)}
    found |= {name: row.cells[name] for name in ("roles_needed", "people") if name in row.cells}
    return found | ({"dual_control": flag(row, "dual_control")} if "dual_control" in row.cells else {})


def _value(row: SheetRow, rule: str, name: str) -> object:
    cell = row.cells.get("value", "")
    return texts_of(cell) if (rule, name) in LISTS else text_of(cell)
