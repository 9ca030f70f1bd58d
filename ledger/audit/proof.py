"""Signatures of proof bundles: an Ed25519 key beside the audit's keys, whose public half verifies them anywhere.

The audit's keys are symmetric: a verifier could forge with them. A proof bundle therefore carries a signature of this key instead.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.audit.keyring import write_secret
from ledger.database import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY_NAME: Final = "proof-signing.key"
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "signature.ed25519"
PUBLIC_KEY: Final = "public_key.pem"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip can hold; equal content gives equal bytes


@dataclass(frozen=True, slots=True)
class Signer:
    """Signing key of the installation."""

    _key: Ed25519PrivateKey

    def sign(self, content: bytes) -> bytes:
        """Return the signature, 64 bytes; equal content gives equal signatures."""
        return self._key.sign(content)

    @property
    def public_pem(self) -> bytes:
        """The public key, as PEM."""
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def load_signer(folder: Path) -> Signer:
    """Return the signing key of the data folder; the first use creates it. Raises DatabaseError for an unusable file."""
    path = folder / KEY_NAME
    if not path.exists():
        fresh = Ed25519PrivateKey.generate()
        pem = fresh.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        write_secret(path, pem)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise _unusable(type(error).__name__) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable("it is no Ed25519 key")
    return Signer(key)


def seal_bundle(signer: Signer, about: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return a zip of `files` with the public key, a manifest (`about` and the SHA-256 of every file) and its signature."""
    whole = {**files, PUBLIC_KEY: signer.public_pem}
    manifest = canonical({**about, "files": {name: hashlib.sha256(content).hexdigest() for name, content in whole.items()}})
    members = {**whole, MANIFEST: manifest, SIGNATURE: signer.sign(manifest)}
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), members[name])
    return bundle.getvalue()


def canonical(value: Any) -> bytes:
    """Return JSON with sorted names and no spaces, UTF-8."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _unusable(why: str) -> DatabaseError:
    return DatabaseError(
        f"{KEY_NAME} cannot be used ({why}). Nothing was exported. Restore it from your backup of the data folder; a new key would "
        "not fit the public key you gave away."
    )
