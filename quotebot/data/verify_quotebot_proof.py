# ruff: noqa: INP001 -- a script that travels alone in every bundle, not a module of a package
"""Verify a Quotebot proof bundle, offline and with nothing but Python: verify_quotebot_proof.py BUNDLE.zip PUBLIC_KEY.pem.

Take this script and the public key from a source you trust, not from the bundle you want to verify: a forger would put in their
own. Exit status: 0 the bundle is genuine, 1 it is refused, 2 wrong usage.

What is verified, in this order: the signature (Ed25519, RFC 8032) over manifest.json; that the bundle holds exactly the files of
the manifest, each with its SHA-256; that the price is the one the quote names by its hash; that the PDF is the one that was
rendered; that the events are one chain without a gap; that every row of the quote is the one that the chain holds the digest of,
and that quote.json and approvals.json say what these rows and the events say; that the anchors are in order.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MANIFEST = "manifest.json"
SIGNATURE = "signature.ed25519"
FORMAT = "quotebot/proof/2"
FORMAT_WITHOUT_ROWS = "quotebot/proof/1"  # its events have no digests of rows: their words are compared
BUNDLE_BYTES_MAX = 64 * 1024 * 1024
TOTAL_BYTES_MAX = 128 * 1024 * 1024  # of all members, unpacked
MANIFEST_BYTES_MAX = 64 * 1024
DIRECTORY_BYTES_MAX = 16 * 1024  # of the zip file: some hundred members
TAIL_BYTES = 22 + 65_535  # where the end of a zip file is looked for
READ_BYTES = 1024 * 1024
UNREADABLE = (OSError, zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, zlib.error)
MISSHAPEN = (KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RuntimeError)  # RuntimeError: also too deep
KEYS = {  # the tables in rows.json, with their primary keys
    "quotes": ("quote_id",),
    "one_time_tokens": ("token",),
    "quote_versions": ("quote_id", "version"),
    "approvals": ("approval_id",),
    "approval_slots": ("approval_id", "slot"),
    "approval_policies": ("approval_id",),
    "approval_calendars": ("approval_id",),
    "approval_roles": ("approval_id",),
    "approval_notes": ("approval_id",),
    "document_pins": ("quote_id", "version"),
    "document_contacts": ("quote_id", "version"),
    "superseded_versions": ("quote_id", "version"),
    "quote_sendings": ("quote_id", "version"),
    "quote_closings": ("quote_id",),
    "quote_freezings": ("quote_id", "version"),
    "quote_opportunities": ("quote_id",),
    "inherited_makers": ("quote_id", "maker"),
    "replaced_roots": ("quote_id", "dead_ts"),
    "quote_places": ("quote_id",),
    "artefacts": ("render_key", "sha256"),
    "crm_conflicts": ("id",),
}
OF_QUOTE = (  # columns of `quotes` that quote.json has
    *("quote_id", "version", "state", "account", "requester", "requester_name", "team_id", "channel", "created_at", "valid_until"),
    "thread_ts",
)
DERIVED = ("pricing_hash", "pdf_sha256", "revised_by", "revised_at")  # and these, of other rows
PARTS = {  # parts of quote.json, each a row of its own, or null
    "frozen": ("quote_freezings", {"frozen_by": "frozen_by", "frozen_at": "frozen_at"}),
    "sent": ("quote_sendings", {"recipient": "recipient", "sent_by": "sent_by", "sent_at": "sent_at"}),
    "closing": ("quote_closings", {"reason": "reason", "closed_by": "closed_by", "closed_at": "closed_at"}),
    "opportunity": ("quote_opportunities", {"record_id": "record_id", "account_id": "account_id"}),
}


class RefusedError(Exception):
    """The bundle is not genuine; the message says why."""


def verify_bundle(bundle: Path, public_pem: bytes) -> dict[str, Any]:
    """Return the manifest of a genuine bundle. Raises RefusedError."""
    public_key = read_public_key(public_pem)
    try:
        verify_size(bundle)
        with zipfile.ZipFile(bundle) as archive:
            return verify_archive(archive, public_key)
    except UNREADABLE as error:
        raise RefusedError(f"it cannot be read as a zip file ({error})") from error
    except MISSHAPEN as error:
        raise RefusedError(f"its content has another form than a bundle's ({type(error).__name__}: {error})") from error


def verify_archive(archive: zipfile.ZipFile, public_key: bytes) -> dict[str, Any]:
    """Verify an open bundle: the signature first, so that nothing else is read of one that is not ours."""
    infos = {info.filename: info for info in archive.infolist()}
    if len(infos) != len(archive.infolist()):
        raise RefusedError("a file is in the bundle twice")
    if sum(info.file_size for info in infos.values()) > TOTAL_BYTES_MAX:
        raise RefusedError(f"its files are larger than any bundle's ({TOTAL_BYTES_MAX >> 20} MiB)")
    for name in (MANIFEST, SIGNATURE):
        if name not in infos:
            raise RefusedError(f"{name} is missing")
        if infos[name].file_size > MANIFEST_BYTES_MAX:
            raise RefusedError(f"{name} is larger than any bundle's")
    signed = archive.read(MANIFEST)
    if not is_signed(public_key, signed, archive.read(SIGNATURE)):
        raise RefusedError("the signature is not by this public key over this manifest")
    manifest: dict[str, Any] = json.loads(signed)
    if manifest.get("format") not in (FORMAT, FORMAT_WITHOUT_ROWS):
        raise RefusedError(f"its format is {manifest.get('format')!r}; this script reads {FORMAT}")
    members = read_members(archive, manifest)
    verify_price(manifest, members)
    events = json.loads(members["chain.json"])
    verify_chain(manifest, events)
    quote, approvals = json.loads(members["quote.json"]), json.loads(members["approvals.json"])
    verify_words(quote, json.loads(members["pricing.json"]), approvals, events)
    if manifest["format"] == FORMAT:
        rows = json.loads(members["rows.json"])
        verify_rows(rows, events)
        verify_quote(quote, rows)
        verify_approvals(quote["quote_id"], approvals, rows)
    verify_anchors(manifest, json.loads(members["anchors.json"]))
    return manifest


def verify_size(bundle: Path) -> None:
    """Refuse a file that is too large, or lists too many members, before it is opened as a zip file."""
    size = bundle.stat().st_size
    if size > BUNDLE_BYTES_MAX:
        raise RefusedError(f"it is larger than any bundle ({BUNDLE_BYTES_MAX >> 20} MiB)")
    with bundle.open("rb") as file:
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end >= 0 and int.from_bytes(tail[end + 12 : end + 16], "little") > DIRECTORY_BYTES_MAX:
        raise RefusedError("it lists more files than any bundle")
    if b"PK\x06\x07" in tail[max(0, end - 20) : end]:
        raise RefusedError("it is a zip file of another kind (ZIP64)")


def read_members(archive: zipfile.ZipFile, manifest: dict[str, Any]) -> dict[str, bytes]:
    """Return the members that are read further. All of them are those of the manifest: the same names, the same content."""
    listed = manifest["files"]
    there = set(archive.namelist()) - {MANIFEST, SIGNATURE}
    for name in sorted(set(listed) - there):
        raise RefusedError(f"{name} is missing")
    for name in sorted(there - set(listed)):
        raise RefusedError(f"{name} was added")
    members = {}
    for name, sha256 in listed.items():
        digest, parts = hashlib.sha256(), []
        with archive.open(name) as member:
            while block := member.read(READ_BYTES):
                digest.update(block)
                if name.endswith(".json"):
                    parts.append(block)
        if digest.hexdigest() != sha256:
            raise RefusedError(f"{name} was changed")
        members[name] = b"".join(parts)
    return members


def verify_price(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    """Hold the price and the PDF against the hashes that quote and ledger know them by."""
    quote = json.loads(members["quote.json"])
    if quote["quote_id"] != manifest["quote_id"]:
        raise RefusedError(f"quote.json is about {quote['quote_id']}")
    if hashlib.sha256(members["pricing.json"]).hexdigest() != quote["pricing_hash"]:
        raise RefusedError("pricing.json is not the price that quote.json names")
    if "quote.pdf" in members and manifest["files"]["quote.pdf"] != quote["pdf_sha256"]:
        raise RefusedError("quote.pdf is not the one that was rendered")


def verify_chain(manifest: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Make sure that the events are one chain: numbered from 1 without a gap, each naming the one before it.

    Their ids only grow: the events between them belong to other chains, or to none.
    """
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


