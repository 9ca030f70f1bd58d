"""Persistence of quotes with their versions, offers and rendered documents, inside an open ledger transaction.

Saves are guarded: a concurrently changed row is never overwritten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from quotebot import effects
from quotebot.commands.payloads import CreateQuote
from quotebot.domain.approvals.advice import canonical_advice, parse_advice
from quotebot.domain.approvals.requests import invalidated
from quotebot.domain.pricing import engine as pricing_rules
from quotebot.domain.quotes.lifecycle import require, require_change
from quotebot.domain.quotes.quote import ChosenOpportunity, Closing, Freezing, Listed, Quote, QuoteState, Sending, quote_id_for
from quotebot.store import approvals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.database import Row, Tx
    from quotebot.domain.approvals.advice import Advice
    from quotebot.domain.pricing.engine import Pricing
    from quotebot.domain.rules import DocumentSet

PAGE_ROWS: Final = 20
ARTEFACT_ROWS: Final = 1000
RESUBMISSION: Final = "resubmission"  # code of a creation refused as a likely resubmission
PROPOSED: Final = "proposed"  # code of a proposal that its author may confirm


class ConcurrentChangeError(Exception):
    """Concurrent change: the row is no longer in the loaded state, so the transaction must roll back."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Creation that was refused as a resubmission, or proposed, and that the same person may confirm."""

    actor: str
    team_id: str
    action_kind: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter of a workspace's quotes. None, and an empty set of states, do not filter.

    `account` is a part of the customer's name; only its ASCII letters match in either case. With `seen`, quotes of others than
    `viewer` are limited to these channels: a search by customer must not even count quotes whose customer is hidden.
    """

    team_id: str
    owner: str | None = None  # a Slack user id
    states: frozenset[QuoteState] = frozenset()
    account: str | None = None
    viewer: str = ""  # a Slack user id
    seen: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, the newest quote first; `more` is true if there is a next page."""

    quotes: tuple[Listed, ...]
    number: int  # 1-based
    more: bool


@dataclass(frozen=True, slots=True)
class Artefact:
    """One rendered document. `rendered_at` is Unix milliseconds, UTC; both names are SHA-256 in hex."""

    render_key: str  # hash of everything that determines its appearance
    sha256: str  # hash of the file
    quote_id: str
    version: int
    pages: int
    rendered_at: int


def next_quote_id(tx: Tx, year: int) -> str:
    """Allocate the next number of the year. A rollback releases the number."""
    row = tx.required("next_quote_number", year=year)
    return quote_id_for(year, row["last"])


def insert(
    tx: Tx,
    quote: Quote,
    *,
    operation_key: str,
    root_effect_key: str,
    asked_hash: str,
    recorded_at: int,
    snapshot: bytes | None = None,
) -> None:
    """Store a new quote with its first priced version. `snapshot` is that version's text, if it is known (see `written`).

    `asked_hash` is the hash of the payload it was created from; times in ms.
    """
    tx.one(
        "insert_quote",
        quote_id=quote.quote_id,
        version=quote.version,
        state=quote.state.value,
        account=quote.account,
        requester=quote.requester,
        requester_name=quote.requester_name,
        team_id=quote.team_id,
        channel=quote.channel,
        created_at=quote.created_at,
        valid_until=quote.valid_until,
        created_by_operation=operation_key,
        asked_hash=asked_hash,
        recorded_at=recorded_at,
        root_effect_key=root_effect_key,
    )
    _insert_version(tx, quote, written(quote.pricing) if snapshot is None else snapshot)
    if quote.opportunity is not None:
        chosen = quote.opportunity
        tx.one("record_opportunity", quote_id=quote.quote_id, record_id=chosen.record_id, account_id=chosen.account_id)
    for maker in quote.earlier_makers:
        tx.one("record_inherited_maker", quote_id=quote.quote_id, maker=maker)
    if quote.approval is not None:
        approvals.insert(tx, quote.approval)


def written(pricing: Pricing) -> bytes:
    """Return the priced content of a version in its stored and hashed form."""
    snapshot: Any = pricing_rules.canonical(pricing)
    return keys.canonical_json(snapshot)


