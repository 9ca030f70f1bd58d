"""`quotebot approval-policy`: the approval policy of the ruleset, imported from a file, compared, checked and previewed.

The policy is part of a ruleset version: importing one makes a draft with the prices of the active version, and
`quotebot catalog activate` puts it into force. `quotebot policy` is something else, the retry matrix.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import yaml
from cyclopts import App, Parameter
from cyclopts.validators import Number

from ledger import keys
from quotebot.cli import catalog, catalog_files, catalog_reads, exits, tables, terminal
from quotebot.domain.approvals.policy_document import PolicyError, lint_policy, policy_document, read_policy
from quotebot.domain.approvals.policy_sheet import read_policy_sheet, write_policy_sheet
from quotebot.domain.catalogue import ruleset_sheets
from quotebot.domain.catalogue.reader import DocumentError, read_json, read_toml
from quotebot.domain.catalogue.rulesets import ruleset_changes, with_policy
from quotebot.jobs.policy_preview import preview_policy
from quotebot.jobs.rulesets import Import

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.cli.catalog_files import CatalogSource
    from quotebot.domain.approvals.policy import ApprovalPolicy
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.jobs.policy_preview import PreviewedQuote

app = App(name="approval-policy", help="Import, check and preview the approval policy")

DAYS_MAX: Final = 3650
SHOWN_MAX: Final = 50
SHEET: Final = ".csv"
Json = Annotated[bool, Parameter(name="--json", negative="")]
Switch = Annotated[bool, Parameter(negative="")]
As = Annotated[str | None, Parameter(name="--as")]
Days = Annotated[int, Parameter(validator=Number(gte=1, lte=DAYS_MAX))]


@app.command
async def show(
    version: str = "active", *, csv_output: Annotated[bool, Parameter(name="--csv", negative="")] = False, json_output: Json = False
) -> int:
    """Show the approval policy of a version, as the YAML that `import` reads.

    Parameters
    ----------
    version
        The ruleset version's number, or active.
    csv_output
        Print the CSV that `import` reads, for a spreadsheet.
    json_output
        Print JSON.
    """
    found = await _stored(version)
    if isinstance(found, int):
        return found
    policy, own = found
    document = policy_document(policy)
    if json_output:
        tables.print_json({"policy": document, "origin": "ruleset" if own else "built in"})
        return exits.OK
    if csv_output:
        print(write_policy_sheet(document).replace("\r\n", "\n"), end="")
        return exits.OK
    print(f"# {policy.label}" + ("" if own else ", the policy that ships with Quotebot: the ruleset has none of its own"))
    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    return exits.OK


@app.command(name="import")
async def import_file(
    file: str,
    *,
    dry_run: Switch = False,
    activate: Switch = False,
    note: str | None = None,
    as_version: str | None = None,
    actor: As = None,
    request_id: str | None = None,
    json_output: Json = False,
) -> int:
    """Read an approval policy from a TOML, JSON, YAML or CSV file as a draft, with the prices of the active ruleset version.

    The difference to the active policy is shown before anything is written. Exit status as of `quotebot catalog import`.

    Parameters
    ----------
    file
        The policy, e.g. policy.yaml; docs/approvals.md describes it.
    dry_run
        Only show what would change.
    activate
        Let it decide from now on.
    note
        The reason, for readers of the list.
    as_version
        The name of the ruleset version; without it the active one's is counted on.
    actor
        The person who imports, for the audit; the system user without it.
    request_id
        The same id twice is one import; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    try:
        who = catalog.identified(actor, request_id, quiet=dry_run)
    except ValueError as error:
        return exits.complain(f"{error}. Nothing was imported.", exits.USAGE)
    read = _read(file)
    if isinstance(read, int):
        return read
    source, policy = read
    async with catalog.changing(dry_run=dry_run) as (ledger, changes):
        seen, base = await catalog.active_version(ledger)
        named = await catalog.known_hashes(ledger, base.name)
        ruleset = with_policy(base, policy, as_version or ruleset_sheets.next_version(base.version, named.__contains__))
        if base.policy == policy:
            ruleset = base
        compared = await _compared(base, ruleset, json_output=json_output)
        told = {"base": seen, **compared}
        if dry_run and json_output:
            tables.print_json({"dry_run": True, "outcome": "not imported", "name": ruleset.label, **told})
            return exits.OK
        if dry_run:
            return exits.complain(f"It would be imported as {ruleset.label}. Nothing was written.", exits.OK)
        given = keys.digest(["policy", as_version, keys.sha256(source.data)])
        answer = await changes.import_draft(Import(ruleset, source.path.name, note, None, activate, given), who, seen=seen)
    return catalog.report(answer, who, told, json_output=json_output)


