"""Files of `quotebot catalog`: reads one document, or CSV files over a version; writes CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger import keys
from quotebot.cli.catalog_yaml import YamlError, read_yaml
from quotebot.domain.catalogue import ruleset_sheets
from quotebot.domain.catalogue.ruleset_sheets import COLUMNS, table_of
from quotebot.domain.catalogue.rulesets import RulesetError, parse_ruleset, parse_ruleset_json, parse_ruleset_toml, renamed
from quotebot.domain.catalogue.sheets import BYTES_MAX, SheetProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.catalogue.sheets import SheetRow

YAML: Final = (".yaml", ".yml")
DOCUMENTS: Final = (".toml", ".json", *YAML)
LOOKED_AT: Final = 5  # limit of known versions that are compared with the sheets
NOTHING_KNOWN: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class CatalogSource:
    """One file as named and read: `table` is set for CSV."""

    name: str
    path: Path
    table: str | None
    data: bytes


class FilesError(ValueError):
    """Unusable combination or naming of files; the message gives the reason."""


def sources(names: Sequence[str]) -> list[CatalogSource]:
    """Read the named files, e.g. catalogue.toml, prices-2027.csv or prices=sheet.csv. Raises FilesError."""
    named = [_named(name) for name in names]
    whole = next((path for path, table in named if table is None), None)
    if whole is not None and len(named) > 1:
        raise FilesError(f"{whole} is a whole ruleset: give it alone, or give CSV files for single tables")
    return [CatalogSource(str(path), path, table, _bytes(path)) for path, table in named]


def read(
    given: Sequence[CatalogSource], base: Ruleset, as_version: str | None = None, known: Mapping[str, str] = NOTHING_KNOWN
) -> Ruleset | list[SheetProblem]:
    """Return the ruleset of the files, with CSV files applied to `base`, or all their problems.

    `known` are the hashes of the existing versions, by the version in their documents, the newest first: sheets with the content of
    one of the newest versions are that version.
    """
    if given[0].table is None:
        return _document(given[0], as_version)
    found = _sheets(given, base, as_version, known)
    if as_version is not None or isinstance(found, list):
        return found

    for name, known_hash in ((base.version, base.hash), *islice(known.items(), LOOKED_AT)):
        same = renamed(found, name)
        if same.hash == known_hash:
            return same
    return found


def fingerprint(given: Sequence[CatalogSource], as_version: str | None) -> str:
    """Return a digest that identifies the files as read, 64 hex digits."""
    return keys.digest([as_version, *([source.table, keys.sha256(source.data)] for source in given)])


def write_folder(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write one CSV file per table. Raises FilesError if one exists already or cannot be written."""
    paths = [folder / f"{table}.csv" for table in texts]
    there = [path for path in paths if path.exists()]
    if there:
        raise FilesError(f"{there[0]} is there already")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text, "utf-8", newline="")
    except OSError as error:
        raise FilesError(f"{folder} cannot be written ({error.strerror})") from error
    return paths


def _named(name: str) -> tuple[Path, str | None]:

    before, sign, after = name.partition("=")
    if sign and before in COLUMNS:
        return Path(after), before
    path = Path(name)
    if path.suffix.casefold() in DOCUMENTS:
        return path, None
    table = table_of(path.name)
    if table is None:
        tables = ", ".join(COLUMNS)
        raise FilesError(f"{name} does not say which table it holds: call it e.g. prices.csv, or write prices={name} ({tables})")
    return path, table


def _bytes(path: Path) -> bytes:

    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise FilesError(f"{path} cannot be read ({error.strerror})") from error
    if len(data) > BYTES_MAX:
        raise FilesError(f"{path} has more than {BYTES_MAX:,} bytes: split it")
    return data


def _sheets(
    given: Sequence[CatalogSource], base: Ruleset, as_version: str | None, known: Mapping[str, str]
) -> Ruleset | list[SheetProblem]:

    problems: list[SheetProblem] = []
    tables: dict[str, list[SheetRow]] = {}
    for source in given:
        assert source.table is not None  # noqa: S101 -- sources() takes a document alone
        rows = ruleset_sheets.read_rows(source.table, source.name, source.data, problems)
        tables.setdefault(source.table, []).extend(rows)
    if problems:  # problems of the files themselves: the meaning of their rows is unclear
        return problems
    version = as_version or ruleset_sheets.next_version(base.version, known.__contains__)
    edited = ruleset_sheets.edited(base, version, tables, problems)
    try:
        ruleset = parse_ruleset(edited.document)
    except RulesetError as error:
        return _in_order(edited.with_those_of(error.problems), given)
    return _in_order(problems, given) if problems else ruleset


def _document(source: CatalogSource, as_version: str | None) -> Ruleset | list[SheetProblem]:

    lines: dict[tuple[str | int, ...], int] = {}
    try:
        ruleset = _parsed(source, lines)
        return ruleset if as_version is None else renamed(ruleset, as_version)
    except UnicodeDecodeError as error:
        line = source.data.count(b"\n", 0, error.start) + 1
        return [SheetProblem(source.name, line, None, None, "the text is not UTF-8", "save the file as UTF-8")]
    except YamlError as error:
        return [SheetProblem(source.name, error.line, None, None, f"it is not valid YAML: {error}", "correct the text")]
    except RulesetError as error:
        return [
            SheetProblem(source.name, _line(problem.path, lines), problem.place or None, None, problem.message, problem.suggestion)
            for problem in error.problems
        ]


def _parsed(source: CatalogSource, lines: dict[tuple[str | int, ...], int]) -> Ruleset:
    """Parse a document by its kind; YAML also gives the lines of its parts.

    Raises UnicodeDecodeError, YamlError or RulesetError.
    """
    text, suffix = source.data.decode("utf-8-sig"), source.path.suffix.casefold()
    if suffix not in YAML:
        return (parse_ruleset_json if suffix == ".json" else parse_ruleset_toml)(text)
    document, found = read_yaml(text)
    lines.update(found)
    return parse_ruleset(document)


def _line(path: tuple[str | int, ...], lines: Mapping[tuple[str | int, ...], int]) -> int | None:
    """Return the line of a part of the document, or of the nearest enclosing part."""
    return next((lines[path[:length]] for length in range(len(path), -1, -1) if path[:length] in lines), None)


def _in_order(problems: list[SheetProblem], given: Sequence[CatalogSource]) -> list[SheetProblem]:
    order = {source.name: number for number, source in enumerate(given)}
    return sorted(problems, key=lambda problem: (order.get(problem.file, len(order)), problem.line or 0))