def _insert_version(tx: Tx, quote: Quote, snapshot: bytes) -> None:
    tx.one(
        "insert_quote_version",
        quote_id=quote.quote_id,
        version=quote.version,
        ruleset=quote.pricing.ruleset,
        pricing=snapshot.decode(),
        pricing_hash=keys.sha256(snapshot),
        created_at=quote.issued_at,
    )


def insert_advice(tx: Tx, quote: Quote, advice: Advice, basis: str) -> None:
    """Store the advice for the head version; `basis` is what it depends on beside the price."""
    text: Any = canonical_advice(advice)
    tx.one("insert_advice", quote_id=quote.quote_id, version=quote.version, basis=basis, advice=keys.canonical_json(text).decode())


def load_advice(tx: Tx, quote: Quote, basis: str) -> Advice | None:
    """Return the advice for the head version; None if it needs no approval, or the advice has another basis."""
    row = tx.one("advice", quote_id=quote.quote_id, version=quote.version, basis=basis)
    return None if row is None else parse_advice(json.loads(row["advice"]))


def load(tx: Tx, quote_id: str) -> Quote | None:
    """Return the head version with its latest approval request, or None."""
    row = tx.one("load_quote", quote_id=quote_id)
    if row is None:
        return None
    return _quote(tx, row)


def load_version(tx: Tx, quote_id: str, version: int) -> Quote | None:
    """Return one version with its approval: the head, or a superseded one in its final state; None if there is none."""
    head = load(tx, quote_id)
    if head is None or head.version == version:
        return head
    row = tx.one("load_superseded", quote_id=quote_id, version=version)
    return None if row is None else _quote(tx, row)


def find_twin(tx: Tx, *, requester: str, team_id: str, asked_hash: str, since: int) -> tuple[str, int, int] | None:
    """Return (quote id, version, recorded_at) of the person's newest quote with this content since `since` (ms), or None.

    This is the whole resubmission guard. Equal creations run one after the other, so the one executed second finds the quote of the
    other, whatever state the first was in meanwhile (waiting, retried, cancelled, replayed).
    """
    tx.one("lock_twins", requester=requester, asked_hash=asked_hash)
    row = tx.one("find_twin", requester=requester, team_id=team_id, asked_hash=asked_hash, since=since)
    return None if row is None else (row["quote_id"], row["version"], row["recorded_at"])


def find_token_use(tx: Tx, token: str) -> str | None:
    """Return the id of the quote that this token created, or None while it is unused."""
    row = tx.one("find_token_use", token=token)
    if row is None:
        return None
    quote_id: str = row["quote_id"]
    return quote_id


def use_token(tx: Tx, token: str, quote_id: str, now: int) -> None:
    """Consume a one-time token, in the transaction that creates its quote. A second use violates its primary key."""
    tx.one("use_token", token=token, quote_id=quote_id, now=now)


def origin(tx: Tx, quote_id: str) -> tuple[str, str] | None:
    """Return (requester, channel) of a quote, or None when there is none."""
    row = tx.one("quote_origin", quote_id=quote_id)
    return None if row is None else (row["requester"], row["channel"])


def head_version(tx: Tx, quote_id: str) -> int | None:
    """Return a quote's head version, or None if there is no such quote."""
    row = tx.one("head_version", quote_id=quote_id)
    if row is None:
        return None
    version: int = row["version"]
    return version


def root_effect_key(tx: Tx, quote_id: str) -> str:
    """Return the key of the effect that posts the quote's card; every effect in its thread waits for it."""
    row = tx.one("load_quote", quote_id=quote_id)
    if row is None:
        raise LookupError(f"there is no quote {quote_id}")
    key: str = row["root_effect_key"]
    return key


def approval_count(tx: Tx, quote_id: str, version: int) -> int:
    """Return the number of approval requests of this version."""
    row = tx.required("count_approvals", quote_id=quote_id, quote_version=version)
    count: int = row["requests"]
    return count


