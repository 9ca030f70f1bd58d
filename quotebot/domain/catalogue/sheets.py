"""Reader and writer of spreadsheet CSV: named columns; every invalid cell is reported with file, line and column. Pure.

Separators are comma, semicolon or tab, detected from the header. A decimal comma is accepted if the comma is not the separator.
Text that a spreadsheet would run as a formula is written with an apostrophe before it, which the reader removes: at the beginning
of a cell, and after a sign at which a spreadsheet of another language would begin a new cell.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quotebot.domain.catalogue.reader import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

BYTES_MAX: Final = 16 * 1024 * 1024
ROWS_MAX: Final = 50_000
COLUMNS_MAX: Final = 100
SEPARATORS: Final = ",;\t"
NAMES: Final = {",": "commas", ";": "semicolons", "\t": "tabs"}
FORMULA_SIGNS: Final = "=+-@\uff1d\uff0b\uff0d\uff20\t\r\n"  # full-width signs run too; spreadsheets skip blanks before them
# Where a cell begins, or would begin for a spreadsheet that splits its lines at another sign.
_BEGIN: Final = r"(?:^|(?<=[;\t\r\n]))"
_SIGN: Final = f"[{re.escape(FORMULA_SIGNS)}]"
_RISKY: Final = re.compile(f"{_BEGIN}(?='?{_SIGN}|'')")
_GUARDED: Final = re.compile(f"{_BEGIN}'(?={_SIGN}|')")
PLAIN_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
COMMA_NUMBER: Final = re.compile(r"[0-9]+,[0-9]+")
GROUPED_MAYBE: Final = re.compile(r"0*[1-9][0-9]{0,2}[.,][0-9]{3}")


@dataclass(frozen=True, slots=True)
class SheetProblem:
    """One problem in a file: the place, the value, the error and the suggested correction. Lines count from one."""

    file: str
    line: int | None
    column: str | None
    value: str | None
    message: str
    suggestion: str

    def __str__(self) -> str:
        """Return the problem as one line."""
        where = [self.file, *([f"line {self.line}"] if self.line else []), *([f"column {self.column}"] if self.column else [])]
        told = "" if self.value is None or shown(self.value) in self.message else f" (it says {shown(self.value)})"
        return f"{', '.join(where)}: {self.message}{told}; {self.suggestion}"


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One non-empty row. `cells` holds the non-empty cells by column, without outer spaces."""

    file: str
    line: int
    cells: Mapping[str, str]
    separator: str

    def problem(self, column: str | None, message: str, suggestion: str) -> SheetProblem:
        """Return a problem with this row, or with one of its cells."""
        return SheetProblem(self.file, self.line, column, self.cells.get(column or ""), message, suggestion)


def read_sheet(
    file: str, data: bytes, columns: Sequence[str], needed: Sequence[str], problems: list[SheetProblem]
) -> tuple[SheetRow, ...]:
    """Return the rows of a file. Errors of the encoding, the header or the format are recorded in `problems`."""
    text = _decoded(file, data, problems)
    if text is None:
        return ()
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = 1
    separator = None
    if lines[0].casefold().startswith("sep=") and lines[0][4:5] in SEPARATORS:  # a first line that some spreadsheets write
        separator, first, lines = lines[0][4:5], 2, lines[1:]
    blank = next((index for index, line in enumerate(lines) if line.strip()), len(lines) - 1)
    first, lines = first + blank, lines[blank:]
    separator = separator or max(SEPARATORS, key=lambda sign: len(set(_header(lines[0], sign)) & set(columns)))
    parsed = _parsed(file, lines, separator, first, problems)
    line, names = next(parsed, (first, []))
    header = [_folded(name) for name in names]
    while header and not header[-1]:  # empty columns at the right end
        header.pop()
    if not _good_header(file, line, header, columns, needed, problems):
        return ()
    return tuple(_rows(file, header, separator, parsed, problems))


def _decoded(file: str, data: bytes, problems: list[SheetProblem]) -> str | None:
    if len(data) > BYTES_MAX:
        problems.append(
            SheetProblem(file, None, None, None, f"the file has {len(data):,} bytes; at most {BYTES_MAX:,} are read", "split it")
        )
        return None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data:
        problems.append(SheetProblem(file, None, None, None, "the file is UTF-16, or no text at all", 'save it as "CSV UTF-8"'))
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.append(SheetProblem(file, line, None, None, "the text is not UTF-8", 'save the file as "CSV UTF-8"'))
        return None
    if text.strip():
        return text
    problems.append(SheetProblem(file, None, None, None, "the file is empty", "write a header and rows"))
    return None


def _header(line: str, separator: str) -> list[str]:
    return [_folded(name.strip('"')) for name in line.split(separator)]


def _folded(name: str) -> str:
    return "_".join(name.casefold().split())


