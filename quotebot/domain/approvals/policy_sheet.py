"""Approval policy as one CSV file: a row per rule or setting, read into the plain document of policy_document.py and written. Pure.

rule      name           value     role                  roles_needed  people  dual_control
policy    name           sample
discount                 10        sales_manager
discount  blocked_over   40
margin    saas           60        cfo
total                    100000    deal_desk | legal      all
routing   remind_hours   2
roles     ladder         deal_desk | cfo

A list without a value is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.approvals.policy_document import KEYS
from quotebot.domain.catalogue.reader import shown
from quotebot.domain.catalogue.sheets import SheetProblem, cell_of_texts, flag, number, read_sheet, text_of, texts_of, write_sheet
from quotebot.domain.language import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quotebot.domain.catalogue.sheets import SheetRow

COLUMNS: Final = ("rule", "name", "value", "role", "roles_needed", "people", "dual_control")
NEEDED: Final = ("rule", "value")
POLICY: Final = "policy"  # rule of the rows with the name, the version and the currency
TEXTS: Final = ("name", "version", "currency")
INNER: Final[Mapping[str, tuple[str, ...]]] = {  # tables inside a table
    name: tuple(name.split(".")) for name in ("terms.groups", *(f"terms.names.{each}" for each in LANGUAGES), "roles.names")
}
_INSIDE: Final = frozenset(path[:2] for path in INNER.values())
RULES: Final = (POLICY, *(key for key in KEYS if key not in TEXTS), *INNER)
ASCENDING: Final[Mapping[str, str]] = {"discount": "percent", "total": "amount", "term": "months", "payment": "days"}
BY_NAME: Final[Mapping[str, str]] = {"margin": "under", "quantity": "over"}
NUMBERS: Final = frozenset(
    {("discount", "blocked_over"), *(("routing", f"{name}_hours") for name in ("remind", "escalate", "expire"))}
)
LISTS: Final = frozenset(
    {
        ("terms", "legal"),
        ("terms", "other"),
        ("calendar", "days"),
        ("calendar", "holidays"),
        ("roles", "ladder"),
        ("roles", "beside"),
    }
)


def read_policy_sheet(file: str, data: bytes) -> dict[str, Any] | list[SheetProblem]:
    """Return the plain document of a sheet, which `read_policy` checks, or the problems of the sheet itself."""
    problems: list[SheetProblem] = []
    document: dict[str, Any] = {"discount": {"over": []}, "total": {"over": []}, "margin": {}}
    for row in read_sheet(file, data, COLUMNS, NEEDED, problems):
        rule, name = text_of(row.cells.get("rule", "")), text_of(row.cells.get("name", ""))
        if problem := _problem(row, rule, name, document):
            problems.append(problem)
        elif rule == POLICY:
            document[name] = text_of(row.cells["value"])
        elif rule in INNER:
            _inner(document, rule)[name] = text_of(row.cells["value"])
        elif not name:
            document.setdefault(rule, {}).setdefault("over", []).append(_threshold(row, ASCENDING[rule], problems))
        else:
            table = document.setdefault(rule, {"over": []} if rule in ASCENDING else {})
            table[name] = _threshold(row, BY_NAME[rule], problems) if rule in BY_NAME else _value(row, rule, name, problems)
    return problems or document


def _problem(row: SheetRow, rule: str, name: str, document: dict[str, Any]) -> SheetProblem | None:
    """Return why a row cannot be read, whatever its value; None for a readable one."""
    if not rule or (not name and rule not in ASCENDING):
        return row.problem("name", "the row says neither a limit of a rule nor a name", "write e.g. routing, remind_hours, 2")
    if rule not in RULES:
        return row.problem("rule", f"{shown(rule)} is no rule", f"known are {', '.join(RULES)}")
    if (rule == POLICY and name not in TEXTS) or (rule in ASCENDING and name == "over") or (rule, name) in _INSIDE:
        return row.problem("name", f"{rule} has no setting of the name {name}", "remove the name, or correct it")
    there = _inner(document, rule) if rule in INNER else document if rule == POLICY else document.get(rule, {})
    if name and name in there:
        return row.problem("name", f"there is another row for {rule} {name}", "keep one")
    if "value" not in row.cells and (rule, name) not in LISTS:
        return row.problem("value", "the row has no value", "write it, or remove the row")
    return None


def _inner(document: dict[str, Any], rule: str) -> dict[str, Any]:
    found = document
    for name in INNER[rule]:
        found = found.setdefault(name, {})
    return found


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
            elif isinstance(part, dict):
                yield from _inside(f"{rule}.{name}", part)
            else:
                yield {"rule": rule, "name": name, "value": _written(part)}


def _inside(rule: str, table: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _inside(f"{rule}.{name}", value)
        else:
            yield {"rule": rule, "name": name, "value": value}


def _cells(row: Mapping[str, Any], key: str) -> dict[str, str]:
    roles = row.get("roles", [row.get("role", "")])
    named = {"value": str(row[key]), "role": cell_of_texts(roles)}
    return named | {name: _written(row[name]) for name in ("roles_needed", "people", "dual_control") if name in row}


def _written(value: object) -> str:
    if isinstance(value, list):
        return cell_of_texts([str(each) for each in value])
    return str(value).lower() if isinstance(value, bool) else str(value)


def _threshold(row: SheetRow, key: str, problems: list[SheetProblem]) -> dict[str, Any]:
    roles = texts_of(row.cells.get("role", ""))
    found: dict[str, Any] = {key: number(row, "value", problems)}
    found |= {"roles": roles} if len(roles) > 1 else {"role": roles[0] if roles else ""}
    found |= {name: row.cells[name] for name in ("roles_needed", "people") if name in row.cells}
    return found | ({"dual_control": flag(row, "dual_control")} if "dual_control" in row.cells else {})


def _value(row: SheetRow, rule: str, name: str, problems: list[SheetProblem]) -> object:
    if (rule, name) in NUMBERS:
        return number(row, "value", problems)
    if (rule, name) == ("routing", "full_ladder"):
        return flag(row, "value")
    cell = row.cells.get("value", "")
    return texts_of(cell) if (rule, name) in LISTS else text_of(cell)
