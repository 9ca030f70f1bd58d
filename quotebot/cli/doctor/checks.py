"""What a check is, and how all of them are run: at once, each with a deadline of its own, none able to stop another."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from quotebot.observability.logs import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from quotebot.settings import Settings

SECONDS_MAX: Final = 15.0
WORDS_MAX: Final = 400


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"  # there is nothing to look at: it is not configured, or not there yet
    UNKNOWN = "unknown"  # it could not be run, so nothing is known


TROUBLES: Final = frozenset({State.WARNING, State.ERROR, State.UNKNOWN})


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


@dataclass(frozen=True, slots=True)
class Site:
    """The installation that is looked at, with what the machine says of itself. `now_seconds` is Unix time."""

    settings: Settings
    now_seconds: Callable[[], float] = time.time
    free_bytes: Callable[[Path], int] = _free_bytes
    sqlite_version: tuple[int, ...] = sqlite3.sqlite_version_info


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found. `bad` is trouble, as grave as the check says; None means there was nothing to look at."""

    bad: bool | None
    words: str


Look = Callable[[Site], Awaitable[Seen]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `exit_status` is that of the command when this is the first trouble; `online` ones talk to somebody."""

    id: str
    what: str
    why: str
    fix: str
    severity: State
    exit_status: int
    look: Look
    online: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """How one check came out."""

    check: Check
    state: State
    words: str


def fine(words: str) -> Seen:
    """All is as it should be."""
    return Seen(bad=False, words=words)


def bad(words: str) -> Seen:
    """It is not as it should be."""
    return Seen(bad=True, words=words)


def nothing(words: str) -> Seen:
    """There is nothing to look at."""
    return Seen(bad=None, words=words)


async def examine(
    site: Site, checks: Iterable[Check], *, offline: bool = False, seconds_max: float = SECONDS_MAX
) -> Sequence[Result]:
    """Run the checks at once and return how each came out, in their order. Nothing is changed, and nothing is raised."""
    return await asyncio.gather(*(_run(site, check, offline=offline, seconds_max=seconds_max) for check in checks))


def exit_status(results: Iterable[Result]) -> int:
    """Return the exit status of the gravest trouble found (of the first among equals), 0 when there is none."""
    grave = (State.ERROR, State.UNKNOWN, State.WARNING)
    troubles = sorted((each for each in results if each.state in TROUBLES), key=lambda each: grave.index(each.state))
    return troubles[0].check.exit_status if troubles else 0


async def _run(site: Site, check: Check, *, offline: bool, seconds_max: float) -> Result:
    if offline and check.online:
        return Result(check, State.SKIPPED, "not asked: --offline")
    try:
        async with asyncio.timeout(seconds_max):
            seen = await check.look(site)
    except TimeoutError:
        return Result(check, State.UNKNOWN, f"it could not be finished within {seconds_max:g} s")
    except Exception as error:  # noqa: BLE001 -- whatever is broken, the other checks are still worth having
        return Result(check, State.UNKNOWN, _words(site, f"it could not be run ({type(error).__name__}: {error})"))
    state = State.SKIPPED if seen.bad is None else check.severity if seen.bad else State.OK
    return Result(check, state, _words(site, seen.words))


def _words(site: Site, words: str) -> str:
    given = (getattr(site.settings, name) for name in type(site.settings).model_fields)
    values = [each.get_secret_value() for each in given if isinstance(each, SecretStr)]
    return redact(" ".join(words.split()), [value for value in values if value])[:WORDS_MAX]
