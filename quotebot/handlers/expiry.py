"""Handlers of the scheduler's commands about a quote. Pure, like every handler.

No one waits for a reply to them, so a refusal enqueues nothing: it is stored in the command's response, where operators find it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.records import AuditEvent
from quotebot import effects
from quotebot.domain.quotes.lifecycle import allowed
from quotebot.domain.quotes.quote import Quote, QuoteState, state_words, utc_text
from quotebot.handlers.approvals import withdrawal_events, withdrawn
from quotebot.handlers.decision import Asked, Decision
from quotebot.views import messages

if TYPE_CHECKING:
    from quotebot.commands.lifecycle import ExpireQuote, NoteStaleDraft

_DRAFTS = frozenset({QuoteState.DRAFT, QuoteState.VALIDATED, QuoteState.PRICED})


def expire(asked: Asked, command: ExpireQuote, quote: Quote, root: str) -> Decision:
    """Close the quote at any version, if it may still expire and its validity ended before the command was received."""
    if QuoteState.EXPIRED not in allowed(quote.state):
        return _refused("final", quote, messages.not_expired(quote, f"it is {state_words(quote.state)}, which is final"))
    if quote.valid_until != command.valid_until or asked.received_at < quote.valid_until:
        return _refused("still_valid", quote, messages.not_expired(quote, f"it is valid until {utc_text(quote.valid_until)}"))
    after = replace(withdrawn(quote, asked.received_at), state=QuoteState.EXPIRED)
    notice = messages.expired_notice(after)
    return Decision(
        "applied",
        {"code": "expired", "quote_id": quote.quote_id, "text": notice},
        after,
        (effects.card(quote.quote_id, root), effects.notice(quote.quote_id, root, notice)),
        (
            *withdrawal_events(quote, asked.received_at),
            AuditEvent("quote.expired", quote.quote_id, _facts(quote), _facts(after)),
        ),
    )


def note_stale(asked: Asked, command: NoteStaleDraft, quote: Quote, root: str, touched_at: int) -> Decision:
    """Remind the requester if the quote has not changed since the reminder became due. `touched_at` is Unix ms."""
    if quote.state not in _DRAFTS:
        return _refused("not_draft", quote, messages.not_reminded(quote, f"it is {state_words(quote.state)}"))
    if touched_at != command.untouched_since:
        return _refused("touched", quote, messages.not_reminded(quote, f"it was touched on {utc_text(touched_at)}"))
    if asked.received_at >= quote.valid_until:
        return _refused("expired", quote, messages.not_reminded(quote, f"it was valid until {utc_text(quote.valid_until)}"))
    notice = messages.stale_notice(quote, touched_at)
    return Decision(
        "applied",
        {"code": "noted", "quote_id": quote.quote_id, "text": notice},
        None,
        (effects.notice(quote.quote_id, root, notice),),
        (AuditEvent("quote.stale_noted", quote.quote_id, after={**_facts(quote), "untouched_since": touched_at}),),
    )


def _refused(code: str, quote: Quote, text: str) -> Decision:
    return Decision("refused", {"code": code, "quote_id": quote.quote_id, "text": text})


def _facts(quote: Quote) -> dict[str, object]:
    return {"version": quote.version, "state": quote.state.value, "valid_until": quote.valid_until}
