"""Who may not give commands at all: guests, bots, people who are gone or belong to another workspace. Each refusal is audited.

Whoever Slack has not answered about may do what commits nobody, but not what approves. A decision about an approval is refused
where its other rules are (domain/approvals.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.records import AuditEvent
from quotebot import words
from quotebot.commands import Creation, DecideApproval, SubmitQuote
from quotebot.handlers.quotes import Decision, refused
from quotebot.reading_commands import ReadMessage

if TYPE_CHECKING:
    from quotebot.commands import Payload
    from quotebot.handlers.quotes import Asked


def turned_away(asked: Asked, command: Payload, aggregate_id: str) -> Decision | None:
    """Refuse a command because of who asks, whatever it is about; None when that does not speak against it."""
    if asked.actor_type == "system" or asked.actor_kind == "member" or isinstance(command, DecideApproval):
        return None
    if asked.actor_kind == "unknown" and not isinstance(command, SubmitQuote):
        return None
    code = {"stranger": "foreign_team", "unknown": "not_known"}.get(asked.actor_kind, "not_a_member")
    channel = command.channel if isinstance(command, Creation | ReadMessage) else None
    refusal = refused(asked, aggregate_id, channel, code, words.turned_away(code))
    facts = {"code": code, "actor": asked.actor, "actor_kind": asked.actor_kind, "asked": command.kind}
    return replace(refusal, events=(AuditEvent("access.refused", aggregate_id, after=facts),))
