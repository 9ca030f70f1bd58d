"""Read-only answers to `/quote audit` (a quote's history) and `/quote ops` (dead letters and held classes)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledger.gates import Gate
from ledger.operator.dead_letters import DeadLetters
from quotebot import __version__, effects
from quotebot.domain.access import Sight, may_see
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import parse_quote_id, title, utc_text
from quotebot.handlers.quotes import DOMAIN_EVENTS
from quotebot.store import quotes as store
from quotebot.views import messages, operator_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Row, Tx
    from ledger.ledger import Ledger
    from ledger.operator.dead_letters import DeadLetter
    from quotebot.domain.access import Viewer

EVENTS_READ_MAX: Final = 400  # the newest events of a quote; most of them are internal steps of the ledger
EVENTS_SHOWN_MAX: Final = 25
LETTERS_SHOWN_MAX: Final = 10
ERROR_CHARACTERS_MAX: Final = 120
# Event types that the history in Slack shows; the terminal shows every step.
_TOLD: Final = DOMAIN_EVENTS | {
    *("effect.replayed", "effect.hastened", "effect.resolved", "effect.cancelled", "effect.discarded"),
    *("operation.cancelled", "operation.discarded", "operation.replayed", "system.error"),
}
# Effect classes whose deliveries are shown too; those of cards and notices are not.
_DEEDS: Final = frozenset({effects.FILE, effects.CRM, effects.UPDATE})
_PERSON: Final = re.compile(r"[UW][A-Z0-9]{2,}")


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Request for a quote's history: events and actors."""

    quote_id: str


@dataclass(frozen=True, slots=True)
class OpsRequest:
    """Request of an operator for dead letters and held classes."""


def trail(tx: Tx, quote_id: str, viewer: Viewer) -> str:
    """Return a quote's history as mrkdwn, oldest event first; without full sight of the quote, `messages.not_seen`."""
    quote = store.load(tx, quote_id)
    sight = Sight.NOTHING if quote is None else may_see(viewer, quote)
    if quote is None or sight is not Sight.FULL:
        return messages.not_seen(quote_id, quote, sight)
    rows = tx.all("audit_chain", aggregate_id=quote_id, limit=EVENTS_READ_MAX)
    told = [_event(row) for row in rows if row["event_type"] in _TOLD or _action(row) in _DEEDS]
    shown = told[-EVENTS_SHOWN_MAX:]
    left = "" if len(shown) == len(told) else f"The newest {len(shown)} of what happened. "
    everything = f"{left}Every single step, and proof that none was changed: `quotebot audit show {quote_id}` at a terminal."
    return "\n".join((f"*{title(quote)}*", *shown, everything))


async def for_operators(ledger: Ledger, viewer: Viewer, operators: Sequence[str]) -> str:
    """Return the dead letters and held classes as mrkdwn; other people get a refusal."""
    if viewer.own_only or viewer.user not in operators:
        return operator_messages.NOT_OPERATOR
    letters = await DeadLetters(ledger, build=__version__).list(limit=LETTERS_SHOWN_MAX + 1, newest=True)
    gates = await ledger.database.read(lambda tx: [Gate.of(row) for row in tx.all("all_gates")])
    held = [_gate(gate) for gate in gates if gate.state == "held"]
    more = len(letters) > LETTERS_SHOWN_MAX
    dead = [_dead_letter(letter) for letter in letters[:LETTERS_SHOWN_MAX]]
    count = "1 dead letter waits" if len(dead) == 1 else f"{'The newest ' if more else ''}{len(dead)} dead letters wait"
    rest = "At a terminal: `quotebot dead list`, `quotebot gates`, `quotebot ops list`, `quotebot why <id>`."
    return "\n".join((f"*{count if dead else 'No dead letter waits'}*", *dead, *(held or ["No class of work is held."]), rest))


def _action(row: Row) -> str | None:
    """Return the effect class of a delivery event; None for every other event."""
    if row["event_type"] != "effect.delivered" or row["after"] is None:
        return None
    deed: str | None = json.loads(row["after"]).get("class")
    return deed


def _event(row: Row) -> str:
    deed = _action(row)
    actor = str(row["actor"])
    who = messages.mention(actor) if _PERSON.fullmatch(actor) else messages.escape(clipped(actor, 60))
    ref = "" if row["correlation_id"] is None else f" · {messages.escape(str(row['correlation_id']))}"
    return f"• {utc_text(row['at'])} · `{row['event_type']}`{'' if deed is None else f' ({deed})'} · {who}{ref}"


def _dead_letter(letter: DeadLetter) -> str:
    about = "" if parse_quote_id(letter.aggregate_id) is None else f" of {letter.aggregate_id}"
    why = messages.escape(clipped(messages.one_line(letter.last_error or "no reason is known"), ERROR_CHARACTERS_MAX))
    return f"• `{letter.reference}` {letter.effect_class}{about} ({letter.category or 'unknown'}): {why}"


def _gate(gate: Gate) -> str:
    since = "" if gate.held_at is None else f" since {utc_text(gate.held_at)}"
    why = messages.escape(clipped(messages.one_line(gate.reason or "no reason is known"), ERROR_CHARACTERS_MAX))
    how = f"`quotebot resume {gate.name}`" if gate.until_at is None else "it is tried again by itself"
    return f"• {gate.name} is held{since}: {why} ({how})"
