# ruff: noqa: INP001 -- a script that travels alone in every bundle, not a module of a package
"""Verify a Quotebot proof bundle, offline and with nothing but Python: verify_quotebot_proof.py BUNDLE.zip PUBLIC_KEY.pem.

Take this script and the public key from a source you trust, not from the bundle you want to verify: a forger would put in their
own. Exit status: 0 the bundle is genuine, 1 it is refused, 2 wrong usage.

What is verified: the signature (Ed25519, RFC 8032) over manifest.json; that the bundle holds exactly the files of the manifest,
each with its SHA-256; that the price is the one the quote names by its hash; that the PDF is the one that was rendered; that the
events are one chain without a gap; that the anchors are in order.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
SIGNATURE = "signature.ed25519"
FORMAT = "quotebot/proof/1"
MEMBER_BYTES_MAX = 256 * 1024 * 1024


class RefusedError(Exception):
    """The bundle is not genuine; the message says why."""


def verify_bundle(bundle: Path, public_pem: bytes) -> dict[str, Any]:
    """Return the manifest of a genuine bundle. Raises RefusedError."""
    members = read_members(bundle)
    for name in (MANIFEST, SIGNATURE):
        if name not in members:
            raise RefusedError(f"{name} is missing")
    if not is_signed(read_public_key(public_pem), members[MANIFEST], members[SIGNATURE]):
        raise RefusedError("the signature is not by this public key over this manifest")
    manifest: dict[str, Any] = json.loads(members[MANIFEST])
    if manifest.get("format") != FORMAT:
        raise RefusedError(f"its format is {manifest.get('format')!r}; this script reads {FORMAT}")
    verify_files(manifest, members)
    verify_price(manifest, members)
    verify_chain(manifest, json.loads(members["chain.json"]))
    verify_anchors(manifest, json.loads(members["anchors.json"]))
    return manifest


def read_members(bundle: Path) -> dict[str, bytes]:
    """Return the content of every member by name. Raises RefusedError for what is no whole zip file, or names a member twice."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if len(names) != len(set(names)):
                raise RefusedError("a file is in the bundle twice")
            if any(info.file_size > MEMBER_BYTES_MAX for info in infos):
                raise RefusedError("a file is larger than any bundle's")
            return {info.filename: archive.read(info) for info in infos}
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, UnicodeError) as error:
        raise RefusedError(f"it cannot be read as a zip file ({error})") from error


