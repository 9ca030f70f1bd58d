"""`quotebot catalog`: versions of the ruleset, imported from files, compared, checked and activated."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 -- cyclopts reads the annotation when it runs
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter
from cyclopts.validators import Number

from quotebot.cli import catalog_files, catalog_print, exits, letters, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.domain.rulesets import Ruleset
    from quotebot.domain.sheets import SheetProblem
    from quotebot.ruleset_changes import Answer, RulesetChanges, Who
    from quotebot.store.rulesets import RulesetVersion

app = App(name="catalog", help="What is sold and for how much: import, compare, check and activate versions of the ruleset.")

Json = Annotated[bool, Parameter(name="--json", negative="")]
Switch = Annotated[bool, Parameter(negative="")]
As = Annotated[str | None, Parameter(name="--as")]
VERSION = re.compile(r"v?([0-9]{1,9})")


@app.command(name="import")
async def import_files(
    *files: str,
    dry_run: Switch = False,
    activate: Switch = False,
    note: str | None = None,
    as_version: str | None = None,
    replaces: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    actor: As = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Read a ruleset as a draft: one TOML or JSON document, or CSV files whose tables replace those of the active version.

    The difference to the active version is shown before anything is written. Exit status: 0 done, 3 refused, or bad rows (all of
    them are named, nothing is imported), 64 usage, 65 the request id was used for something else.

    Parameters
    ----------
    files
        catalogue.toml or .json; or products.csv, books.csv, prices.csv, costs.csv, constraints.csv, taxes.csv, rates.csv. A file of
        another name is given as prices=sheet.csv.
    dry_run
        Only show what would change.
    activate
        Let it price from now on.
    note
        Why, for whoever reads the list.
    as_version
        What the version is called; CSV files count the active one's on.
    replaces
        A draft that goes with it.
    actor
        Who imports, for the audit; the system user without it.
    request_id
        The same id twice is one import; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    from quotebot.domain.lint import lint  # noqa: PLC0415 -- see root.py
    from quotebot.domain.ruleset_diff import ruleset_changes  # noqa: PLC0415 -- see root.py
    from quotebot.ruleset_changes import Import  # noqa: PLC0415 -- see root.py

    try:
        given = catalog_files.sources(files)
        who = _who(actor, request_id, quiet=dry_run)
    except ValueError as error:
        return _usage(f"{error}. Nothing was imported.")
    if not given:
        return _usage("Name the files to import, e.g. quotebot catalog import prices.csv --dry-run")
    async with _changing() as (ledger, changes):
        seen, base = await _active(ledger)
        try:
            ruleset = catalog_files.read(given, base, as_version, await _taken(ledger, base.name))
        except ValueError as error:
            return _usage(f"{error}. Nothing was imported.")
        if isinstance(ruleset, list):
            return catalog_print.print_problems(ruleset, json_output=json_output)
        differences, warnings = ruleset_changes(base, ruleset), lint(ruleset)
        if not json_output:
            catalog_print.print_changes(differences)
            catalog_print.print_warnings(warnings)
        told = {"base": seen, "changes": [asdict(each) for each in differences], "warnings": list(warnings)}
        if dry_run:
            return _dry(told, ruleset, json_output=json_output)
        origin = ", ".join(source.path.name for source in given)
        wanted = Import(ruleset, origin, note, replaces, activate)
        answer = await changes.import_draft(wanted, who, seen=seen)
    return _report(answer, who, told, json_output=json_output)


@app.command(name="list")
async def list_versions(version: str | None = None, *, json_output: Json = False) -> int:
    """List the versions, the newest first; or with a version what it sells.

    Parameters
    ----------
    version
        Its number, or active.
    json_output
        Print JSON.
    """
    from quotebot.store import rulesets as store  # noqa: PLC0415 -- see root.py

    if version is not None:
        async with opened.existing_ledger() as ledger:
            found = await _find(ledger, version)
        if isinstance(found, int):
            return found
        row, ruleset = found
        if json_output:
            products = [product.document() for _, product in sorted(ruleset.catalogue.products.items())]
            sold = [{name: value for name, value in product.items() if name != "cost"} for product in products]
            letters.print_json({"schema_version": 1, "version": row.version, "products": sold})
        else:
            catalog_print.print_products(ruleset)
        return exits.OK
    async with opened.existing_ledger() as ledger:
        rows = await ledger.database.read(store.newest)
    if json_output:
        letters.print_json({"schema_version": 1, "versions": [catalog_print.facts(row) for row in rows]})
    elif rows:
        catalog_print.print_versions(rows)
    else:
        exits.complain("There are no versions yet: the first start of the bot makes version 1 of the built-in sample.")
    return exits.OK


@app.command
async def show(version: str = "active", *, json_output: Json = False) -> int:
    """Show one version: where it came from, what it holds, and what is doubtful about it.

    Parameters
    ----------
    version
        Its number, or active.
    json_output
        Print JSON.
    """
    from quotebot.domain.lint import lint  # noqa: PLC0415 -- see root.py

    async with opened.existing_ledger() as ledger:
        found = await _find(ledger, version)
    if isinstance(found, int):
        return found
    row, ruleset = found
    warnings = lint(ruleset)
    if json_output:
        holds = {"constraints": len(ruleset.constraints), "taxes": len(ruleset.taxes), "rates": len(ruleset.rates)}
        letters.print_json({"schema_version": 1, "ruleset": {**catalog_print.facts(row), **holds}, "warnings": list(warnings)})
        return exits.OK
    catalog_print.print_facts(row)
    catalog_print.print_warnings(warnings)
    return exits.OK


@app.command
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
    from quotebot.domain.ruleset_diff import ruleset_changes  # noqa: PLC0415 -- see root.py

    async with opened.existing_ledger() as ledger:
        old, new = await _find(ledger, before), await _find(ledger, after)
    if isinstance(old, int) or isinstance(new, int):
        return exits.NOTHING_MATCHED
    changes = ruleset_changes(old[1], new[1])
    if json_output:
        named = {"before": old[0].version, "after": new[0].version}
        letters.print_json({"schema_version": 1, **named, "changes": [asdict(change) for change in changes]})
    else:
        catalog_print.print_changes(changes)
    return exits.OK


@app.command
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
    from quotebot.domain.lint import lint as doubts  # noqa: PLC0415 -- see root.py

    ruleset = await _named(what)
    if isinstance(ruleset, int):
        return ruleset
    if isinstance(ruleset, list):
        return catalog_print.print_problems(ruleset, json_output=json_output)
    warnings = doubts(ruleset)
    if json_output:
        letters.print_json({"schema_version": 1, "name": ruleset.label, "problems": [], "warnings": list(warnings)})
        return exits.OK
    catalog_print.print_warnings(warnings)
    print(f"{ruleset.label}: no errors, {len(warnings)} {'warning' if len(warnings) == 1 else 'warnings'}.")
    return exits.OK


@app.command
async def activate(version: str, *, actor: As = None, request_id: str | None = None, json_output: Json = False) -> int:
    """Let a draft price from now on, or a retired version again. The next command is priced by it; what is priced keeps its price.

    Exit status: 0 done, 3 refused (somebody else activated another one meanwhile, say), 4 no such version, 64, 65 as for import.

    Parameters
    ----------
    version
        Its number.
    actor
        Who decides, for the audit; the system user without it.
    request_id
        The same id twice is one activation; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    from quotebot.domain.lint import lint as doubts  # noqa: PLC0415 -- see root.py
    from quotebot.domain.ruleset_diff import ruleset_changes  # noqa: PLC0415 -- see root.py

    try:
        who = _who(actor, request_id)
    except ValueError as error:
        return _usage(f"{error}. Nothing was changed.")
    async with _changing() as (ledger, changes):
        seen, base = await _active(ledger)
        found = await _find(ledger, version)
        if isinstance(found, int):
            return found
        row, ruleset = found
        differences, warnings = ruleset_changes(base, ruleset), doubts(ruleset)
        if not json_output:
            catalog_print.print_changes(differences)
            catalog_print.print_warnings(warnings)
        answer = await changes.activate(row.version, who, seen=seen)
    told = {"base": seen, "changes": [asdict(each) for each in differences], "warnings": list(warnings)}
    return _report(answer, who, told, json_output=json_output)


