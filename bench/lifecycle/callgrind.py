"""callgrind: how it is called, and what its files say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.lifecycle.counted import BEGIN, END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS_MAX: Final = 1800
MISSING: Final = "valgrind is not installed, and without it nothing can be counted: apt-get install valgrind"
LIBRARIES: Final = {"python": "python", "libpython": "python", "libsqlite3": "sqlite", "libc": "libc", "libcrypto": "crypto"}
OTHERS: Final = "other"
_NUMBER: Final = re.compile(r"\((?P<number>\d+)\)(?: (?P<name>.*))?")


class CallgrindError(Exception):
    """The counted process failed, or its files are not what was asked for."""


def is_installed() -> bool:
    """Tell whether valgrind is there."""
    return shutil.which("valgrind") is not None


def count(arguments: Iterable[str], folder: Path, windows: int) -> list[Counter[str]]:
    """Run bench.lifecycle.counted under callgrind; return the instructions of each window, by library."""
    out = folder / "counts"
    command = [
        *("valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", f"--zero-before={BEGIN}", f"--dump-before={END}"),
        *(sys.executable, "-m", "bench.lifecycle.counted", *arguments, str(windows)),
    ]
    fixed = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=fixed, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as error:
        raise CallgrindError(f"it did not end within {SECONDS_MAX} s") from error
    if done.returncode:
        raise CallgrindError(f"status {done.returncode}: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    files = [folder / f"{out.name}.{number + 1}" for number in range(windows)]
    lacking = [file.name for file in files if not file.exists()]
    if lacking:
        raise CallgrindError(f"callgrind did not write {', '.join(lacking)}: it met {END} less often than that")
    return [by_library(file.read_text("utf-8", "replace").splitlines()) for file in files]


def by_library(lines: Iterable[str]) -> Counter[str]:
    """Return the instructions in one of callgrind's files, by library. Raises CallgrindError if they do not add up to its total."""
    counted: Counter[str] = Counter()
    total = None
    for name, cost in _costs(lines):
        if name is None:
            total = cost
        else:
            counted[library(name)] += cost
    if total is None or counted.total() != total:
        raise CallgrindError(f"the parts add up to {counted.total():,} instructions, the total says {total}")
    return counted


def library(path: str) -> str:
    """Return the column of the report to which an object file belongs."""
    stem = re.split(r"[-.\d]", Path(path).name.removeprefix("_"), maxsplit=1)[0] if "libsqlite3" not in path else "libsqlite3"
    return LIBRARIES.get(stem, OTHERS)


def _costs(lines: Iterable[str]) -> Iterator[tuple[str | None, int]]:
    """Yield (object file, own instructions) for each line that has some, and (None, the total).

    A name is written once, as `ob=(1) /usr/bin/python3.11`, and is `(1)` from then on. The line after `calls=` is the cost of the
    function that was called, which has lines of its own.
    """
    names: dict[str, str] = {}
    place, called = "", False
    for line in lines:
        if line[:1] in "0123456789+-*":
            if not called and len(parts := line.split()) > 1:
                yield place, int(parts[1])
            called = False
            continue
        key, _, value = line.partition("=")
        if key in ("ob", "cob"):
            known = _NUMBER.match(value)
            name = value if known is None else names.setdefault(known["number"], known["name"] or "")
            if key == "ob":
                place = name
        elif key == "calls":
            called = True
        elif line.startswith("totals:"):
            yield None, int(line.split()[1])