def save(tx: Tx, before: Quote, after: Quote, now: int) -> None:
    """Store every change of a decision: a transition, a new version, a sending, an end; `now` is Unix ms.

    Raises ConcurrentChangeError if `before` is no longer current, IllegalTransitionError for a transition that is not allowed.
    """
    if after.version != before.version:
        _supersede(tx, before, after, now)
        return
    _save_state(tx, before, after, now)
    if after.frozen is not None and before.frozen is None:
        tx.one(
            "record_freezing",
            quote_id=after.quote_id,
            version=after.version,
            frozen_by=after.frozen.frozen_by,
            frozen_at=after.frozen.frozen_at,
        )
    if after.sent is not None and before.sent is None:
        tx.one(
            "record_sending",
            quote_id=after.quote_id,
            version=after.version,
            recipient=after.sent.recipient,
            sent_by=after.sent.sent_by,
            sent_at=after.sent.sent_at,
        )
    if after.closing is not None and before.closing is None:
        tx.one(
            "record_closing",
            quote_id=after.quote_id,
            version=after.version,
            state=after.state.value,
            reason=after.closing.reason,
            closed_by=after.closing.closed_by,
            closed_at=after.closing.closed_at,
        )


def _save_state(tx: Tx, before: Quote, after: Quote, now: int) -> None:
    """Store a state transition and the changes of the approval. Raises ConcurrentChangeError if `before` is no longer current."""
    if after.state is not before.state:
        require(before.state, after.state)
        moved = tx.one(
            "move_quote",
            quote_id=before.quote_id,
            version=before.version,
            old_state=before.state.value,
            state=after.state.value,
            now=now,
        )
        if moved is None:
            raise ConcurrentChangeError(before.quote_id)
    if after.approval is None or after.approval == before.approval:
        return
    if before.approval is None or before.approval.approval_id != after.approval.approval_id:
        approvals.insert(tx, after.approval)
        return
    if not approvals.save(tx, before.approval, after.approval):
        raise ConcurrentChangeError(after.approval.approval_id)


def _supersede(tx: Tx, before: Quote, after: Quote, now: int) -> None:
    require_change(before.state)
    assert (after.version, after.state) == (before.version + 1, QuoteState.PRICED)  # noqa: S101 -- ensured by revise
    assert after.revised_by is not None  # noqa: S101 -- likewise
    if before.approval is not None and not approvals.save(tx, before.approval, invalidated(before.approval, after.issued_at)):
        raise ConcurrentChangeError(before.approval.approval_id)
    _insert_version(tx, after, written(after.pricing))
    tx.one(
        "supersede_version",
        quote_id=before.quote_id,
        version=before.version,
        state=before.state.value,
        valid_until=before.valid_until,
        superseded_by=after.revised_by,
        superseded_at=after.issued_at,
    )
    moved = tx.one(
        "next_version",
        quote_id=before.quote_id,
        version=before.version,
        old_state=before.state.value,
        valid_until=after.valid_until,
        now=now,
    )
    if moved is None:
        raise ConcurrentChangeError(before.quote_id)


def set_thread(tx: Tx, quote_id: str, thread_ts: str, now: int) -> None:
    """Record the thread of the quote's card."""
    tx.one("set_thread", quote_id=quote_id, thread_ts=thread_ts, now=now)


def move_card(tx: Tx, quote_id: str, channel: str, now: int) -> None:
    """Record the direct-message channel that holds the quote's card from now on."""
    tx.one("move_card", quote_id=quote_id, channel=channel, now=now)


def keep_summary(tx: Tx, quote_id: str, version: int, summary: str, now: int) -> bool:
    """Store the summary shown to the approvers of a quote version; false if there is one already."""
    return tx.one("insert_summary", quote_id=quote_id, version=version, summary=summary, now=now) is not None


def summary_of(tx: Tx, quote_id: str, version: int) -> str | None:
    """Return the summary shown to the approvers of a quote version, or None."""
    row = tx.one("summary", quote_id=quote_id, version=version)
    return None if row is None else str(row["summary"])


def of_thread(tx: Tx, channel: str, thread_ts: str, team_id: str) -> Quote | None:
    """Return the quote whose card is the root of a thread, or None."""
    row = tx.one("quote_of_thread", channel=channel, thread_ts=thread_ts, team_id=team_id)
    return None if row is None else load(tx, row["quote_id"])


def is_card_of(tx: Tx, quote_id: str, channel: str, ts: str, team_id: str) -> bool:
    """Return true if a message is the recorded card of a quote, or can be: a card whose posting is not confirmed has no ts yet."""
    holder = tx.one("quote_of_thread", channel=channel, thread_ts=ts, team_id=team_id)
    if holder is not None:
        return bool(holder["quote_id"] == quote_id)
    place = tx.one("card_of_quote", quote_id=quote_id)
    if place is None:
        return True  # the command about it is refused: there is no such quote
    if place["thread_ts"] is None:
        return bool(place["channel"] == channel)
    return tx.one("earlier_card_of_quote", quote_id=quote_id, ts=ts, **{"class": effects.POST}) is not None


