"""Signing keys of the audit on disk: one file each, `audit-0001.key`; the highest number signs. Never stored in the ledger's file.

Rotation adds a file; keys are never removed, because the events they signed stay. A process signs with the newest key at its start:
a running bot continues with the older one until its restart, and processes started in the meantime use the new one. Events of both
keys may therefore alternate, in one chain too: each event is signed after the MAC of the previous one, regardless of its key.

Machines that work on one ledger have the same files, which its operator copies. A machine never makes a first key of its own for a
ledger that another one has begun.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Final

from ledger.audit.events import KEY_BYTES, Keyring
from ledger.database import DatabaseError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.database import Database, Tx

_PATTERN: Final = "audit-[0-9][0-9][0-9][0-9].key"
_LAST_NUMBER: Final = 9999
_FIRST_KEY: Final = "first_audit_key"  # in `meta`: the id of the key with which a shared ledger was begun


class KeyMissing(DatabaseError):  # noqa: N818 -- named after the fact
    """A required key is missing."""


def load_keyring(folder: Path, *, may_create: bool = True) -> Keyring:
    """Return the keys in `folder`, the newest first; a folder without one gets its first.

    Raises DatabaseError for a file that holds no key, and KeyMissing if `may_create` is false and there is none.
    """
    files = key_files(folder)
    if not files and may_create:
        files = [add_key(folder, 1)]
    if not files:
        require_keys(folder)
    keys = [_read(file) for file in reversed(files)]
    return Keyring.of(keys[0], *keys[1:])


def require_keys(folder: Path) -> None:
    """Raise KeyMissing unless every key up to the newest exists: verifying needs them all, signing only the newest."""
    names = {file.name for file in key_files(folder)}
    missing = [name for name in map(_name, range(1, max(1, len(names)) + 1)) if name not in names]
    if missing:
        raise KeyMissing(
            f"The audit key {missing[0]} is missing in {folder.absolute()}. Nothing was done: without it nobody can tell whether "
            "the audit is whole. Restore it from your backup of the data folder."
        )


def require_shared_keys(tx: Tx, keyring: Keyring) -> None:
    """Raise KeyMissing unless the key of the newest event is among these: two processes must sign with the same keys."""
    last = tx.one("last_audit_key")
    if last is not None and last["key_id"] not in keyring.keys:
        raise KeyMissing(
            f"The newest event of the audit is signed with the key {last['key_id']}, which is not in this data folder. Nothing was "
            f"done: the folder belongs to another ledger, or a key is missing. {where_keys_are(tx)}"
        )


async def begin_with_keys(database: Database, keyring: Keyring) -> None:
    """Begin a ledger that several machines share with these keys, or raise KeyMissing if it has others (require_shared_keys).

    Of two machines that begin at once, the second is refused, though no event shows the key of the first yet.
    """

    def is_begun(tx: Tx) -> bool:
        require_shared_keys(tx, keyring)
        return tx.one("last_audit_key") is not None

    def begin(tx: Tx) -> None:
        first = None if is_begun(tx) else tx.one("meta", name=_FIRST_KEY)
        if first is None:
            tx.one("put_meta", name=_FIRST_KEY, value=keyring.current_id)
        elif first["value"] not in keyring.keys:
            raise KeyMissing(
                f"Another machine has begun this ledger with the audit key {first['value']}, which is not in this data folder. "
                f"Nothing was done. {where_keys_are(tx)}"
            )

    if not await database.read(is_begun):
        await database.write("audit.keys", begin, alone=True)


def where_keys_are(tx: Tx) -> str:
    """Return a sentence that says which files to copy from where."""
    last = tx.one("last_epochs", limit=1)
    where = "a machine that works on this ledger"
    if last is not None and last["host"]:
        where = f"{last['host']}, where {last['role']} {last['replica']} was started last"
    return f"Copy all its keys (audit-*.key) from the data folder on {where}, in place of those here."


def key_files(folder: Path) -> list[Path]:
    """Return the key files in `folder`, the oldest first."""
    return sorted(folder.glob(_PATTERN))


def rotate(folder: Path) -> Keyring:
    """Add a new key, which signs from now on, and return the keyring with it.

    The caller then writes `audit.key_rotated`, the first event of the new key. A crash in between leaves a key that signs without
    an announcement. That is harmless: the files define which keys exist.
    """
    files = key_files(folder)
    newest = int(files[-1].stem.removeprefix("audit-")) if files else 0
    if newest >= _LAST_NUMBER:
        raise DatabaseError(f"There are {newest} audit keys already, as many as can be named. Nothing was changed.")
    add_key(folder, newest + 1)
    return load_keyring(folder)


def add_key(folder: Path, number: int) -> Path:
    """Write a new random key under this number, readable by its owner only; a key that another process wrote first is kept."""
    path = folder / _name(number)
    write_secret(path, secrets.token_bytes(KEY_BYTES).hex().encode() + b"\n")
    return path


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, durably and atomically; an existing file is kept."""
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f"{path.name}.{os.getpid()}.new"
    descriptor = os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)  # overwrites a file left by a crash
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)  # atomic
    finally:
        fresh.unlink()
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _name(number: int) -> str:
    return f"audit-{number:04d}.key"


def _read(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text("ascii").strip())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it holds no key"
        raise DatabaseError(f"The audit key {path.name} cannot be read ({why}). Nothing was done. Restore it.") from error
    if len(key) < KEY_BYTES:
        raise DatabaseError(
            f"The audit key {path.name} is too short. Nothing was done. Restore it from your backup of the data folder."
        )
    return key
