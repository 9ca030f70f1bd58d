"""Read-only commands of `quotebot catalog` (list, show, diff, lint, export), and the output of all its commands."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- cyclopts reads the annotation when it runs
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from quotebot.cli import catalog_files, exits, tables, terminal
from quotebot.domain.catalogue.ruleset_sheets import EXPORTED, to_sheets
from quotebot.domain.catalogue.rulesets import RulesetError, canonical_ruleset, ruleset_changes
from quotebot.domain.catalogue.rulesets import lint as warnings_of
from quotebot.store import rulesets as store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.domain.catalogue.rulesets import Change, Ruleset
    from quotebot.domain.catalogue.sheets import SheetProblem
    from quotebot.store.rulesets import RulesetVersion

Json = Annotated[bool, Parameter(name="--json", negative="")]
VERSION = re.compile(r"v?([0-9]{1,9})")
PROBLEMS_SHOWN: Final = 100
CHANGES_SHOWN: Final = 200
CELL_CHARACTERS: Final = 80
HASH_CHARACTERS: Final = 12


async def list_versions(version: str | None = None, *, json_output: Json = False) -> int:
    """List the versions, the newest first; or with a version what it sells.

    Parameters
    ----------
    version
        Its number, or active.
    json_output
        Print JSON.
    """
    if version is not None:
        async with terminal.existing_ledger() as ledger:
            found = await find(ledger, version)
        if isinstance(found, int):
            return found
        row, ruleset = found
        if json_output:
            products = [product.document() for _, product in sorted(ruleset.catalogue.products.items())]
            sold = [{name: value for name, value in product.items() if name != "cost"} for product in products]
            tables.print_json({"version": row.version, "products": sold})
        else:
            print_products(ruleset)
        return exits.OK
    async with terminal.existing_ledger() as ledger:
        rows = await ledger.database.read(store.newest)
    if json_output:
        tables.print_json({"versions": [asdict(row) for row in rows]})
    elif rows:
        print_versions(rows)
    else:
        exits.complain("There are no versions yet: the first start of the bot makes version 1 of the built-in sample.")
    return exits.OK


async def show(version: str = "active", *, json_output: Json = False) -> int:
    """Show one version: where it came from, what it holds, and what is doubtful about it.

    Parameters
    ----------
    version
        Its number, or active.
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        found = await find(ledger, version)
    if isinstance(found, int):
        return found
    row, ruleset = found
    warnings = warnings_of(ruleset)
    if json_output:
        holds = {"constraints": len(ruleset.constraints), "taxes": len(ruleset.taxes), "rates": len(ruleset.rates)}
        tables.print_json({"ruleset": {**asdict(row), **holds}, "warnings": list(warnings)})
        return exits.OK
    for name, value in asdict(row).items():
        if value is not None:
            print(f"{name:14} {tables.for_people(name, value)}")
    print_warnings(warnings)
    return exits.OK


