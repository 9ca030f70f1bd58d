"""Canaries: seeded secrets and personal texts, and a search for them in everything that the product writes.

    ./run canaries PATH...

searches the files of a test run (its output, its temporary folders, drill reports) for the sandbox's well-known secrets, which
every test uses. The sandbox's own `world` folders may contain them and are skipped. Exit status 1: a secret was found; each place
is named.
"""

from __future__ import annotations

import base64
import io
import json
import sqlite3
import sys
import zipfile
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.llm import API_KEY
from quotebot.sandbox.salesforce.login import CLIENT_SECRET
from quotebot.sandbox.slack.directory import APP_TOKEN, BOT_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

WELL_KNOWN: Final = {
    "Slack's bot token": BOT_TOKEN,
    "Slack's app-level token": APP_TOKEN,
    "Salesforce's client secret": CLIENT_SECRET,
    "the model's API key": API_KEY,
}
WORLD: Final = "world"  # a sandbox's own folder
SPARSE: Final = ".ballast"  # tens of MiB of zeros
SESSION_BYTES, SIGNATURE_BYTES, TICKET_BYTES = 48, 32, 16  # their sizes in the sandbox


@dataclass(frozen=True, slots=True)
class Canary:
    """A text that must not leak, in one or several forms, and the places (by name prefix) where it is allowed."""

    name: str
    texts: tuple[str, ...]
    homes: tuple[str, ...] = ()

    def forms(self) -> Iterator[bytes]:
        """Yield the encodings in which each text may occur."""
        for text in self.texts:
            raw = text.encode()
            yield raw
            yield base64.b64encode(raw).rstrip(b"=")
            yield quote(text, safe="").encode()
            yield json.dumps(text)[1:-1].encode()


class Remembered(Tokens):
    """The sandbox's source of randomness, which records every secret that it generated."""

    def __init__(self) -> None:
        super().__init__()
        self.given: defaultdict[int, list[str]] = defaultdict(list)

    def hex(self, size: int) -> str:
        """Return random hexadecimal digits, and record them."""
        return self._kept(size, super().hex(size))

    def urlsafe(self, size: int) -> str:
        """Return a random text, and record it."""
        return self._kept(size, super().urlsafe(size))

    def _kept(self, size: int, secret: str) -> str:
        self.given[size].append(secret)
        return secret


def hits(canaries: Iterable[Canary], places: Mapping[str, bytes]) -> list[str]:
    """Return a sentence for each canary in a place where it is not allowed."""
    found = []
    for canary in canaries:
        forms = set(canary.forms())
        strange = {name: data for name, data in places.items() if not name.startswith(canary.homes)} if canary.homes else places
        found += [f"{canary.name} is in {name}" for name, data in strange.items() if any(form in data for form in forms)]
    return found


def files_under(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by name; archives and PDFs are unpacked, and ledgers are also read row by row."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        if path.is_file() and not path.name.endswith(SPARSE):
            name = path.relative_to(folder).as_posix() if folder.is_dir() else path.name
            found |= {name: path.read_bytes(), **dict(_within(name, path))}
    return found


def _within(name: str, path: Path) -> Iterable[tuple[str, bytes]]:
    head = path.read_bytes()[:16]
    if head.startswith(b"PK"):
        with zipfile.ZipFile(path) as packed:
            return [(f"{name}!{member}", packed.read(member)) for member in packed.namelist()]
    if head.startswith(b"%PDF"):
        from pypdf import PdfReader  # noqa: PLC0415 -- needed only for a PDF

        reader = PdfReader(io.BytesIO(path.read_bytes()))
        return [(f"{name}!text", "\n".join(page.extract_text() for page in reader.pages).encode())]
    return _tables(name, path) if head.startswith(b"SQLite format 3") else []


def _tables(name: str, path: Path) -> list[tuple[str, bytes]]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return [
            (f"{name}!{table}", "\n".join(str(row) for row in connection.execute(f"SELECT * FROM {table}")).encode())  # noqa: S608 -- names from the schema
            for table in tables
        ]


def main(arguments: Sequence[str]) -> int:
    """Search the named paths."""
    if not arguments:
        print(__doc__)
        return 64
    canaries = [Canary(name, (secret,)) for name, secret in WELL_KNOWN.items()]
    found, looked = [], 0
    for argument in arguments:
        for path in _to_search(Path(argument)):
            try:
                places = files_under(path)
            except (OSError, sqlite3.Error, zipfile.BadZipFile) as error:  # damaged on purpose by a test: its raw bytes count
                print(f"{path}: read as bytes only ({error})", file=sys.stderr)
                places = {path.name: path.read_bytes()}
            looked += 1
            found += [f"{path}: {hit}" for hit in hits(canaries, places)]
    print("\n".join([*found, f"{looked:,} files, {len(canaries)} secrets, {len(found)} hits"]))
    return int(bool(found))


def _to_search(path: Path) -> Iterator[Path]:
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and not file.is_symlink() and WORLD not in file.parts and not file.name.endswith(SPARSE):
            yield file


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
