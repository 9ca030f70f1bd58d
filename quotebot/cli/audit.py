"""`quotebot audit verify|show|export|public-key|rotate-key`: verification, display, export and key commands of the audit.

The export is a signed proof bundle of one quote: its content, its approvals, its effects, and its audit chain.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from adapters.failures import AdapterError
from ledger.audit.anchors import LOG_NAME, Anchor, read_lines
from ledger.audit.events import EVENT_COLUMNS, SYSTEM_CHAIN
from ledger.audit.history import Fault, Finding
from ledger.audit.keyring import KeyMissing, key_files, load_keyring, require_keys, rotate
from ledger.audit.proof import canonical, load_signer, public_pem, seal_bundle
from ledger.audit.verification import verify as verify_all
from ledger.keys import sha256
from ledger.migrations import SchemaChangedError
from ledger.records import Effect
from quotebot.app.installation import storage_of
from quotebot.cli import exits, tables, terminal
from quotebot.domain.pricing import engine as pricing_rules
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.effects import RENDER
from quotebot.settings import ConfigurationError, load_settings
from quotebot.store import history
from quotebot.store import quotes as store
from quotebot.store.history import BrokenChainError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from ledger.audit.events import Keyring
    from ledger.audit.verification import VerificationReport
    from ledger.database import ReadAccess, Row, Tx
    from ledger.ledger import Ledger
    from quotebot.settings import Settings


FORMAT: Final = "quotebot/proof/2"
SCRIPT: Final = "verify_quotebot_proof.py"
# Fields that other files of the bundle, such as rows.json, hold.
POLICY_COLUMNS: Final = frozenset(
    {"policy", "ruleset_hash", "remind_ms", "escalate_ms", "expire_ms", "calendar", "own_roles", "note"}
)
ELSEWHERE: Final = ("pricing", "approval", "earlier_makers", "card_channel", "superseded")
EFFECT_FIELDS: Final = ("id", "effect_key", "effect_class", "semantics", "state", "attempts", "cycle", "external_ref")
README: Final = """\
Proof of quote {quote_id}, version {version}, exported on {exported_at}.

quote.json      the quote as it stood, with the hashes of its price and its PDF
pricing.json    the immutable price; its SHA-256 is the quote's pricing_hash
trace.json      how the price came about, in words
approvals.json  who was asked and who decided, slot by slot
rows.json       the quote's rows in the ledger; chain.json has the digest of each
effects.json    what was owed to the outside and what became of it
chain.json      every audit event of the quote, in order
anchors.json    the hourly seals over all chains of the ledger since the quote's first event
quote.pdf       the document (if it was rendered and is still stored)
manifest.json   the SHA-256 of every file; signature.ed25519 is its signature

To verify, offline:

    python3 verify_quotebot_proof.py BUNDLE.zip PUBLIC_KEY.pem