async def diff(before: str, after: str = "active", *, json_output: Json = False) -> int:
    """Show what differs between two versions, old and new, field by field.

    Parameters
    ----------
    before
        The older version's number, or active.
    after
        The newer one's; without it the active one.
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        old, new = await find(ledger, before), await find(ledger, after)
    if isinstance(old, int) or isinstance(new, int):
        return exits.NOTHING_MATCHED
    changes = ruleset_changes(old[1], new[1])
    if json_output:
        named = {"before": old[0].version, "after": new[0].version}
        tables.print_json({**named, "changes": [asdict(change) for change in changes]})
    else:
        print_changes(changes)
    return exits.OK


async def lint(*what: str, json_output: Json = False) -> int:
    """Check files, or a stored version: errors, and what is allowed but hardly meant. Writes nothing.

    Exit status: 0 nothing, or only warnings; 3 errors; 64 usage.

    Parameters
    ----------
    what
        The files as for `quotebot catalog import`, or one version's number.
    json_output
        Print JSON.
    """
    ruleset = await _named(what)
    if isinstance(ruleset, int):
        return ruleset
    if isinstance(ruleset, list):
        return print_problems(ruleset, json_output=json_output)
    warnings = warnings_of(ruleset)
    if json_output:
        tables.print_json({"name": ruleset.label, "problems": [], "warnings": list(warnings)})
        return exits.OK
    print_warnings(warnings)
    print(f"{ruleset.label}: no errors, {len(warnings)} {'warning' if len(warnings) == 1 else 'warnings'}.")
    return exits.OK


async def export(
    version: str = "active",
    *,
    table: str | None = None,
    out: Path | None = None,
    json_output: Json = False,
) -> int:
    """Write a version out: the whole document as JSON, or tables as CSV. What was exported can be imported again.

    Parameters
    ----------
    version
        Its number, or active.
    table
        Only this table, as CSV on stdout: products, books, prices, constraints, taxes or rates.
    out
        A folder for all tables as CSV files.
    json_output
        The document as JSON, as without any option.
    """
    if table is not None and table not in EXPORTED:
        return exits.complain(f"There is no table {table!r}: there are {', '.join(EXPORTED)}. Nothing was exported.", exits.USAGE)
    if (table is not None) + (out is not None) + json_output > 1:
        return exits.complain("Give one of --table, --out and --json. Nothing was exported.", exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        found = await find(ledger, version)
    if isinstance(found, int):
        return found
    _, ruleset = found
    if table is not None:
        print(to_sheets(ruleset)[table].replace("\r\n", "\n"), end="")
    elif out is not None:
        try:
            paths = catalog_files.write_folder(out, to_sheets(ruleset))
        except catalog_files.FilesError as error:
            return exits.complain(f"{error}. Choose another folder with --out.", exits.CONFLICT)
        print("\n".join(str(path) for path in paths))
    else:
        print(json.dumps(canonical_ruleset(ruleset), indent=2, ensure_ascii=False))
    return exits.OK


# shared with catalog.py


async def find(ledger: Ledger, named: str) -> tuple[RulesetVersion, Ruleset] | int:
    """Return the version given by number or as "active"; an exit status if there is none."""
    number = VERSION.fullmatch(named.strip().casefold())

    def look(tx: Tx) -> tuple[RulesetVersion, Ruleset] | None:
        row = store.load(tx, int(number[1])) if number else store.active(tx) if named.casefold() == "active" else None
        return None if row is None else (row, store.document(tx, row.version))

    try:
        found = await ledger.database.read(look)
    except RulesetError as error:
        return exits.complain(
            f"Version {named} cannot be read by this build: {error.problems[0]}. Nothing was changed. Import it again.",
            exits.REFUSED,
        )
    if found is None:
        what = f"version {named} of the ruleset" if number else "active version of the ruleset"
        return exits.complain(f"There is no {what}. Nothing was changed. See: quotebot catalog list", exits.NOTHING_MATCHED)
    return found


async def _named(what: tuple[str, ...]) -> Ruleset | list[SheetProblem] | int:
    if not what:
        return exits.complain("Say what to check: files, or a version, e.g. quotebot catalog lint catalogue.toml", exits.USAGE)
    if len(what) == 1 and (VERSION.fullmatch(what[0]) or what[0] == "active"):
        async with terminal.existing_ledger() as ledger:
            found = await find(ledger, what[0])
        return found if isinstance(found, int) else found[1]
    base = (await terminal.active_rules()).ruleset
    try:
        return catalog_files.read(catalog_files.sources(what), base)
    except catalog_files.FilesError as error:
        return exits.complain(f"{error}. Nothing was checked.", exits.USAGE)


def print_problems(problems: Sequence[SheetProblem], *, json_output: bool) -> int:
    """Print the problems, the first hundred, and their number; returns the exit status."""
    shown = problems[:PROBLEMS_SHOWN]
    if json_output:
        listed = [asdict(problem) for problem in shown]
        tables.print_json({"outcome": "bad", "problems": listed, "problem_count": len(problems)})
    else:
        for problem in shown:
            exits.complain(str(problem))
    more = f" The first {len(shown)} are shown." if len(problems) > len(shown) else ""
    return exits.complain(
        f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}.{more} Nothing was imported.", exits.REFUSED
    )


def print_changes(changes: Sequence[Change]) -> None:
    """Print a difference as a table, one line per change."""
    if not changes:
        print("Nothing differs.")
        return
    tables.print_table(
        ("", "Table", "What", "Field", "Before", "After"),
        [
            (change.kind, change.table, _cut(change.key), change.field, _cut(change.old), _cut(change.new))
            for change in changes[:CHANGES_SHOWN]
        ],
    )
    if len(changes) > CHANGES_SHOWN:
        exits.complain(f"{len(changes) - CHANGES_SHOWN:,} more changes; --json shows all of them.")


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings about content that is allowed but probably not intended."""
    for warning in warnings:
        exits.complain(f"Warning: {warning}.")


def print_versions(versions: Sequence[RulesetVersion]) -> None:
    """Print versions as a table, the newest first."""
    tables.print_table(
        ("Version", "State", "Name", "Products", "Books", "Imported", "By", "Hash", "Note"),
        [
            (
                str(each.version),
                each.state,
                each.label,
                f"{each.products:,}",
                f"{each.books:,}",
                tables.time_words(each.imported_at),
                each.imported_by,
                each.hash[:HASH_CHARACTERS],
                each.note or each.origin,
            )
            for each in versions
        ],
    )


def print_products(ruleset: Ruleset) -> None:
    """Print a version's products as a table, without the seller's costs."""
    products = ruleset.catalogue.products
    tables.print_table(
        ("SKU", "Kind", "Billing", "Unit", "On sale", "Price books", "Family", "Name"),
        [
            (
                sku,
                product.kind,
                product.billing,
                product.unit,
                "yes" if product.active else "no",
                str(sum(sku in book.prices for book in ruleset.books)),
                product.family,
                product.name,
            )
            for sku, product in sorted(products.items())
        ],
    )


def _cut(text: str | None) -> str:
    told = "-" if text is None else text
    return told if len(told) <= CELL_CHARACTERS else f"{told[: CELL_CHARACTERS - 1]}…"
