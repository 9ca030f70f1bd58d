"""Files of `quotebot catalog`: reads one document, or CSV files over a version; writes CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from ledger import keys
from quotebot.domain.catalogue import ruleset_sheets
from quotebot.domain.catalogue.reader import LEVELS_MAX
from quotebot.domain.catalogue.ruleset_sheets import COLUMNS, table_of
from quotebot.domain.catalogue.rulesets import (
    RulesetError,
    parse_ruleset,
    parse_ruleset_json,
    parse_ruleset_toml,
    renamed,
    with_policy,
)
from quotebot.domain.catalogue.sheets import BYTES_MAX, SheetProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.catalogue.sheets import SheetRow

YAML: Final = (".yaml", ".yml")
DOCUMENTS: Final = (".toml", ".json", *YAML)
LOOKED_AT: Final = 5  # limit of known versions that are compared with the sheets
NOTHING_KNOWN: Final[Mapping[str, str]] = {}
_OPENING: Final = ("SequenceStartEvent", "MappingStartEvent")
_CLOSING: Final = ("SequenceEndEvent", "MappingEndEvent")
Place = tuple[str | int, ...]


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
        whole = _document(given[0], as_version)
        if isinstance(whole, list) or whole.policy is not None or base.policy is None:
            return whole
        return with_policy(whole, base.policy, whole.version)  # a document without a policy changes prices alone
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
    lines: Mapping[Place, int] = {}
    try:
        text, suffix = source.data.decode("utf-8-sig"), source.path.suffix.casefold()
        if suffix in YAML:
            document, lines = read_yaml(text)
            ruleset = parse_ruleset(document)
        else:
            ruleset = (parse_ruleset_json if suffix == ".json" else parse_ruleset_toml)(text)
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


def _line(path: Place, lines: Mapping[Place, int]) -> int | None:
    """Return the line of a part of the document, or of the nearest enclosing part."""
    return next((lines[path[:length]] for length in range(len(path), -1, -1) if path[:length] in lines), None)


def _in_order(problems: list[SheetProblem], given: Sequence[CatalogSource]) -> list[SheetProblem]:
    order = {source.name: number for number, source in enumerate(given)}
    return sorted(problems, key=lambda problem: (order.get(problem.file, len(order)), problem.line or 0))


class YamlError(ValueError):
    """Invalid document; `line` (from 1) is the place of the error, as far as it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(text: str) -> tuple[object, dict[Place, int]]:
    """Return the document and the line of each part of it. Raises YamlError."""
    lines: dict[Place, int] = {}
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        _check(yaml.parse(text, loader))  # before any recursion: on a stack overflow libyaml ends the process
        root = yaml.compose(text, loader)
        return (None if root is None else _plain(root, (), lines, set())), lines
    except yaml.MarkedYAMLError as error:
        raise YamlError(str(error.problem), None if error.problem_mark is None else error.problem_mark.line + 1) from error
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise YamlError("it is nested too deeply") from error


def _check(events: Iterable[Any]) -> None:
    """Raise YamlError if a document is nested too deeply or has an anchor or alias. Events arrive one by one."""
    level = 0
    for event in events:
        name = type(event).__name__
        if getattr(event, "anchor", None) is not None:
            raise YamlError("anchors and aliases are not read: write the value out", event.start_mark.line + 1)
        level += (name in _OPENING) - (name in _CLOSING)
        if level > LEVELS_MAX:
            raise YamlError(f"it is nested deeper than {LEVELS_MAX} levels", event.start_mark.line + 1)


def _plain(node: Any, path: Place, lines: dict[Place, int], seen: set[int]) -> Any:
    line: int = node.start_mark.line + 1
    if id(node) in seen:  # an alias: a few nested ones can expand to a document of any size
        raise YamlError("anchors and aliases are not read: write the value out", line)
    seen.add(id(node))
    lines[path] = line
    if node.id == "scalar":
        return node.value
    if node.id == "sequence":
        return [_plain(each, (*path, index), lines, seen) for index, each in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar" or key.value in found:
            what = f"the key {key.value!r} is there twice" if key.id == "scalar" else "a key must be a word"
            raise YamlError(what, key.start_mark.line + 1)
        found[key.value] = _plain(value, (*path, key.value), lines, seen)
    return found
