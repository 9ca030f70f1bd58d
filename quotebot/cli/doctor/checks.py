"""Checks of `quotebot doctor` and their runner: all run at once, each with its own deadline, none able to stop another."""

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
    """Outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"  # not applicable: not configured, or not there yet
    UNKNOWN = "unknown"  # the check could not run


TROUBLES: Final = frozenset({State.WARNING, State.ERROR, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Site:
    """The installation to check, with facts of the machine. `now_seconds` returns Unix time."""

    settings: Settings
    now_seconds: Callable[[], float] = time.time
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    sqlite_version: tuple[int, ...] = sqlite3.sqlite_version_info


@dataclass(frozen=True, slots=True)
class Seen:
    """Finding of a check. `bad` marks a problem of the check's severity; None means that the check does not apply."""

    bad: bool | None
    words: str


Look = Callable[[Site], Awaitable[Seen]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `exit_status` is that of the command if this is the first problem; `online` checks use the network."""

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
    """Outcome of one check."""

    check: Check
    state: State
    words: str


def fine(words: str) -> Seen:
    """Return a finding without a problem."""
    return Seen(bad=False, words=words)


def bad(words: str) -> Seen:
    """Return a finding with a problem."""
    return Seen(bad=True, words=words)


def nothing(words: str) -> Seen:
    """Return the finding of a check that does not apply."""
    return Seen(bad=None, words=words)


async def examine(
    site: Site, checks: Iterable[Check], *, offline: bool = False, seconds_max: float = SECONDS_MAX
) -> Sequence[Result]:
    """Run the checks at once and return their outcomes, in their order. Changes nothing and never raises."""
    return await asyncio.gather(*(_run(site, check, offline=offline, seconds_max=seconds_max) for check in checks))


def exit_status(results: Iterable[Result]) -> int:
    """Return the exit status of the gravest problem (of the first among equals); 0 if there is none."""
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
    except Exception as error:  # noqa: BLE001 -- the other checks are still useful after any error
        return Result(check, State.UNKNOWN, _words(site, f"it could not be run ({type(error).__name__}: {error})"))
    state = State.SKIPPED if seen.bad is None else check.severity if seen.bad else State.OK
    return Result(check, state, _words(site, seen.words))


def _words(site: Site, words: str) -> str:
    given = (getattr(site.settings, name) for name in type(site.settings).model_fields)
    values = [each.get_secret_value() for each in given if isinstance(each, SecretStr)]
    return redact(" ".join(words.split()), [value for value in values if value])[:WORDS_MAX]
