"""Backup manifests, authenticated with the audit's keys.

A checksum alone reveals accidental changes: an attacker who changes a backup also rewrites the checksum. The manifest therefore
carries an HMAC over all its fields, including the checksum, under a key derived from the audit key that was current. Without the
keys no change to a backup or its manifest passes a restore unnoticed.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ledger.database import DatabaseError
from ledger.keys import dumps, loads

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.events import Keyring

SCHEMA: Final = 2
UNAUTHENTICATED: Final = 1  # the schema of Quotebot 0.1.0, which has no HMAC
BYTES_MAX: Final = 1 << 18
_LAST_MS: Final = 253_402_300_799_000  # of the year 9999
_DERIVATION: Final = b"quotebot/backup-manifest-key/1"  # never a message that the audit signs: those are JSON arrays
_TEXTS: Final = ("file", "sha256", "build", "ledger_id", "key_id", "mac")
_NUMBERS: Final = ("schema", "bytes", "made_at", "generation", "last_event_id", "migrations")


class BackupError(DatabaseError):
    """A backup could not be made, or is not valid. The ledger is unchanged."""


class NotAuthenticError(BackupError):
    """A manifest is not signed by this installation's audit keys."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The facts of a backup. `made_at` is the time of its snapshot, in Unix milliseconds; `tables` counts rows."""

    schema: int
    file: str
    bytes: int
    sha256: str  # of the copy, which names every document by its own SHA-256
    made_at: int
    build: str
    ledger_id: str
    generation: int
    last_event_id: int  # of the audit
    migrations: int
    tables: dict[str, int]
    key_id: str = ""
    mac: str = ""

    @property
    def made(self) -> str:
        """The time of the snapshot, for people."""
        return f"{datetime.fromtimestamp(self.made_at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"

    def signed(self, keyring: Keyring) -> Manifest:
        """Return the manifest with the HMAC of the current key."""
        key_id, key = keyring.current
        named = replace(self, key_id=key_id, mac="")
        return replace(named, mac=_mac(key, named))

    def is_authentic(self, keyring: Keyring) -> bool:
        """Tell whether one of the keys signed the manifest as it is."""
        key = keyring.keys.get(self.key_id)
        return self.schema == SCHEMA and key is not None and hmac.compare_digest(_mac(key, self), self.mac)


def require_authentic(path: Path, manifest: Manifest, keyring: Keyring) -> None:
    """Raise NotAuthenticError unless one of the keys signed the manifest of the backup at `path`."""
    if manifest.schema == UNAUTHENTICATED:
        raise NotAuthenticError(
            f"{path.name} was made by Quotebot 0.1.0, whose manifests are not authenticated: nobody can tell from it whether "
            "the backup was changed since. Nothing was done. Use a newer backup. If there is none and you know where this one was "
            "kept: --unauthenticated takes it all the same, once its schema, its audit and its history are found whole."
        )
    if manifest.key_id not in keyring.keys:
        raise NotAuthenticError(
            f"The manifest of {path.name} is signed with the audit key {manifest.key_id!r}, which is not in the data "
            "folder. Nothing was done. Put all audit keys (audit-*.key) of that installation into the data folder, then try again."
        )
    if not manifest.is_authentic(keyring):
        raise NotAuthenticError(
            f"The manifest of {path.name} was changed by somebody without the audit key. Nothing was done. Use another backup, and "
            "find out who could write to this one."
        )
    if manifest.file != path.name:
        raise NotAuthenticError(
            f"{path.name} was made as {manifest.file} and shows the ledger of {manifest.made}: somebody gave it another name, and "
            "a restore would go back to another moment than the name says. Nothing was done. If that is the one you want, give it "
            "its own name again, and its .json too."
        )


def read_manifest(beside: Path) -> Manifest:
    """Read a manifest without authenticating it. Raises FileNotFoundError, or BackupError for an invalid file."""
    try:
        with beside.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        values = loads(text if len(text) <= BYTES_MAX else b"")  # too large to be a manifest
        manifest = _manifest_of(values) if values["schema"] in (UNAUTHENTICATED, SCHEMA) else None
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{beside} is no manifest of a backup ({error!r}). Nothing was done. Use another backup.") from error
    if manifest is None:
        raise BackupError(f"{beside} was written by a newer build. Nothing was done. Use that build.")
    return manifest


def text_of(manifest: Manifest) -> str:
    """Return the text of the manifest's file."""
    return json.dumps(asdict(manifest), indent=2) + "\n"


def _manifest_of(values: dict[str, Any]) -> Manifest:
    old = values["schema"] == UNAUTHENTICATED
    found = {each.name: values[each.name] for each in fields(Manifest) if not (old and each.name in ("key_id", "mac"))}
    tables = found["tables"]
    if (
        not all(type(found[name]) is int and found[name] >= 0 for name in _NUMBERS)
        or not all(type(found[name]) is str for name in _TEXTS if name in found)
        or not all(type(name) is str and type(count) is int for name, count in tables.items())
        or found["made_at"] > _LAST_MS
    ):
        raise ValueError("a field has a value that no manifest has")
    return Manifest(**found)


def _mac(key: bytes, manifest: Manifest) -> str:
    content = dumps({name: value for name, value in asdict(manifest).items() if name != "mac"})
    return hmac.digest(hmac.digest(key, _DERIVATION, "sha256"), content.encode(), "sha256").hex()