Take script and public key from the seller by another way, not from this bundle: a forger would have put in their own. The seller
prints the key with `quotebot audit public-key`. The `mac` of an event is made with a secret key of the ledger: with it the seller
can show, by `quotebot audit verify`, that the chain in the ledger still is the chain in this bundle.
"""
app = App(name="audit", help="Verify, read and export the audit trail")
Json = Annotated[bool, Parameter(name="--json", negative="")]
TABLE_ROW = 120  # characters of an event's `after` in the table


@dataclass(frozen=True, slots=True)
class ProofFacts:
    """All data of the ledger on one quote, read in one snapshot, as JSON-ready values."""

    quote: dict[str, Any]
    pricing: bytes  # as stored
    trace: tuple[str, ...]
    approvals: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    events: list[dict[str, Any]]
    anchors: list[dict[str, Any]]
    rows: dict[str, list[dict[str, Any]]]


def read_facts(tx: Tx, quote_id: str, keyring: Keyring) -> ProofFacts | None:
    """Return the facts of a quote, or None if there is no such quote. Raises BrokenChainError."""
    quote = store.load(tx, quote_id)
    row = tx.one("load_quote", quote_id=quote_id)
    if quote is None or row is None:
        return None
    if sha256(row["pricing"].encode()) != row["pricing_hash"]:
        raise BrokenChainError(f"the price of {quote_id} is not the one that was stored with its hash")
    events = [
        {**{name: event[name] for name in EVENT_COLUMNS}, "mac": event["mac"].hex()}
        for event in history.proven_chain(tx, quote_id, keyring)
    ]
    rows = history.rows_of_quote(tx, quote_id, events)
    if isinstance(rows, Finding):
        raise BrokenChainError(f"{rows.table} {rows.row}: {rows.meaning}")
    effects = [Effect.of(effect) for effect in tx.all("effects_of_aggregate", aggregate_id=quote_id)]
    rendered = [
        effect.result["sha256"]
        for effect in effects
        if effect.effect_class == RENDER and effect.result and effect.payload["version"] == quote.version
    ]
    fields = {name: value for name, value in asdict(quote).items() if name not in ELSEWHERE}
    approvals = [
        {
            **{name: found[name] for name in found.keys() if name not in POLICY_COLUMNS},  # noqa: SIM118 -- a row iterates values
            "policy": next((row for row in rows["approval_policies"] if row["approval_id"] == found["approval_id"]), None),
            "calendar": next((row for row in rows["approval_calendars"] if row["approval_id"] == found["approval_id"]), None),
            "roles": next((row for row in rows["approval_roles"] if row["approval_id"] == found["approval_id"]), None),
            "note": next((row for row in rows["approval_notes"] if row["approval_id"] == found["approval_id"]), None),
            **{name: json.loads(found[name]) for name in ("required_roles", "reasons")},
            "slots": [row for row in rows["approval_slots"] if row["approval_id"] == found["approval_id"]],
        }
        for version in range(1, quote.version + 1)
        if (found := tx.one("latest_approval", quote_id=quote_id, quote_version=version)) is not None
    ]
    anchors = [asdict(Anchor.of(found)) for found in tx.all("audit_anchors_since", event_id=events[0]["id"])]
    return ProofFacts(
        quote={**fields, "pricing_hash": row["pricing_hash"], "pdf_sha256": rendered[-1] if rendered else None},
        pricing=row["pricing"].encode(),
        trace=pricing_rules.explain(quote.pricing),
        approvals=approvals,
        effects=[{name: getattr(effect, name) for name in EFFECT_FIELDS} for effect in effects],
        events=events,
        anchors=[{name: value for name, value in anchor.items() if name != "last_mac"} for anchor in anchors],
        rows=rows,
    )


async def export_proof(
    ledger: Ledger, quote_id: str, signer: Ed25519PrivateKey, *, actor: str, stored_pdf: Callable[[str], bytes | None]
) -> bytes | None:
    """Return the signed bundle of a quote (a zip) and record the export in the quote's chain; None if there is no such quote.

    `stored_pdf` returns the PDF of a SHA-256 while it is kept. If BrokenChainError is raised, nothing is exported.
    """
    facts = await ledger.database.read(lambda tx: read_facts(tx, quote_id, ledger.audit.keyring))
    if facts is None:
        return None
    now = ledger.clock.now_ms()
    pdf_sha256 = facts.quote["pdf_sha256"]
    bundle = assemble(facts, signer, now, None if pdf_sha256 is None else stored_pdf(pdf_sha256))
    after = {"sha256": sha256(bundle), "events": len(facts.events)}
    await ledger.database.write(
        "audit.export",
        lambda tx: ledger.audit.append(
            tx, now, "audit.exported", actor=actor, actor_type="operator", aggregate_id=quote_id, after=after
        ),
    )
    return bundle


def assemble(facts: ProofFacts, signer: Ed25519PrivateKey, now: int, pdf: bytes | None) -> bytes:
    """Return the bundle; the same facts at the same time give the same bytes."""
    quote_id, version = facts.quote["quote_id"], facts.quote["version"]
    exported_at = f"{datetime.fromtimestamp(now / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    first, last = facts.events[0], facts.events[-1]
    members = {
        "quote.json": canonical(facts.quote),
        "pricing.json": facts.pricing,
        "trace.json": canonical(facts.trace),
        "approvals.json": canonical(facts.approvals),
        "effects.json": canonical(facts.effects),
        "rows.json": canonical(facts.rows),
        "chain.json": canonical(facts.events),
        "anchors.json": canonical(facts.anchors),
        "README.txt": README.format(quote_id=quote_id, version=version, exported_at=exported_at).encode(),
        SCRIPT: files("quotebot").joinpath("data", SCRIPT).read_bytes(),
        **({} if pdf is None else {"quote.pdf": pdf}),
    }
    about = {
        "format": FORMAT,
        "quote_id": quote_id,
        "version": version,
        "exported_at": exported_at,
        "chain": {"first_event_id": first["id"], "event_id": last["id"], "seq": last["seq"], "mac": last["mac"]},
    }
    return seal_bundle(signer, about, members)


@app.command
async def verify(
    *,
    anchors: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    every_anchor: Annotated[bool, Parameter(negative="")] = False,
    json_output: Json = False,
) -> int:
    """Verify every event, chain end and anchor; name the first bad row, if there is one.

    Exit status: 0 the audit is whole, 3 it was tampered with, 64 a file holds no anchors, 78 a key or the ledger is missing.

    Parameters
    ----------
    anchors
        A copy of audit-anchors.log that was kept elsewhere: only that shows a file put back to an earlier day. The log in the data
        folder is always looked at.
    every_anchor
        Recompute the old anchors as well as the newest 24. Each costs a walk over all quotes.
    json_output
        Print JSON.
    """
    try:
        async with _to_verify() as (database, keyring, settings):
            beside = settings.data_dir / LOG_NAME
            kept: list[Anchor] = []
            for path in (*anchors, *([beside] if beside.exists() else [])):
                try:
                    kept += read_lines(path.read_text("utf-8"))
                except (OSError, ValueError) as error:
                    reason = error.strerror if isinstance(error, OSError) else error
                    return exits.complain(
                        f"{path} cannot be read as anchors: {reason}. Nothing was verified.",
                        exits.REFUSED if path == beside else exits.USAGE,
                    )
            report = await verify_all(
                database,
                keyring,
                anchors_kept_elsewhere=tuple(dict.fromkeys(kept)),
                every_anchor=every_anchor,
                replay=history.replay,
            )
            damaged = await asyncio.to_thread(storage_of(settings).damaged_document) if report.sound else None
            if damaged is not None:
                report.finding = Finding(Fault.CHANGED, "artefact_blobs", damaged, "the content of this document was changed")
    except SchemaChangedError as error:
        if json_output:
            tables.print_json({"sound": False, "schema": error.found})
        else:
            print(f"TAMPERED: schema: {error.named}.")
            exits.complain(str(error))
        return exits.REFUSED
    if json_output:
        tables.print_json({**asdict(report), "sound": report.sound})
    else:
        _tell(report, compared=bool(anchors))
    return exits.OK if report.sound else exits.REFUSED


@app.command
async def show(quote: str, *, limit: int = 100, json_output: Json = False) -> int:
    """List the newest events of one quote, oldest first.

    Parameters
    ----------
    quote
        The quote, e.g. Q-2026-0042; `system` for what belongs to none (`system/NAME` for that of one of several writers).
    limit
        At most this many.
    json_output
        Print JSON.
    """
    if limit < 1:
        return exits.complain(f"--limit is {limit}; it is at least 1.", exits.USAGE)
    chain_id = parse_quote_id(quote) or quote
    async with terminal.existing_ledger() as ledger:
        rows = await ledger.database.read(lambda tx: _newest(tx, chain_id, limit))
    if not rows:
        return exits.complain(f"The audit knows no {quote}: give a quote, e.g. Q-2026-0042, or system.", exits.NOTHING_MATCHED)
    events = [{**{name: row[name] for name in EVENT_COLUMNS}, "mac": row["mac"].hex()} for row in rows]
    if json_output:
        tables.print_json({"events": events})
        return exits.OK
    tables.print_table(
        ("Seq", "ID", "Time (UTC)", "Event", "Who", "Ref", "What"),
        (
            (
                str(event["seq"]),
                str(event["id"]),
                _time(event["at"]),
                event["event_type"],
                event["actor"],
                event["correlation_id"] or "",
                _shown(event["after"]),
            )
            for event in events
        ),
    )
    return exits.OK


def _newest(tx: Tx, chain_id: str, limit: int) -> list[Row]:
    """Return the newest events of a chain, or of every writer's system chain together."""
    chains = [row["aggregate_id"] for row in tx.all("system_chains")] if chain_id == SYSTEM_CHAIN else [chain_id]
    found = [row for chain in chains for row in tx.all("audit_chain", aggregate_id=chain, limit=limit)]
    return sorted(found, key=lambda row: int(row["id"]))[-limit:]


