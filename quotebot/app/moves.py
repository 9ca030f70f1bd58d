"""Move of an installation's ledger between its file and a database, either way (ledger/operator/moving.py), and its undoing."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError
from ledger import recovery
from ledger.audit.anchors import write_anchor
from ledger.audit.keyring import load_keyring, require_keys
from ledger.audit.verification import verify_within
from ledger.operator.backup import Progress, quiet
from ledger.operator.moving import MoveError, Seal, copy_rows
from quotebot import __version__
from quotebot.app.installation import instance_lock, open_ledger, storage_of
from quotebot.settings import ConfigurationError, safe_database
from quotebot.store import history

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.artefacts import ArtefactStore
    from ledger.audit.events import Keyring
    from ledger.clock import Clock
    from ledger.operator.moving import Movable
    from quotebot.settings import Settings

FILE: Final = "file"  # names the ledger's file in the data folder, where an address names a database
_EVENTS_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Moved:
    """A finished move. `tables` are the rows by table, None if an earlier attempt had moved them; `setting` is what to do next.

    `lost_documents` could not be copied; each is rendered again when it is needed.
    """

    origin: str
    place: str
    setting: str
    tables: dict[str, int] | None
    lost_documents: int


def settings_at(settings: Settings, place: str) -> Settings:
    """Return the settings with the ledger at `place`: an address, `file`, or the path of the file. Raises ConfigurationError."""
    if place in (FILE, str(settings.ledger_path.absolute())):
        return settings.model_copy(update={"ledger_url": None})
    try:
        return settings.model_copy(update={"ledger_url": safe_database(place)})
    except ValueError as error:
        raise ConfigurationError(f"{place} is no place for a ledger: {error}. Nothing was done.") from error


async def move(settings: Settings, to: str, clock: Clock, *, actor: str, progress: Progress = quiet) -> Moved:
    """Move the ledger of a stopped bot to `to`, or finish a move that was interrupted.

    Raises LedgerInUseError while a bot runs at either place, DatabaseError and ConfigurationError.
    """
    there = settings_at(settings, to)
    source, target = storage_of(settings).movable(), storage_of(there).movable()
    if source.place == target.place:
        raise ConfigurationError(f"The ledger is at {source.place} already. Nothing was done.")
    await asyncio.to_thread(storage_of(there).require_durability)
    require_keys(settings.data_dir)
    keyring = load_keyring(settings.data_dir, may_create=False)
    seal = await asyncio.to_thread(source.find_seal)
    if seal is None:
        await asyncio.to_thread(target.require_free)
        async with open_ledger(settings, terminal_user=actor):  # brings it to this build's schema
            pass
    async with _alone(settings, there):
        seal = seal or await _sealable(settings, source, target, clock, actor, keyring, progress)
        if seal.place != target.place:
            raise MoveError(f"The ledger is being moved to {seal.place}, and to no other place. Nothing was done.")
        progress("Sealing the ledger", 0, 0)
        await asyncio.to_thread(source.seal, seal)
        progress("Reading the target", 0, 0)
        tables = None
        if await asyncio.to_thread(target.find_move) != seal.move:
            await asyncio.to_thread(target.require_free)
            tables = await asyncio.to_thread(_copy, source, target, seal, keyring, progress)
        lost = await asyncio.to_thread(_copy_documents, storage_of(settings).documents(), storage_of(there).documents(), progress)
        progress("The move is complete", 1, 1)
    return Moved(source.place, target.place, storage_of(there).setting, tables, lost)


async def undo(settings: Settings, *, actor: str) -> Seal:
    """Take the seal of an interrupted move off the ledger, and return it. Raises MoveError once the target has the ledger."""
    source = storage_of(settings).movable()
    seal = await asyncio.to_thread(source.find_seal)
    if seal is None:
        raise ConfigurationError(f"The ledger at {source.place} was not moved. Nothing was done.")
    there = settings_at(settings, seal.place)
    async with _alone(settings, there):
        target = storage_of(there).movable()
        await asyncio.to_thread(target.require_noted, seal.move)
        if await asyncio.to_thread(target.find_move) == seal.move:
            raise MoveError(
                f"The move to {seal.place} is complete, and the ledger may have been used there. Nothing was done. To have it back "
                "here, move it back from there."
            )
        await asyncio.to_thread(source.unseal)
    after = {"place": seal.place}
    async with open_ledger(settings, terminal_user=actor) as ledger:
        now = ledger.clock.now_ms()
        await ledger.database.write(
            "ledger.move_undone",
            lambda tx: ledger.audit.append(tx, now, "ledger.move_undone", actor=actor, actor_type="operator", after=after),
        )
    return seal


def count(settings: Settings, to: str) -> dict[str, int]:
    """Return the number of rows of each table that a move would copy; blocks. Changes nothing. Raises as `move` does."""
    there = settings_at(settings, to)
    source, target = storage_of(settings).movable(), storage_of(there).movable()
    if source.place == target.place:
        raise ConfigurationError(f"The ledger is at {source.place} already. Nothing was done.")
    storage_of(there).require_durability()
    if source.find_seal() is None:
        target.require_free()
    with source.reading() as rows:
        return {table: sum(1 for _ in rows.rows(table)) for table in rows.tables()}


@contextlib.asynccontextmanager
async def _alone(settings: Settings, there: Settings) -> AsyncIterator[None]:
    """Hold the locks of the one active bot of both places."""
    async with instance_lock(settings), instance_lock(there):
        yield


async def _sealable(
    settings: Settings, source: Movable, target: Movable, clock: Clock, actor: str, keyring: Keyring, progress: Progress
) -> Seal:
    """Verify the ledger, release the claims of a crashed bot and record the move as the last event; return the seal to put on."""
    await asyncio.to_thread(storage_of(settings).prove, keyring, progress)
    seal = Seal(f"{clock.now_ms()}-{secrets.token_hex(8)}", target.place, clock.now_ms())
    await asyncio.to_thread(target.prepare, seal.move)
    progress("Recording the move", 0, 0)
    async with open_ledger(settings, terminal_user=actor) as ledger:
        now = ledger.clock.now_ms()
        ledger.epoch = await recovery.begin_epoch(ledger.database, now, role="cli", build=__version__)
        await recovery.take_back(ledger)
        await recovery.give_back(ledger)
        after = {"from": source.place, "to": target.place}
        await ledger.database.write(
            "ledger.moved",
            lambda tx: ledger.audit.append(tx, now, "ledger.moved", actor=actor, actor_type="operator", after=after),
        )
        await write_anchor(ledger, settings.data_dir, now)
    return seal


def _copy(source: Movable, target: Movable, seal: Seal, keyring: Keyring, progress: Progress) -> dict[str, int]:
    """LedgerCopy the sealed ledger, and verify the copy before the target opens."""
    with source.reading() as rows, target.filling(seal.move, seal.at) as copy:
        tables = copy_rows(rows, copy, progress)
        progress("Checking the copy", 0, 0)
        report = verify_within(copy.tx, keyring, events_max=_EVENTS_MAX, replay=history.replay)
        if report is not None and report.finding is not None:
            found = report.finding
            raise MoveError(f"The copy is not whole: {found.table} {found.row}: {found.meaning}. Nothing was moved.")
        progress("Opening the target", 0, 0)
    return tables


def _copy_documents(source: ArtefactStore, target: ArtefactStore, progress: Progress) -> int:
    """Copy the documents that the target does not have; return how many could not be copied."""
    missing, lost = sorted(source.names() - target.names()), 0
    for number, sha256 in enumerate(missing):
        progress("Copying the documents", number, len(missing))
        try:
            target.put(source.get(sha256))
        except AdapterError:
            lost += 1
    return lost