def _parsed(
    file: str, lines: Sequence[str], separator: str, first: int, problems: list[SheetProblem]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the cells of each row; a malformed row is a problem and ends the file."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    line = first
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problems.append(SheetProblem(file, line, None, None, f"the row cannot be read: {error}", "look at its quotes"))
            return
        yield line, row
        line = first + reader.line_num


def _good_header(
    file: str, line: int, header: Sequence[str], columns: Sequence[str], needed: Sequence[str], problems: list[SheetProblem]
) -> bool:
    before = len(problems)
    known = ", ".join(columns)
    if len(header) > COLUMNS_MAX:
        problems.append(
            SheetProblem(
                file,
                line,
                None,
                None,
                f"the header has {len(header):,} columns; at most {COLUMNS_MAX} are read",
                f"keep the known ones: {known}",
            )
        )
        return False
    for number, name in enumerate(header):
        if name in header[:number]:
            problems.append(SheetProblem(file, line, name, None, "the column is there twice", "keep one"))
        elif name not in columns:
            near = difflib.get_close_matches(name[:40], columns, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            problems.append(SheetProblem(file, line, None, None, f"unknown column {shown(name)}", f"{meant}known are {known}"))
    problems += [
        SheetProblem(file, line, None, None, f"the column {name} is missing", f"add it; known are {known}")
        for name in needed
        if name not in header
    ]
    return len(problems) == before


def _rows(
    file: str, header: Sequence[str], separator: str, parsed: Iterable[tuple[int, list[str]]], problems: list[SheetProblem]
) -> Iterator[SheetRow]:
    found = 0
    for line, row in parsed:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        found += 1
        if found > ROWS_MAX:
            problems.append(SheetProblem(file, line, None, None, f"more than {ROWS_MAX:,} rows", "split the file"))
            return
        if any(cells[len(header) :]):
            problems.append(
                SheetProblem(
                    file,
                    line,
                    None,
                    None,
                    f"{len(cells)} cells under {len(header)} columns, separated by {NAMES[separator]}",
                    "put a value with a separator in it in quotes",
                )
            )
            continue
        named = zip(header, cells, strict=False)  # a row may have fewer cells
        yield SheetRow(file, line, {name: _unguarded(cell) for name, cell in named if cell}, separator)


# -------------------------------------------------------------------------------------------------------------- cells


def number(row: SheetRow, column: str, problems: list[SheetProblem]) -> str:
    """Return a number with a decimal point; an ambiguous number is a problem, never a guess."""
    text = row.cells[column].replace("\u00a0", "").replace(" ", "")
    if row.separator != "," and GROUPED_MAYBE.fullmatch(text):
        plain = text.lstrip("0").replace(",", ".")
        grouped = plain.replace(".", "")
        problems.append(row.problem(column, f"{shown(text)} can mean {plain} or {grouped}", f"write {grouped}, or {plain}0"))
        return "0"
    if PLAIN_NUMBER.fullmatch(text):
        return text
    if COMMA_NUMBER.fullmatch(text) and row.separator != ",":
        return text.replace(",", ".")
    if COMMA_NUMBER.fullmatch(text):
        problems.append(
            row.problem(
                column,
                f"{shown(text)} has a comma, and so has the file between its columns",
                f"write {text.replace(',', '.')} with a point, or {text.replace(',', '')}",
            )
        )
        return "0"
    problems.append(
        row.problem(column, f"{shown(row.cells[column])} is no plain number", "write e.g. 10 or 10.50, without any sign")
    )
    return "0"


def flag(row: SheetRow, column: str) -> str:
    """Return "true" or "false" as in a ruleset's document; any other text is returned for the reader to refuse."""
    text = row.cells[column].casefold()
    return {"yes": "true", "1": "true", "no": "false", "0": "false"}.get(text, text)


def text_of(cell: str) -> str:
    """Return the text of a cell; text in JSON quotes keeps its outer spaces."""
    return str(json.loads(cell)) if _is_json(cell, '"', str) else cell


def texts_of(cell: str) -> list[str]:
    """Return the texts separated by |; a cell may also hold a JSON list."""
    if _is_json(cell, "[", list):
        found: list[str] = json.loads(cell)
        return found
    return [text_of(part.strip()) for part in cell.split("|") if part.strip()]


def cell_of_text(text: str) -> str:
    """Return the cell that `text_of` reads as this text."""
    return text if text == text.strip() and not text.startswith('"') else json.dumps(text, ensure_ascii=False)


def cell_of_texts(texts: Sequence[str]) -> str:
    """Return the cell that `texts_of` reads as these texts."""
    plain = all(text == text.strip() and "|" not in text and not text.startswith(('"', "[")) for text in texts)
    return " | ".join(texts) if plain else json.dumps(list(texts), ensure_ascii=False)


def write_sheet(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """Return CSV text with a header: UTF-8, commas, a line end after each row."""
    lines = [",".join(columns)]
    lines += [",".join(_quoted(_guarded(row.get(column, ""))) for column in columns) for row in rows]
    return "".join(f"{line}\r\n" for line in lines)


def _is_json(cell: str, begin: str, kind: type[Any]) -> bool:
    if not cell.startswith(begin):
        return False
    try:
        return isinstance(json.loads(cell), kind)
    except (ValueError, RecursionError):
        return False


def _guarded(text: str) -> str:
    return _RISKY.sub("'", text)


def _unguarded(text: str) -> str:
    return _GUARDED.sub("", text)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',;\t"\n\r') else text
