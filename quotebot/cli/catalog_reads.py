"""Read-only commands of `quotebot catalog`: list, show, diff, lint, export. They write nothing to the ledger."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- cyclopts reads the annotation when it runs
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quotebot.cli import catalog_files, catalog_print, dead_letter_tables, exits, opened
from quotebot.domain.catalogue.ruleset_sheets import EXPORTED, to_sheets
from quotebot.domain.catalogue.rulesets import RulesetError, canonical_ruleset, ruleset_changes
from quotebot.domain.catalogue.rulesets import lint as warnings_of
from quotebot.store import rulesets as store

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.catalogue.sheets import SheetProblem
    from quotebot.store.rulesets import RulesetVersion

Json = Annotated[bool, Parameter(name="--json", negative="")]
VERSION = re.compile(r"v?([0-9]{1,9})")


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
        async with opened.existing_ledger() as ledger:
            found = await find(ledger, version)
        if isinstance(found, int):
            return found
        row, ruleset = found
        if json_output:
            products = [product.document() for _, product in sorted(ruleset.catalogue.products.items())]
            sold = [{name: value for name, value in product.items() if name != "cost"} for product in products]
            dead_letter_tables.print_json({"schema_version": 1, "version": row.version, "products": sold})
        else:
            catalog_print.print_products(ruleset)
        return exits.OK
    async with opened.existing_ledger() as ledger:
        rows = await ledger.database.read(store.newest)
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, "versions": [catalog_print.facts(row) for row in rows]})
    elif rows:
        catalog_print.print_versions(rows)
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
    async with opened.existing_ledger() as ledger:
        found = await find(ledger, version)
    if isinstance(found, int):
        return found
    row, ruleset = found
    warnings = warnings_of(ruleset)
    if json_output:
        holds = {"constraints": len(ruleset.constraints), "taxes": len(ruleset.taxes), "rates": len(ruleset.rates)}
        dead_letter_tables.print_json(
            {"schema_version": 1, "ruleset": {**catalog_print.facts(row), **holds}, "warnings": list(warnings)}
        )
        return exits.OK
    catalog_print.print_facts(row)
    catalog_print.print_warnings(warnings)
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
    async with opened.existing_ledger() as ledger:
        old, new = await find(ledger, before), await find(ledger, after)
    if isinstance(old, int) or isinstance(new, int):
        return exits.NOTHING_MATCHED
    changes = ruleset_changes(old[1], new[1])
    if json_output:
        named = {"before": old[0].version, "after": new[0].version}
        dead_letter_tables.print_json({"schema_version": 1, **named, "changes": [asdict(change) for change in changes]})
    else:
        catalog_print.print_changes(changes)
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
        return catalog_print.print_problems(ruleset, json_output=json_output)
    warnings = warnings_of(ruleset)
    if json_output:
        dead_letter_tables.print_json({"schema_version": 1, "name": ruleset.label, "problems": [], "warnings": list(warnings)})
        return exits.OK
    catalog_print.print_warnings(warnings)
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
        return usage(f"There is no table {table!r}: there are {', '.join(EXPORTED)}. Nothing was exported.")
    if (table is not None) + (out is not None) + json_output > 1:
        return usage("Give one of --table, --out and --json. Nothing was exported.")
    async with opened.existing_ledger() as ledger:
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
            exits.complain(f"{error}. Choose another folder with --out.")
            return exits.CONFLICT
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
        exits.complain(f"Version {named} cannot be read by this build: {error.problems[0]}. Nothing was changed. Import it again.")
        return exits.REFUSED
    if found is None:
        what = f"version {named} of the ruleset" if number else "active version of the ruleset"
        exits.complain(f"There is no {what}. Nothing was changed. See: quotebot catalog list")
        return exits.NOTHING_MATCHED
    return found


def usage(message: str) -> int:
    """Print a usage error, and return the exit status."""
    exits.complain(message)
    return exits.USAGE


async def _named(what: tuple[str, ...]) -> Ruleset | list[SheetProblem] | int:
    if not what:
        return usage("Say what to check: files, or a version, e.g. quotebot catalog lint catalogue.toml")
    if len(what) == 1 and (VERSION.fullmatch(what[0]) or what[0] == "active"):
        async with opened.existing_ledger() as ledger:
            found = await find(ledger, what[0])
        return found if isinstance(found, int) else found[1]
    base = (await opened.active_rules()).ruleset
    try:
        return catalog_files.read(catalog_files.sources(what), base)
    except catalog_files.FilesError as error:
        return usage(f"{error}. Nothing was checked.")