def verify_words(
    quote: dict[str, Any], pricing: dict[str, Any], approvals: list[dict[str, Any]], events: list[dict[str, Any]]
) -> None:
    """Hold quote, price and decision against what the last events say of them in words."""
    said: dict[str, Any] = {}
    for event in events:
        after = json.loads(event["after"]) if event["after"] else {}
        if event["event_type"].startswith(("quote.", "approval.")) and "state" in after:
            said.update(after)
    quote_id = quote["quote_id"]
    for name in ("version", "state", "valid_until", "requester", "channel", "pricing_hash"):
        differ("quote.json", quote_id, name, quote[name], said)
    account_sha256 = hashlib.sha256(encoded([quote_id, quote["account"]])).hexdigest()
    if said.get("account_sha256", account_sha256) != account_sha256:
        raise RefusedError(f"quote.json: account of {quote_id} is {quote['account']!r}; the events have the hash of another")
    differ("pricing.json", quote_id, "currency", pricing["currency"], said)
    if "net_total" in said and Decimal(str(said["net_total"])) != Decimal(str(pricing["net_total"])):
        differ("pricing.json", quote_id, "net_total", pricing["net_total"], said)
    approval = next((each for each in approvals if each["approval_id"] == said.get("approval_id")), None)
    if said.get("approval_id") is not None and approval is None:
        raise RefusedError(f"approvals.json has no {said['approval_id']}, which the events speak of")
    for name in ("required_roles", "decided_by", "decided_role"):
        if approval is not None:
            differ("approvals.json", approval["approval_id"], name, approval[name], said)


