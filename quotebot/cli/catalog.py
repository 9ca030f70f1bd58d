"""`quotebot catalog`: versions of the ruleset, imported from files, compared, checked and activated."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter
from cyclopts.validators import Number

from quotebot.app.installation import load_rules
from quotebot.cli import catalog_files, catalog_reads, exits, tables, terminal
from quotebot.cli.quote_work import REQUEST_ID
from quotebot.domain.catalogue.rulesets import lint, ruleset_changes
from quotebot.jobs.rulesets import Import, RulesetChanges, Who
from quotebot.settings import load_settings
from quotebot.store import rulesets as store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.jobs.rulesets import RulesetAnswer

app = App(name="catalog", help="Import, compare and activate products and prices")
app.command(catalog_reads.list_versions, name="list")
app.command(catalog_reads.show)
app.command(catalog_reads.diff)
app.command(catalog_reads.lint)
app.command(catalog_reads.export)

Json = Annotated[bool, Parameter(name="--json", negative="")]
Switch = Annotated[bool, Parameter(negative="")]
As = Annotated[str | None, Parameter(name="--as")]


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
    """Read a ruleset as a draft: one TOML, JSON or YAML document, or CSV files whose tables replace those of the active version.

    The difference to the active version is shown before anything is written. Exit status: 0 done, 3 refused, or bad rows (all of
    them are named, nothing is imported), 64 usage, 65 the request id was used for something else.

    Parameters
    ----------
    files
        catalogue.toml, .json or .yaml; or products.csv, books.csv, prices.csv, costs.csv, constraints.csv, taxes.csv, rates.csv.
        A file of another name is given as prices=sheet.csv.
    dry_run
        Only show what would change.
    activate
        Let it price from now on.
    note
        The reason, for readers of the list.
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
    try:
        who = identified(actor, request_id, quiet=dry_run)
        given = catalog_files.sources(files)
    except ValueError as error:
        return exits.complain(f"{error}. Nothing was imported.", exits.USAGE)
    if not given:
        return exits.complain("Name the files to import, e.g. quotebot catalog import prices.csv --dry-run", exits.USAGE)
    async with changing(dry_run=dry_run) as (ledger, changes):
        seen, base = await active_version(ledger)
        ruleset = catalog_files.read(given, base, as_version, await known_hashes(ledger, base.name))
        if isinstance(ruleset, list):
            return catalog_reads.print_problems(ruleset, json_output=json_output)
        told = {"base": seen, **compared(base, ruleset, json_output=json_output)}
        if dry_run and json_output:
            tables.print_json({"dry_run": True, "outcome": "not imported", "name": ruleset.label, **told})
            return exits.OK
        if dry_run:
            return exits.complain(f"It would be imported as {ruleset.label}. Nothing was written.", exits.OK)
        origin = ", ".join(source.path.name for source in given)
        wanted = Import(ruleset, origin, note, replaces, activate, catalog_files.fingerprint(given, as_version))
        answer = await changes.import_draft(wanted, who, seen=seen)
    return report(answer, who, told, json_output=json_output)


@app.command
async def activate(version: str, *, actor: As = None, request_id: str | None = None, json_output: Json = False) -> int:
    """Let a draft price from now on, or a retired version again. The next command is priced by it; what is priced keeps its price.

    Exit status: 0 done, 3 refused (somebody else activated another one meanwhile, say), 4 no such version, 64, 65 as for import.

    Parameters
    ----------
    version
        Its number.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    request_id
        The same id twice is one activation; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    try:
        who = identified(actor, request_id)
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    async with changing() as (ledger, changes):
        seen, base = await active_version(ledger)
        found = await catalog_reads.find(ledger, version)
        if isinstance(found, int):
            return found
        row, ruleset = found
        told = {"base": seen, **compared(base, ruleset, json_output=json_output)}
        answer = await changes.activate(row.version, who, seen=seen)
    return report(answer, who, told, json_output=json_output)


@app.command
async def discard(version: str, *, actor: As = None, request_id: str | None = None, json_output: Json = False) -> int:
    """Give a draft up. What was ever active is kept, because quotes name it. Options as of `quotebot catalog activate`."""
    try:
        who = identified(actor, request_id)
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    async with changing() as (ledger, changes):
        found = await catalog_reads.find(ledger, version)
        if isinstance(found, int):
            return found
        answer = await changes.discard(found[0].version, who)
    return report(answer, who, {}, json_output=json_output)


# ------------------------------------------------------------------------------------------------- shared helpers


@contextlib.asynccontextmanager
async def changing(*, dry_run: bool = False) -> AsyncIterator[tuple[Ledger, RulesetChanges]]:
    """Open the ledger for a change; a ledger without a ruleset gets its first version."""
    async with terminal.existing_ledger() as ledger:
        changes = RulesetChanges(ledger, review=load_settings().ruleset_review)
        if not dry_run:
            await changes.begin(_builtin())
        yield ledger, changes


def _builtin() -> Ruleset:
    return load_rules(load_settings()).ruleset


async def active_version(ledger: Ledger) -> tuple[int | None, Ruleset]:
    """Return the active version's number and its ruleset; the number is None before the first start of a bot."""

    def look(tx: Tx) -> tuple[int | None, Ruleset]:
        row = store.active(tx)
        return (None, _builtin()) if row is None else (row.version, store.document(tx, row.version))

    return await ledger.database.read(look)


async def known_hashes(ledger: Ledger, name: str) -> dict[str, str]:
    """Return the hashes of the newest versions with this name, by the version in their documents."""
    rows = await ledger.database.read(store.newest)
    begin = f"{name} "
    kept = [row for row in rows if row.label.startswith(begin) and row.state != "discarded"]
    return {row.label.removeprefix(begin): row.hash for row in kept}


def identified(actor: str | None, request_id: str | None, *, quiet: bool = False) -> Who:
    """Check the actor and the request id; a fresh id is printed before the change. Raises ValueError."""
    if actor is not None and load_settings().ruleset_review:
        raise ValueError("--as is not accepted: with ruleset_review two people are told apart by their system users")
    checked = terminal.operator(actor)
    if request_id is not None and not REQUEST_ID.fullmatch(request_id):
        raise ValueError("--request-id is 1 to 100 printable characters without spaces")
    if request_id is None:
        request_id = uuid.uuid4().hex
        if not quiet:
            exits.complain(f"Request id {request_id}: give it again with --request-id and nothing is done twice.")
    return Who(checked, request_id)


def compared(base: Ruleset, ruleset: Ruleset, *, json_output: bool) -> dict[str, object]:
    """Return the difference between two rulesets and the warnings about the second; print them unless JSON is printed later."""
    differences, warnings = ruleset_changes(base, ruleset), lint(ruleset)
    if not json_output:
        catalog_reads.print_changes(differences)
        catalog_reads.print_warnings(warnings)
    return {"changes": [asdict(each) for each in differences], "warnings": list(warnings)}


def report(answer: RulesetAnswer, who: Who, told: Mapping[str, object], *, json_output: bool) -> int:
    """Print the outcome of a change and return its exit status."""
    done = answer.outcome in ("applied", "unchanged")
    if json_output:
        tables.print_json({"request_id": who.request_id, **asdict(answer), **told})
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