@app.command
async def discard(version: str, *, actor: As = None, request_id: str | None = None, json_output: Json = False) -> int:
    """Give a draft up. What was ever active is kept, because quotes name it. Options as of `quotebot catalog activate`."""
    try:
        who = _who(actor, request_id)
    except ValueError as error:
        return _usage(f"{error}. Nothing was changed.")
    async with _changing() as (ledger, changes):
        found = await _find(ledger, version)
        if isinstance(found, int):
            return found
        answer = await changes.discard(found[0].version, who)
    return _report(answer, who, {}, json_output=json_output)


@app.command
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
    from quotebot.domain.ruleset_sheets import EXPORTED, to_sheets  # noqa: PLC0415 -- see root.py
    from quotebot.domain.rulesets import canonical_ruleset  # noqa: PLC0415 -- see root.py

    if table is not None and table not in EXPORTED:
        return _usage(f"There is no table {table!r}: there are {', '.join(EXPORTED)}. Nothing was exported.")
    if (table is not None) + (out is not None) + json_output > 1:
        return _usage("Give one of --table, --out and --json. Nothing was exported.")
    async with opened.existing_ledger() as ledger:
        found = await _find(ledger, version)
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


# ------------------------------------------------------------------------------------------------- what they share


@contextlib.asynccontextmanager
async def _changing() -> AsyncIterator[tuple[Ledger, RulesetChanges]]:
    """Open the ledger for a change; one that no bot has started on yet gets its first version."""
    from quotebot.opening import load_rules  # noqa: PLC0415 -- see root.py
    from quotebot.ruleset_changes import RulesetChanges  # noqa: PLC0415 -- see root.py
    from quotebot.settings import load_settings  # noqa: PLC0415 -- see root.py

    async with opened.existing_ledger() as ledger:
        changes = RulesetChanges(ledger)
        await changes.begin(load_rules(load_settings()).ruleset)
        yield ledger, changes