def is_reminder_of(tx: Tx, quote_id: str, ts: str) -> bool:
    """Return true if a message in a quote's thread is one with a button to decide, or can be: an unconfirmed one has no ts yet."""
    return tx.one("reminder_of_quote", quote_id=quote_id, ts=ts, **{"class": effects.POST}) is not None


def replace_root(tx: Tx, quote_id: str, dead_ts: str, post_key: str, now: int) -> str:
    """Record the post that replaces a deleted card; returns the key of the replacing post, which may be an earlier one."""
    if tx.one("replace_root", quote_id=quote_id, dead_ts=dead_ts, post_key=post_key, now=now) is not None:
        return post_key
    row = tx.required("replaced_root", quote_id=quote_id, dead_ts=dead_ts)  # the insert conflicted with it
    found: str = row["post_key"]
    return found


def transport(tx: Tx, operation_id: int) -> dict[str, Any]:
    """Return the transport metadata of the operation's first delivery (its response_url)."""
    row = tx.one("transport_of_operation", operation_id=operation_id)
    found: dict[str, Any] = {} if row is None else json.loads(row["transport"])
    return found


def _earlier_makers(tx: Tx, quote_id: str, version: int) -> tuple[str, ...]:
    return tuple(row["maker"] for row in tx.all("earlier_makers", quote_id=quote_id, version=version))


def _quote(tx: Tx, row: Row) -> Quote:
    closed_by, opportunity_id = row["closed_by"], row["opportunity_id"]
    return Quote(
        quote_id=row["quote_id"],
        version=row["version"],
        state=QuoteState(row["state"]),
        account=row["account"],
        requester=row["requester"],
        requester_name=row["requester_name"],
        team_id=row["team_id"],
        channel=row["channel"],
        created_at=row["created_at"],
        valid_until=row["valid_until"],
        pricing=pricing_rules.from_stored(row["pricing"]),
        approval=approvals.latest(tx, row["quote_id"], row["version"]),
        thread_ts=row["thread_ts"],
        card_channel=row["card_channel"],
        revised_by=row["revised_by"],
        earlier_makers=_earlier_makers(tx, row["quote_id"], row["version"]),
        revised_at=row["revised_at"],
        frozen=None if row["frozen_by"] is None else Freezing(row["frozen_by"], row["frozen_at"]),
        sent=None if row["sent_by"] is None else Sending(row["recipient"], row["sent_by"], row["sent_at"]),
        closing=None if closed_by is None else Closing(row["closing_reason"], closed_by, row["closed_at"]),
        superseded=bool(row["superseded"]),
        opportunity=None if opportunity_id is None else ChosenOpportunity(opportunity_id, row["opportunity_account_id"]),
    )


def list_quotes(tx: Tx, chosen: Filter, *, page: int = 1, rows: int = PAGE_ROWS) -> Page:
    """Return one page of the matching quotes; page 1 is the newest. A page past the end is empty."""
    found = tx.all(
        "list_quotes",
        team_id=chosen.team_id,
        owner=chosen.owner,
        states=f" {' '.join(sorted(chosen.states))} " if chosen.states else "",
        account=chosen.account or "",
        viewer=chosen.viewer,
        seen=None if chosen.seen is None else f" {' '.join(sorted(chosen.seen))} ",
        limit=rows + 1,
        offset=(page - 1) * rows,
    )
    return Page(tuple(_listed(row) for row in found[:rows]), page, len(found) > rows)


def last_quotes_of(tx: Tx, quote: Quote, most: int) -> tuple[Listed, ...]:
    """Return the newest other quotes of the same customer, at most `most`."""
    named = {"team_id": quote.team_id, "account": quote.account, "quote_id": quote.quote_id}
    return tuple(_listed(row) for row in tx.all("last_quotes_of_account", **named, limit=most))


def channels_of_account(tx: Tx, team_id: str, account: str, viewer: str) -> frozenset[str]:
    """Return the channels of the quotes that others made for a customer with `account` in its name."""
    rows = tx.all("channels_of_account", team_id=team_id, account=account, viewer=viewer)
    return frozenset(row["channel"] for row in rows)