def differ(file: str, row: str, column: str, value: Any, said: dict[str, Any]) -> None:
    """Refuse a value that is not what the events say of it."""
    if column in said and said[column] != value:
        raise RefusedError(f"{file}: {column} of {row} is {value!r}; the events say {said[column]!r}")


def verify_rows(rows: dict[str, list[dict[str, Any]]], events: list[dict[str, Any]]) -> None:
    """Hold every row against the last digest of it in the chain; none is missing, none was added."""
    bound: dict[tuple[str, str], tuple[str | None, int]] = {}
    for event in events:
        after = json.loads(event["after"]) if event["after"] else {}
        for table, digests in after.get("bound", {}).items():
            for key, digest in digests.items():
                bound[(table, key)] = (digest, event["seq"])
    same_names("rows.json", "table", rows, KEYS)
    for table, found in rows.items():
        for row in found:
            values = [row[name] for name in KEYS[table]]
            key = str(values[0]) if len(values) == 1 else encoded(values).decode()
            digest, seq = bound.pop((table, key), (None, 0))
            if digest is None:
                raise RefusedError(f"{table} {key}: no event of the chain wrote this row")
            there = {name: value for name, value in row.items() if value is not None}
            if hashlib.sha256(encoded([table, there])).hexdigest() != digest:
                raise RefusedError(f"{table} {key}: it is not the row that event {seq} of the chain wrote")
    for (table, key), (digest, seq) in bound.items():
        if digest is not None and table in KEYS:
            raise RefusedError(f"{table} {key}: event {seq} of the chain wrote this row; it is missing")