async def _active(ledger: Ledger) -> tuple[int, Ruleset]:
    from quotebot.store import rulesets as store  # noqa: PLC0415 -- see root.py

    def look(tx: Tx) -> tuple[int, Ruleset]:
        row = store.active(tx)
        assert row is not None  # noqa: S101 -- a ledger that has versions has an active one
        return row.version, store.document(tx, row.version)

    return await ledger.database.read(look)


async def _find(ledger: Ledger, named: str) -> tuple[RulesetVersion, Ruleset] | int:
    """Return a version that was named by number, or "active"; an exit status when there is none."""
    from quotebot.store import rulesets as store  # noqa: PLC0415 -- see root.py

    number = VERSION.fullmatch(named.strip().casefold())

    def look(tx: Tx) -> tuple[RulesetVersion, Ruleset] | None:
        row = store.load(tx, int(number[1])) if number else store.active(tx) if named.casefold() == "active" else None
        return None if row is None else (row, store.document(tx, row.version))

    found = await ledger.database.read(look)
    if found is None:
        what = f"version {named} of the ruleset" if number else "active version of the ruleset"
        exits.complain(f"There is no {what}. Nothing was changed. See: quotebot catalog list")
        return exits.NOTHING_MATCHED
    return found


async def _named(what: tuple[str, ...]) -> Ruleset | list[SheetProblem] | int:
    if not what:
        return _usage("Say what to check: files, or a version, e.g. quotebot catalog lint catalogue.toml")
    if len(what) == 1 and (VERSION.fullmatch(what[0]) or what[0] == "active"):
        async with opened.existing_ledger() as ledger:
            found = await _find(ledger, what[0])
        return found if isinstance(found, int) else found[1]
    base = (await opened.active_rules()).ruleset
    try:
        return catalog_files.read(catalog_files.sources(what), base, None, lambda _: False)
    except catalog_files.FilesError as error:
        return _usage(f"{error}. Nothing was checked.")


async def _taken(ledger: Ledger, name: str) -> Callable[[str], bool]:
    from quotebot.store import rulesets as store  # noqa: PLC0415 -- see root.py

    labels = {row.label for row in await ledger.database.read(store.newest)}
    return lambda version: f"{name} {version}" in labels


def _who(actor: str | None, request_id: str | None, *, quiet: bool = False) -> Who:
    """Check who asks and under which id; a fresh id is printed before anything is done. Raises ValueError."""
    import uuid  # noqa: PLC0415 -- see root.py

    from quotebot.cli.quote_work import REQUEST_ID  # noqa: PLC0415 -- see root.py
    from quotebot.ruleset_changes import Who  # noqa: PLC0415 -- see root.py

    checked = letters.checked_actor(actor, opened.operator())
    if request_id is not None and not REQUEST_ID.fullmatch(request_id):
        raise ValueError("--request-id is 1 to 100 printable characters without spaces")
    if request_id is None:
        request_id = uuid.uuid4().hex
        if not quiet:
            exits.complain(f"Request id {request_id}: give it again with --request-id and nothing is done twice.")
    return Who(checked, request_id)


def _dry(told: dict[str, object], ruleset: Ruleset, *, json_output: bool) -> int:
    if json_output:
        letters.print_json({"schema_version": 1, "dry_run": True, "outcome": "not imported", "name": ruleset.label, **told})
    else:
        exits.complain(f"It would be imported as {ruleset.label}. Nothing was written.")
    return exits.OK


def _report(answer: Answer, who: Who, told: dict[str, object], *, json_output: bool) -> int:
    done = answer.outcome in ("applied", "unchanged")
    if json_output:
        letters.print_json({"schema_version": 1, "request_id": who.request_id, **asdict(answer), **told})
    elif done:
        print(answer.text)
    else:
        exits.complain(answer.text)
    return STATUSES[answer.outcome]


STATUSES: Final[Mapping[str, int]] = {
    "applied": exits.OK,
    "unchanged": exits.OK,
    "refused": exits.REFUSED,
    "conflict": exits.CONFLICT,
    "not_found": exits.NOTHING_MATCHED,
}


def _usage(message: str) -> int:
    exits.complain(message)
    return exits.USAGE