def verify_files(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    """Hold the members against the manifest: the same names, the same content."""
    listed = manifest["files"]
    there = set(members) - {MANIFEST, SIGNATURE}
    for name in sorted(set(listed) - there):
        raise RefusedError(f"{name} is missing")
    for name in sorted(there - set(listed)):
        raise RefusedError(f"{name} was added")
    for name, sha256 in listed.items():
        if hashlib.sha256(members[name]).hexdigest() != sha256:
            raise RefusedError(f"{name} was changed")


def verify_price(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    """Hold the price and the PDF against the hashes that quote and ledger know them by."""
    quote = json.loads(members["quote.json"])
    if quote["quote_id"] != manifest["quote_id"]:
        raise RefusedError(f"quote.json is about {quote['quote_id']}")
    if hashlib.sha256(members["pricing.json"]).hexdigest() != quote["pricing_hash"]:
        raise RefusedError("pricing.json is not the price that quote.json names")
    pdf = members.get("quote.pdf")
    if pdf is not None and hashlib.sha256(pdf).hexdigest() != quote["pdf_sha256"]:
        raise RefusedError("quote.pdf is not the one that was rendered")


def verify_chain(manifest: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Make sure that the events are one chain: numbered from 1 without a gap, each naming the one before it."""
    previous = None
    for seq, event in enumerate(events, 1):
        if event["seq"] != seq:
            raise RefusedError(f"event {seq} of the chain is missing or out of order")
        if event["aggregate_id"] != manifest["quote_id"]:
            raise RefusedError(f"event {seq} belongs to another chain ({event['aggregate_id']})")
        if event["previous_id"] != (None if previous is None else previous["id"]):
            raise RefusedError(f"event {seq} does not follow the one before it")
        if previous is not None and event["id"] <= previous["id"]:
            raise RefusedError(f"event {seq} is older than the one before it")
        previous = event
    end = manifest["chain"]
    if previous is None or (previous["id"], previous["seq"], previous["mac"]) != (end["event_id"], end["seq"], end["mac"]):
        raise RefusedError("the chain does not end where the manifest says")


def verify_anchors(manifest: dict[str, Any], anchors: list[dict[str, Any]]) -> None:
    """Make sure that the anchors follow each other and are none from before the quote."""
    sealed = manifest["chain"]["first_event_id"]
    number = None
    for anchor in anchors:
        if anchor["last_event_id"] < sealed or (number is not None and anchor["id"] != number + 1):
            raise RefusedError(f"anchor {anchor['id']} is out of order")
        sealed, number = anchor["last_event_id"], anchor["id"]


# --------------------------------------------------------------------------------------------- Ed25519, RFC 8032 section 5.1

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)
PEM_PREFIX = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of an Ed25519 key, RFC 8410

Point = tuple[int, int, int, int]  # x, y, z, t with x = X/Z, y = Y/Z, x*y = T/Z
NEUTRAL = (0, 1, 1, 0)
BASE_X = 15112221349535400772501151409588531511454012693041857206046113283949847762202
BASE_Y = 46316835694926478169428394003475163141307993866256225615783033603165251855960
BASE = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)


def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Tell whether the 64 bytes are a signature of the message by this key (32 bytes)."""
    if len(signature) != 64:  # noqa: PLR2004 -- RFC 8032
        return False
    key = decompress(public_key)
    commitment = decompress(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= L:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public_key + message).digest(), "little") % L
    return same(multiply(scalar, BASE), add(commitment, multiply(challenge, key)))


def add(p: Point, q: Point) -> Point:
    """Return the sum of two points."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def multiply(scalar: int, point: Point) -> Point:
    """Return the point added to itself `scalar` times. Nothing here is secret, so time does not matter."""
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point = add(point, point)
        scalar >>= 1
    return total


def same(p: Point, q: Point) -> bool:
    """Tell whether two points are the same one."""
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


def decompress(encoded: bytes) -> Point | None:
    """Return the point of 32 bytes, or None when there is none."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * SQRT_M1 % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def read_public_key(pem: bytes) -> bytes:
    """Return the 32 bytes of a PEM file. Raises RefusedError."""
    lines = [line.strip() for line in pem.decode("ascii", "replace").splitlines() if line.strip()]
    if len(lines) < 3 or lines[0] != "-----BEGIN PUBLIC KEY-----" or lines[-1] != "-----END PUBLIC KEY-----":  # noqa: PLR2004 -- PEM
        raise RefusedError("the public key is no PEM file of a public key")
    try:
        der = base64.b64decode("".join(lines[1:-1]), validate=True)
    except ValueError as error:
        raise RefusedError("the public key is damaged") from error
    if not der.startswith(PEM_PREFIX) or len(der) != len(PEM_PREFIX) + 32:
        raise RefusedError("the public key is no Ed25519 key")
    return der[len(PEM_PREFIX) :]


def main(arguments: list[str]) -> int:
    """Verify one bundle and say what came of it."""
    if len(arguments) != 2:  # noqa: PLR2004 -- a bundle and a key
        sys.stderr.write("usage: verify_quotebot_proof.py BUNDLE.zip PUBLIC_KEY.pem\n")
        return 2
    bundle, key = (Path(argument) for argument in arguments)
    try:
        manifest = verify_bundle(bundle, key.read_bytes())
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except RefusedError as error:
        sys.stderr.write(f"REFUSED: {error}.\n")
        return 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        sys.stderr.write(f"REFUSED: the bundle is signed, but malformed ({error!r}).\n")
        return 1
    events = manifest["chain"]["seq"]
    sys.stdout.write(f"GENUINE: {manifest['quote_id']} v{manifest['version']}, {events} events, as of {manifest['exported_at']}.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