@app.command
async def export(quote: str, *, out: Path | None = None, json_output: Json = False) -> int:
    """Write the proof of one quote: a signed zip that a script verifies offline. That is audited.

    Parameters
    ----------
    quote
        The quote, e.g. Q-2026-0042.
    out
        Where to; Q-2026-0042-proof.zip in this folder without it. A file that is there already is never overwritten.
    json_output
        Print JSON.
    """
    quote_id = parse_quote_id(quote)
    if quote_id is None:
        return exits.complain(f"{quote!r} is no quote: write Q-2026-0042. Nothing was exported.", exits.USAGE)
    target = out or Path(f"{quote_id}-proof.zip")
    if target.exists():
        return exits.complain(f"{target} is there already. Nothing was exported. Choose another name with --out.", exits.CONFLICT)
    async with _existing() as (ledger, settings):
        try:
            bundle = await export_proof(
                ledger,
                quote_id,
                load_signer(settings.data_dir),
                actor=terminal.user(),
                stored_pdf=lambda digest: _stored_pdf(settings, digest),
            )
        except BrokenChainError as error:
            return exits.complain(f"{error}. Nothing was exported. Run: quotebot audit verify", exits.REFUSED)
    if bundle is None:
        return exits.complain(f"There is no quote {quote_id}. Nothing was exported.", exits.NOTHING_MATCHED)
    try:
        await asyncio.to_thread(_write_new, target, bundle)
    except OSError as error:
        return exits.complain(
            f"{target} cannot be written ({error.strerror}). The export is audited, but there is no bundle. Run it again.",
            exits.UNAVAILABLE,
        )
    if json_output:
        tables.print_json({"file": str(target), "sha256": sha256(bundle), "bytes": len(bundle)})
    else:
        print(target)
        exits.complain("Verify it with: python3 verify_quotebot_proof.py BUNDLE.zip PUBLIC_KEY.pem (quotebot audit public-key)")
    return exits.OK