@app.command
async def diff(before: str, after: str = "active", *, json_output: Json = False) -> int:
    """Show what differs between the approval policies of two ruleset versions.

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
        old, new = await catalog_reads.find(ledger, before), await catalog_reads.find(ledger, after)
    if isinstance(old, int) or isinstance(new, int):
        return exits.NOTHING_MATCHED
    builtin = (await terminal.active_rules()).builtin_policy
    changes = _policy_changes(_with_own(old[1], builtin), _with_own(new[1], builtin))
    if json_output:
        tables.print_json({"before": old[0].version, "after": new[0].version, "changes": [asdict(change) for change in changes]})
    else:
        catalog_reads.print_changes(changes)
    return exits.OK


@app.command
async def lint(what: str = "active", *, json_output: Json = False) -> int:
    """Check an approval policy beside the active catalogue and the holders of roles. Writes nothing.

    It names families without a margin floor, rules that apply to nothing, and roles without a holder.
    Exit status: 0 nothing, or only warnings; 3 errors; 64 usage.

    Parameters
    ----------
    what
        A file, or a ruleset version's number, or active.
    json_output
        Print JSON.
    """
    policy = await _named(what)
    if isinstance(policy, int):
        return policy
    warnings = await _warnings(policy)
    if json_output:
        tables.print_json({"name": policy.label, "warnings": list(warnings)})
        return exits.OK
    catalog_reads.print_warnings(warnings)
    print(f"{policy.label}: no errors, {len(warnings)} {'warning' if len(warnings) == 1 else 'warnings'}.")
    return exits.OK


@app.command
async def preview(what: str, *, days: Days = 90, json_output: Json = False) -> int:
    """Show which quotes of the last days would need other approvers under a policy than under the active one. Writes nothing.

    Parameters
    ----------
    what
        A file, or a ruleset version's number.
    days
        The age of the quotes, by the time their newest version was priced.
    json_output
        Print JSON.
    """
    policy = await _named(what)
    if isinstance(policy, int):
        return policy
    active = (await terminal.active_rules()).policy
    async with terminal.existing_ledger() as ledger:
        found = await preview_policy(ledger, active, policy, days=days)
    if json_output:
        counted = {"before": dict(found.before), "after": dict(found.after)}
        changed = [asdict(quote) for quote in found.changed]
        tables.print_json({"policy": policy.label, "days": days, "quotes": found.quotes, **counted, "changed": changed})
        return exits.OK
    words = f"{found.quotes:,} {'quote' if found.quotes == 1 else 'quotes'} of the last {days} days"
    print(f"{words}; {len(found.changed):,} would need other approvers under {policy.label}.")
    roles = sorted({*found.before, *found.after})
    tables.print_table(
        ("Approval by", active.label, policy.label), [(role, str(found.before[role]), str(found.after[role])) for role in roles]
    )
    if found.changed:
        print()
        tables.print_table(("Quote", "Customer", "Total", "Today", "Then", "Reasons"), _rows(found.changed))
    if len(found.changed) > SHOWN_MAX:
        exits.complain(f"{len(found.changed) - SHOWN_MAX:,} more; --json shows all of them.")
    return exits.OK


# ------------------------------------------------------------------------------------------------- shared helpers


def _rows(quotes: Sequence[PreviewedQuote]) -> list[tuple[str, ...]]:
    return [
        (quote.quote_id, quote.account, quote.total, quote.before, quote.after, "; ".join(quote.reasons))
        for quote in quotes[:SHOWN_MAX]
    ]


def _read(file: str) -> tuple[CatalogSource, ApprovalPolicy] | int:
    """Read a policy file; an exit status, with the reason printed, if it cannot be read."""
    sheet = file.casefold().endswith(SHEET)
    try:
        (source,) = catalog_files.sources([f"products={file}" if sheet else file])
    except catalog_files.FilesError as error:
        return exits.complain(f"{error}. Nothing was imported.", exits.USAGE)
    if source.table is not None and not sheet:
        return exits.complain(f"{file}: a policy is a TOML, JSON, YAML or CSV file. Nothing was imported.", exits.USAGE)
    try:
        return source, read_policy(_plain(source))
    except (PolicyError, DocumentError, catalog_files.YamlError, UnicodeDecodeError) as error:
        return exits.complain(f"{source.name}: {error}. Nothing was imported.", exits.REFUSED)


def _plain(source: CatalogSource) -> Mapping[str, Any]:
    if source.path.suffix.casefold() == SHEET:
        found = read_policy_sheet(source.name, source.data)
        if isinstance(found, list):
            raise PolicyError("; ".join(str(problem).removeprefix(f"{source.name}, ") for problem in found))
        return found
    text, suffix = source.data.decode("utf-8-sig"), source.path.suffix.casefold()
    document: object
    if suffix in catalog_files.YAML:
        document, _ = catalog_files.read_yaml(text)
    else:
        document = read_json(text) if suffix == ".json" else read_toml(text)
    if not isinstance(document, dict):
        raise PolicyError("a policy is a table: write name, version, currency, discount, total and margin")
    return document


async def _stored(version: str) -> tuple[ApprovalPolicy, bool] | int:
    """Return the policy of a stored version, and whether the version has one of its own."""
    rules = await terminal.active_rules()
    if version == "active":
        return rules.policy, rules.ruleset.policy is not None
    async with terminal.existing_ledger() as ledger:
        found = await catalog_reads.find(ledger, version)
    if isinstance(found, int):
        return found
    return found[1].policy or rules.builtin_policy, found[1].policy is not None


async def _named(what: str) -> ApprovalPolicy | int:
    if what == "active" or catalog_reads.VERSION.fullmatch(what):
        found = await _stored(what)
        return found if isinstance(found, int) else found[0]
    read = _read(what)
    return read if isinstance(read, int) else read[1]


async def _warnings(policy: ApprovalPolicy) -> tuple[str, ...]:
    rules = await terminal.active_rules()
    products = rules.catalogue.products
    sold = {sku: product for sku, product in products.items() if product.active and product.kind != "bundle"}
    return lint_policy(policy, {product.family for product in sold.values()}, products, rules.approvers)


def _with_own(ruleset: Ruleset, builtin: ApprovalPolicy) -> Ruleset:
    return ruleset if ruleset.policy is not None else with_policy(ruleset, builtin, ruleset.version)


def _policy_changes(before: Ruleset, after: Ruleset) -> tuple[Any, ...]:
    return tuple(change for change in ruleset_changes(before, after) if change.table == "policy")


async def _compared(base: Ruleset, ruleset: Ruleset, *, json_output: bool) -> dict[str, object]:
    """Return the difference between two policies and the warnings about the second; print them unless JSON is printed later."""
    builtin = (await terminal.active_rules()).builtin_policy
    changes = _policy_changes(_with_own(base, builtin), _with_own(ruleset, builtin))
    warnings = await _warnings(ruleset.policy or builtin)
    if not json_output:
        catalog_reads.print_changes(changes)
        catalog_reads.print_warnings(warnings)
    return {"changes": [asdict(change) for change in changes], "warnings": list(warnings)}