def verify_quote(quote: dict[str, Any], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Hold quote.json against the rows of the quote."""
    quote_id, version = quote["quote_id"], quote["version"]
    (head,) = rows["quotes"]
    same_names("quote.json", "field", quote, (*OF_QUOTE, *PARTS, *DERIVED))
    for name in OF_QUOTE:
        same_value("quote.json", quote_id, name, quote[name], head[name])
    (priced,) = (row for row in rows["quote_versions"] if row["version"] == version)
    same_value("quote.json", quote_id, "pricing_hash", quote["pricing_hash"], priced["pricing_hash"])
    for part, (table, names) in PARTS.items():
        row = next((row for row in rows[table] if row.get("version", version) == version), None)
        wanted = None if row is None else {name: row[column] for name, column in names.items()}
        same_value("quote.json", quote_id, part, quote[part], wanted)
    before = next((row for row in rows["superseded_versions"] if row["version"] == version - 1), {})
    same_value("quote.json", quote_id, "revised_by", quote["revised_by"], before.get("superseded_by"))
    same_value("quote.json", quote_id, "revised_at", quote["revised_at"], before.get("superseded_at"))
    rendered = {row["sha256"] for row in rows["artefacts"] if row["version"] == version}
    if rendered and quote["pdf_sha256"] is not None and quote["pdf_sha256"] not in rendered:
        raise RefusedError("quote.json: pdf_sha256 is of no document that was rendered")


def verify_approvals(quote_id: str, approvals: list[dict[str, Any]], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Hold approvals.json against the rows: every request, and every slot of it."""
    there = {row["approval_id"]: row for row in rows["approvals"]}
    for approval in approvals:
        approval_id = approval["approval_id"]
        if approval_id not in there:
            raise RefusedError(f"approvals.json: {quote_id} has no request {approval_id}")
        for name, value in there[approval_id].items():
            wanted = json.loads(value) if name in ("required_roles", "reasons") else value
            same_value("approvals.json", approval_id, name, approval[name], wanted)
        slots = [row for row in rows["approval_slots"] if row["approval_id"] == approval_id]
        same_value("approvals.json", approval_id, "slots", approval["slots"], slots)
        policy = next((row for row in rows["approval_policies"] if row["approval_id"] == approval_id), None)
        same_value("approvals.json", approval_id, "policy", approval["policy"], policy)
        calendar = next((row for row in rows.get("approval_calendars", ()) if row["approval_id"] == approval_id), None)
        same_value("approvals.json", approval_id, "calendar", approval.get("calendar"), calendar)
        roles = next((row for row in rows.get("approval_roles", ()) if row["approval_id"] == approval_id), None)
        same_value("approvals.json", approval_id, "roles", approval.get("roles"), roles)
        note = next((row for row in rows.get("approval_notes", ()) if row["approval_id"] == approval_id), None)
        same_value("approvals.json", approval_id, "note", approval.get("note"), note)


def same_names(file: str, kind: str, there: Iterable[str], wanted: Iterable[str]) -> None:
    """Refuse a file that lacks a name or has one more."""
    for name in sorted(set(there) ^ set(wanted)):
        raise RefusedError(f"{file} {'has' if name in there else 'lacks'} the {kind} {name}")


def same_value(file: str, row: str, column: str, value: Any, wanted: Any) -> None:
    """Refuse a value that is not the one of the row."""
    if value != wanted:
        raise RefusedError(f"{file}: {column} of {row} is {value!r}; its row has {wanted!r}")


def encoded(value: Any) -> bytes:
    """Return the JSON that digests are made of."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


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
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        sys.stderr.write(f"REFUSED: the bundle is signed, but malformed ({error!r}).\n")
        return 1
    events = manifest["chain"]["seq"]
    sys.stdout.write(f"GENUINE: {manifest['quote_id']} v{manifest['version']}, {events} events, as of {manifest['exported_at']}.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
