"""Signatures of proof bundles: an Ed25519 key beside the audit's keys, whose public half verifies them anywhere.

The audit's keys are symmetric: a verifier could forge with them. A proof bundle therefore carries a signature of this key instead.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
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


def load_signer(folder: Path) -> Ed25519PrivateKey:
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
    return key


def public_pem(signer: Ed25519PrivateKey) -> bytes:
    """Return the public half of a signing key, as PEM."""
    return signer.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def seal_bundle(signer: Ed25519PrivateKey, about: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return a zip of `files` with the public key, a manifest (`about` and the SHA-256 of every file) and its signature."""
    whole = {**files, PUBLIC_KEY: public_pem(signer)}
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
