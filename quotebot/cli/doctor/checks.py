"""Checks of `quotebot doctor` and their runner: all run at once, each with its own deadline, none able to stop another.

The checks here concern this machine: private files, disk space, a sound SQLite version, a working PDF renderer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from adapters.failures import UNAVAILABLE, AdapterError, Failure
from adapters.pdf.renderer import PdfRenderer, QuoteDocument
from ledger.database import DatabaseError
from quotebot.app.document_folder import load_seller
from quotebot.app.installation import storage_of
from quotebot.observability.exporters import open_observers
from quotebot.observability.logs import redact
from quotebot.settings import ConfigurationError, slack_tokens
from quotebot.settings_sources import settings_files, unknown_variables
from quotebot.views.document import named_texts
from quotebot.views.document_texts import ENGLISH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from quotebot.app.installation import Storage
    from quotebot.settings import Settings

SECONDS_MAX: Final = 15.0
WORDS_MAX: Final = 400
OTHERS: Final = 0o077  # permission bits of group and others
FILES_MAX: Final = 100_000  # limit per folder
NAMED_MAX: Final = 10
PAGE: Final = QuoteDocument(
    title="Quote",
    quote_id="doctor",
    version="1",
    account="A test",
    issued_on="",
    valid_until="",
    prepared_by="quotebot doctor",
    currency="USD",
    term="",
    lines=(),
    unit_price_title="USD per unit/month",
    amount_title="Amount, USD",
    list_total="0",
    discount_label="",
    discount_total="",
    net_total="0",
    terms=(),
    acceptance="By signing, both parties agree.",
    seller_name="",
    seller_lines=(),
    accent="#1f3a5f",
    created_at="2026-01-01T00:00:00+00:00",
    texts=named_texts(ENGLISH),
)
SAMPLES: Final = {
    "Chinese": "\u4e2d\u6587",
    "Japanese": "\u3042\u30a2",
    "Korean": "\ud55c\uae00",
    "Hebrew": "\u05d0\u05d1",
    "Arabic": "\u0639\u0631",
    "Thai": "\u0e01\u0e02",
    "Hindi": "\u0939\u0915",
}


class State(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"  # not applicable: not configured, or not there yet
    UNKNOWN = "unknown"  # the check could not run


OUTAGES: Final = UNAVAILABLE | {Failure.THROTTLED}
OUTAGE_FIX: Final = (
    "Change no login: it was not refused. The other side is down, busy or out of reach; effects are retried, and what exhausts its "
    "retries is a dead letter to replay. If it lasts, see that the address is right and this machine reaches it (firewall, DNS)."
)
FORBIDDEN_FIX: Final = "Run the command as the bot's user, or give that user what belongs to another (chown)."
UNKNOWN_FIX: Final = "Nothing is known of what this checks: first mend what kept it from running, which is named above."
UNAVAILABLE_STATUS: Final = 69
TROUBLES: Final = frozenset({State.WARNING, State.ERROR, State.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Site:
    """The installation to check, with facts of the machine. `now_seconds` returns Unix time."""

    settings: Settings
    now_seconds: Callable[[], float] = time.time
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    sqlite_version: tuple[int, ...] | None = None  # of the library, if None

    @property
    def storage(self) -> Storage:
        """The storage of the ledger."""
        return storage_of(self.settings)


@dataclass(frozen=True, slots=True)
class Seen:
    """Finding of a check. `bad` marks a problem of the check's severity; None means that the check does not apply.

    `outage` marks a problem of the other side, which no setting mends.
    """

    bad: bool | None
    words: str
    outage: bool = False


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


def failed(error: AdapterError, words: str) -> Seen:
    """Return the finding of a failed call: an outage, unless the service refused us."""
    return Seen(bad=True, words=words, outage=error.failure in OUTAGES)


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
        what = f"{error}" if isinstance(error, (PermissionError, DatabaseError)) else f"{type(error).__name__}: {error}"
        fix = FORBIDDEN_FIX if isinstance(error, PermissionError) else UNKNOWN_FIX
        unasked = replace(check, fix=fix, exit_status=UNAVAILABLE_STATUS)
        return Result(unasked, State.UNKNOWN, _words(site, f"it could not be run ({what})"))
    if seen.outage:
        check = replace(check, fix=OUTAGE_FIX, exit_status=UNAVAILABLE_STATUS)
    state = State.SKIPPED if seen.bad is None else check.severity if seen.bad else State.OK
    return Result(check, state, _words(site, seen.words))


def _words(site: Site, words: str) -> str:
    given = (getattr(site.settings, name) for name in type(site.settings).model_fields)
    values = [each.get_secret_value() for each in given if isinstance(each, SecretStr)]
    return redact(" ".join(words.split()), [value for value in values if value])[:WORDS_MAX]


async def tokens(site: Site) -> Seen:
    """Check that both tokens are set and of the right kind."""
    try:
        slack_tokens(site.settings)
    except ConfigurationError as error:
        return bad("; ".join(line.removeprefix("- ") for line in str(error).splitlines() if line.startswith("- ")))
    return fine("both are there, each of its kind")


async def variables(site: Site) -> Seen:
    """Check that every variable of the environment that looks like a setting is one."""
    found = unknown_variables(type(site.settings))
    return bad("; ".join(found)) if found else fine("each with the prefix QUOTEBOT_ is a setting")


async def watchers(site: Site) -> Seen:
    """Check that the configured observers are available."""
    found = open_observers(site.settings, site.settings.secrets)
    found.close()
    if found.missing:
        return bad("; ".join(found.missing))
    return (
        fine(f"{len(found.each)} can be told") if found.each else nothing("neither a collector of traces nor Sentry is configured")
    )


async def private_secrets(site: Site) -> Seen:
    """Check that no other user may read the files that may hold secrets."""
    del site
    found = settings_files()
    return _open_ones(found) if found else nothing("there is neither .env nor quotebot.toml nor a folder of secrets")


async def data_folder(site: Site) -> Seen:
    """Check that the data folder is private and can be written."""
    folder = site.settings.data_dir
    if not folder.exists():
        return nothing(f"{folder.absolute()} is not there yet; the bot makes it")
    if not folder.is_dir():
        return bad(f"{folder.absolute()} is no folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return bad(f"{folder.absolute()} cannot be written by this user")
    return _open_ones([folder])


async def data_files(site: Site) -> Seen:
    """Check that no other user may read or owns a file of the data folder or the backups: ledger, keys, documents, logs."""
    folder, backups = site.settings.data_dir, site.settings.backup_folder
    if not folder.is_dir():
        return nothing("there is no data folder yet")
    roots = [folder, *([backups] if backups is not None and backups.is_dir() else [])]
    return await asyncio.to_thread(_private_files, roots)


async def disk_room(site: Site) -> Seen:
    """Check the free space on the ledger's disk."""
    folder = site.settings.data_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    free = site.free_bytes(folder)
    words = f"{free / 2**20:,.0f} MiB are free at {folder}"
    needed = site.storage.room_bytes
    return fine(words) if free >= needed else bad(f"{words}; at least {needed >> 20} are needed")


