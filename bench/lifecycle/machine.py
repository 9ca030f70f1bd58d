"""Description of the measured machine: processors, load, file system, versions, and the cost of one flush."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.lifecycle.measure import percentile

PROBE_SECONDS: Final = 0.5
_PAGE: Final = b"\0" * 4096
_MOUNTS: Final = Path("/proc/mounts")
_STAT: Final = Path("/proc/stat")


def describe(folder: Path, pragmas: dict[str, object], probe_seconds: float = PROBE_SECONDS) -> dict[str, object]:
    """Return the header of a report, JSON-ready."""
    flushes = probe_flush(folder, probe_seconds)
    return {
        "cpus": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "file_system": file_system(folder),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "pragmas": pragmas,
        "fdatasync_p50_ms": percentile(flushes, 50) * 1000,
        "fdatasync_p99_ms": percentile(flushes, 99) * 1000,
    }


def stolen_seconds() -> float:
    """Return the processor time that a virtual machine's host has kept for others so far; 0 if the kernel does not report it."""
    try:
        return int(_STAT.read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def file_system(folder: Path) -> str:
    """Return the type of the file system that holds `folder`; `unknown` if the kernel does not list mounts."""
    try:
        mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return "unknown"
    place = folder.resolve()
    holding = [(len(point), kind) for point, kind in mounts if place == Path(point) or Path(point) in place.parents]
    return max(holding, default=(0, "unknown"))[1]


def in_memory(folder: Path) -> bool:
    """Tell whether the folder is in memory: flushing costs nothing there, and ratios would be meaningless."""
    return file_system(folder) in ("tmpfs", "ramfs")


def disk_folder() -> Path:
    """Return a folder on a disk: the temporary folder, or the current one if the temporary folder is in memory."""
    temporary = Path(tempfile.gettempdir())
    return Path.cwd() if in_memory(temporary) else temporary


def count(text: str) -> int:
    """Parse a number such as 1M, 100k or 64."""
    return int(text.rstrip("kM")) * {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)


def probe_flush(folder: Path, seconds: float) -> list[float]:
    """Overwrite and flush one page repeatedly; return the seconds per flush. Writing to a reused WAL costs the same."""
    flush = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        stop = time.perf_counter() + seconds
        while not times or time.perf_counter() < stop:
            started = time.perf_counter()
            os.pwrite(file.fileno(), _PAGE, 0)
            flush(file.fileno())
            times.append(time.perf_counter() - started)
    return times
