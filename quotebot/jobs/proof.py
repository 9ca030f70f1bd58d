"""Signed proof bundle of one quote: its content, its approvals, its effects, and its audit chain."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from ledger.audit.anchors import Anchor
from ledger.audit.events import EVENT_COLUMNS
from ledger.audit.history import Finding
from ledger.audit.proof import canonical, seal_bundle
from ledger.keys import sha256
from ledger.records import Effect
from quotebot.domain.pricing import engine as pricing_rules
from quotebot.effects import RENDER
from quotebot.store import history
from quotebot.store import quotes as store
from quotebot.store.history import BrokenChainError as BrokenChainError  # noqa: PLC0414 -- what an export raises

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from ledger.audit.events import Keyring
    from ledger.database import Tx
    from ledger.ledger import Ledger

FORMAT: Final = "quotebot/proof/2"
SCRIPT: Final = "verify_quotebot_proof.py"
# Fields that other files of the bundle, such as rows.json, hold.
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
            **dict(zip(found.keys(), found, strict=True)),
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


async def export(
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