async def sqlite_version(site: Site) -> Seen:
    """Check that SQLite is new enough, and report the fault that we work around."""
    try:
        return fine(site.storage.check_version(site.sqlite_version))
    except DatabaseError as error:
        return bad(str(error))


async def pdf(site: Site) -> Seen:
    """Render a page with the seller's branding, in the same child process as the bot; report the scripts without a font."""
    try:
        seller = load_seller(site.settings)
    except ConfigurationError as error:
        return bad(str(error))
    head = replace(PAGE, seller_name=seller.name, seller_lines=seller.lines, accent=seller.accent, footer=seller.footer)
    branded = replace(head, terms=seller.terms, logo=seller.logo, template=seller.template)
    branded = replace(branded, templates=seller.templates, style=seller.style)
    renderer = PdfRenderer()
    try:
        page = await renderer.render(branded)
        boxes = [script for script, sample in SAMPLES.items() if not await _printable(renderer, sample)]
    except AdapterError as error:
        return bad(str(error))
    finally:
        await asyncio.shield(renderer.close())
    missing = f"; no font for {', '.join(boxes)}: PDFs with such names will fail" if boxes else ""
    return fine(f"a page was rendered ({len(page.content):,} bytes){missing}")


async def _printable(renderer: PdfRenderer, sample: str) -> bool:
    try:
        await renderer.render(replace(PAGE, account=sample))
    except AdapterError as error:
        if error.code == "missing_glyphs":
            return False
        raise
    return True


async def bot(site: Site) -> Seen:
    """Check whether a bot works on this ledger."""
    holder = site.storage.holder()
    if holder is None:
        return nothing("no bot ever ran here")
    if not holder.alive:
        return bad(f"no bot is running (process {holder.pid} held its lock last)")
    return fine(f"process {holder.pid} took the bot's lock last and is alive")


def _private_files(roots: list[Path]) -> Seen:
    """Check every file and folder below the given folders; the folders themselves have their own checks."""
    looked_at, found = 0, []
    for root in roots:
        for path in sorted(islice(root.rglob("*"), FILES_MAX)):
            try:
                seen = path.lstat()
            except FileNotFoundError:  # a temporary file
                continue
            looked_at += 1
            if seen.st_uid != os.geteuid():
                found.append(f"{path} (belongs to user {seen.st_uid})")
            elif not stat.S_ISLNK(seen.st_mode) and seen.st_mode & OTHERS:
                found.append(f"{path} ({stat.S_IMODE(seen.st_mode):o})")
    if not found:
        return fine(f"{looked_at:,} files, owner-only")
    more = f" and {len(found) - NAMED_MAX:,} more" if len(found) > NAMED_MAX else ""
    return bad(f"others may use {', '.join(found[:NAMED_MAX])}{more}")


def _open_ones(paths: Iterable[Path]) -> Seen:
    paths = list(paths)
    found = [f"{path} ({stat.S_IMODE(path.stat().st_mode):o})" for path in paths if path.stat().st_mode & OTHERS]
    return bad(f"others may use {', '.join(found)}") if found else fine(f"{len(paths)} files, owner-only")