def known_name(tx: Tx, requester: str, team_id: str) -> str:
    """Return a person's Slack name at the time of their newest quote; empty if they have none in this workspace."""
    row = tx.one("name_of_requester", requester=requester, team_id=team_id)
    return "" if row is None else str(row["requester_name"])


def only_team(tx: Tx) -> str | None:
    """Return the workspace of all quotes, or None if there are no quotes or several workspaces."""
    row = tx.required("teams_of_quotes")
    first: str | None = row["first"]
    return first if first == row["last"] else None


def _listed(row: Row) -> Listed:
    return Listed(
        quote_id=row["quote_id"],
        version=row["version"],
        state=QuoteState(row["state"]),
        account=row["account"],
        requester=row["requester"],
        requester_name=row["requester_name"],
        team_id=row["team_id"],
        channel=row["channel"],
        created_at=row["created_at"],
        valid_until=row["valid_until"],
        net_total=Decimal(row["net_total"]),
        currency=row["currency"],
    )


def offered(tx: Tx, token: str) -> Offer | None:
    """Return the creation that a token allows: refused as a resubmission, proposed, or extracted from a message."""
    row = tx.one("reading_proposed", token=token)
    if row is not None:
        return Offer(row["user_id"], row["team_id"], CreateQuote.kind, json.loads(row["proposal"]))
    found = (tx.one("find_offer", token=token, code=code) for code in (RESUBMISSION, PROPOSED))
    row = next(filter(None, found), None)
    return None if row is None else Offer(row["actor"], row["team_id"], row["action_kind"], json.loads(row["payload"]))


def record_artefact(tx: Tx, artefact: Artefact) -> None:
    """Record a stored file; repeating it has no effect."""
    tx.one(
        "insert_artefact",
        render_key=artefact.render_key,
        sha256=artefact.sha256,
        quote_id=artefact.quote_id,
        version=artefact.version,
        pages=artefact.pages,
        now=artefact.rendered_at,
    )


def artefact_of_key(tx: Tx, render_key: str) -> Artefact | None:
    """Return the latest file of a render key, or None."""
    row = tx.one("artefact_of_key", render_key=render_key)
    return None if row is None else Artefact(**dict(row))


def all_artefacts(tx: Tx) -> Iterator[Artefact]:
    """Yield all artefacts, page by page, within one transaction."""
    render_key = sha256 = ""
    while rows := tx.all("artefacts_after", render_key=render_key, sha256=sha256, limit=ARTEFACT_ROWS):
        yield from (Artefact(**dict(row)) for row in rows)
        render_key, sha256 = rows[-1]["render_key"], rows[-1]["sha256"]


def pin_documents(tx: Tx, quote_id: str, version: int, documents: DocumentSet, now_ms: int) -> None:
    """Store the set that the document of a version is made from; a version that has one keeps it."""
    if tx.one("has_document_set", sha256=documents.sha256) is None:
        tx.one("insert_document_set", sha256=documents.sha256, content=documents.content, now=now_ms)
    tx.one("pin_document_set", quote_id=quote_id, version=version, sha256=documents.sha256, now=now_ms)


def pin_contact(tx: Tx, quote_id: str, version: int, email: str, phone: str) -> None:
    """Store how the document of a version says that its requester can be reached; a version that has a contact keeps it."""
    if email or phone:
        tx.one("pin_document_contact", quote_id=quote_id, version=version, email=email, phone=phone)


def contact_of(tx: Tx, quote_id: str, version: int) -> tuple[str, ...]:
    """Return the e-mail address and the phone number on the document of a version, without those that are not known."""
    row = tx.one("document_contact_of", quote_id=quote_id, version=version)
    return () if row is None else tuple(filter(None, (row["email"], row["phone"])))


def document_set_of(tx: Tx, quote_id: str, version: int) -> str | None:
    """Return the content of the set that a version's document is made from; None for a version without one."""
    row = tx.one("document_set_of", quote_id=quote_id, version=version)
    return None if row is None else str(row["content"])


def renders_under_way(tx: Tx) -> bool:
    """Return true while a document is being rendered or uploaded: its file may exist before its row."""
    return tx.one("renders_under_way") is not None