@app.command(name="public-key")
def public_key(*, json_output: Json = False) -> int:
    """Print the public key that proof bundles are verified with.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    terminal.existing_ledger()  # rejects a folder without a ledger: a key created there would fit no bundle
    pem = public_pem(load_signer(load_settings().data_dir)).decode()
    if json_output:
        tables.print_json({"public_key": pem})
    else:
        print(pem, end="")
    return exits.OK


@app.command(name="rotate-key")
async def rotate_key(*, json_output: Json = False) -> int:
    """Sign the audit with a new key from now on. Old keys stay: without them old events cannot be verified.

    A running bot goes on with its key until its next start.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    async with _existing() as (ledger, settings):
        before = ledger.audit.keyring.current_id
        ledger.audit.keyring = rotate(settings.data_dir)
        after = ledger.audit.keyring.current_id
        now = ledger.clock.now_ms()
        await ledger.database.write(
            "audit.rotate_key",
            lambda tx: ledger.audit.append(
                tx,
                now,
                "audit.key_rotated",
                actor=terminal.user(),
                actor_type="operator",
                before={"key_id": before},
                after={"key_id": after},
            ),
        )
        newest = key_files(settings.data_dir)[-1].name
    if json_output:
        tables.print_json({"file": newest, "key_id": after, "previous_key_id": before})
    else:
        print(f"{newest} ({after}) signs from now on.")
        exits.complain("Restart the bot: until then it signs with the key it started with. Back the data folder's keys up.")
    return exits.OK


@contextlib.asynccontextmanager
async def _to_verify() -> AsyncIterator[tuple[ReadAccess, Keyring, Settings]]:
    """Open the ledger as `_existing` does; in a folder that cannot be written, open it read-only."""
    settings = load_settings()
    storage = storage_of(settings)
    closed = storage.read_only() if storage.exists() else None
    if closed is None:
        async with _existing() as (ledger, settings):
            yield ledger.database, ledger.audit.keyring, settings
        return
    require_keys(settings.data_dir)
    yield closed, load_keyring(settings.data_dir, may_create=False), settings


@contextlib.asynccontextmanager
async def _existing() -> AsyncIterator[tuple[Ledger, Settings]]:
    """Open the ledger with all its keys. Raises ConfigurationError if a key is missing: a verification must never create one."""
    opening = terminal.existing_ledger()
    settings = load_settings()
    try:
        require_keys(settings.data_dir)
    except KeyMissing as error:
        raise ConfigurationError(str(error)) from error
    async with opening as ledger:
        yield ledger, settings


def _shown(after: str | None) -> str:
    """Return the beginning of an event's content, without the digests of rows."""
    if after is None:
        return ""
    words = {name: value for name, value in json.loads(after).items() if name != "bound" and not name.endswith("_sha256")}
    return json.dumps(words, ensure_ascii=False, separators=(",", ":"))[:TABLE_ROW]


def _stored_pdf(settings: Settings, sha256: str) -> bytes | None:
    try:
        return storage_of(settings).documents().get(sha256)
    except AdapterError:  # missing or damaged: the bundle still holds its hash
        return None


def _write_new(path: Path, content: bytes) -> None:
    """Write a file for its owner alone; an existing file is never overwritten, and a partial file is removed."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink()
            raise


def _tell(report: VerificationReport, *, compared: bool) -> None:
    finding = report.finding
    if finding is None:
        print(
            f"The audit is whole. Events: {report.events:,}, chains: {report.chains:,}, anchors: {report.anchors:,} "
            f"(recomputed: {report.anchors_recomputed:,}, from files: {report.anchors_kept_elsewhere:,})."
        )
        if not compared:  # the log in the data folder can be set back together with the file
            exits.complain("Give --anchors with a copy kept elsewhere: only that shows a file put back to an earlier day.")
    else:
        print(f"TAMPERED: {finding.table} {finding.row}: {finding.fault.value}: {finding.meaning}.")
        exits.complain(
            f"{report.events:,} events before it are whole. Keep this file as it is, and compare it with your backups from before."
        )
    for use in report.keys:
        if use.late:
            exits.complain(
                f"Key {use.key_id} signed {use.late:,} events after a newer one had come in, the last (event {use.last_event_id}) "
                f"on {_time(use.last_at)} UTC. A bot that was not restarted yet does that; nobody else should."
            )


def _time(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S}"
