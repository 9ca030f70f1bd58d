"""Output of `quotebot catalog`: versions, products, differences, and the problems of a file."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from quotebot.cli import dead_letter_tables, exits, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.domain.catalogue.rulesets import Change, Ruleset
    from quotebot.domain.catalogue.sheets import SheetProblem
    from quotebot.store.rulesets import RulesetVersion

PROBLEMS_SHOWN: Final = 100
CHANGES_SHOWN: Final = 200
CELL_CHARACTERS: Final = 80
HASH_CHARACTERS: Final = 12


def print_problems(problems: Sequence[SheetProblem], *, json_output: bool) -> int:
    """Print the problems, the first hundred, and their number; returns the exit status."""
    shown = problems[:PROBLEMS_SHOWN]
    if json_output:
        listed = [asdict(problem) for problem in shown]
        dead_letter_tables.print_json({"schema_version": 1, "outcome": "bad", "problems": listed, "problem_count": len(problems)})
    else:
        for problem in shown:
            exits.complain(str(problem))
    more = f" The first {len(shown)} are shown." if len(problems) > len(shown) else ""
    exits.complain(f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}.{more} Nothing was imported.")
    return exits.REFUSED


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
                dead_letter_tables.time_words(each.imported_at),
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


def print_facts(version: RulesetVersion) -> None:
    """Print the facts of one version."""
    for name, value in facts(version).items():
        if value is not None:
            print(f"{name:14} {dead_letter_tables.for_people(name, value)}")


def facts(version: RulesetVersion) -> dict[str, Any]:
    """Return a version in its JSON form; times are Unix milliseconds."""
    return asdict(version)


def _cut(text: str | None) -> str:
    told = "-" if text is None else text
    return told if len(told) <= CELL_CHARACTERS else f"{told[: CELL_CHARACTERS - 1]}…"
