"""Access gate at the execution of a command: refuses people who are not admitted. Each refusal is audited."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ledger.records import AuditEvent
from quotebot.commands.extraction import ReadMessage
from quotebot.commands.lifecycle import RefreshCard
from quotebot.commands.operations import ActOnEffect, ShowHome
from quotebot.commands.registry import CreateAnother as Again
from quotebot.commands.registry import CreateByForm as ByForm
from quotebot.commands.registry import Creation, LifecyclePayload, Payload, ProposeQuote, SubmitQuote
from quotebot.domain.access import Refusal, Viewer
from quotebot.handlers.decision import Asked, Decision, refused
from quotebot.views import messages

# Commands of a listed guest; each concerns a quote of their own (domain/access.py). All others are for members.
GUEST_COMMANDS: Final = (
    Creation | Again | ByForm | ProposeQuote | ReadMessage | ShowHome | SubmitQuote | LifecyclePayload | RefreshCard | ActOnEffect
)


def turned_away(asked: Asked, admitted: Viewer | Refusal | None, command: Payload, aggregate_id: str) -> Decision | None:
    """Refuse a command because of its author; None if they may give it. `admitted` is None for the scheduler."""
    if admitted is None:
        return None
    if isinstance(admitted, Refusal):
        code = admitted.code
    elif admitted.own_only and not isinstance(command, GUEST_COMMANDS):
        code = "not_a_member"
    else:
        return None
    channel = command.channel if isinstance(command, Creation | ReadMessage) else None
    refusal = refused(asked, aggregate_id, channel, code, messages.turned_away(code))
    facts = {"code": code, "actor": asked.actor, "actor_kind": asked.actor_kind, "asked": command.kind}
    return replace(refusal, events=(AuditEvent("access.refused", aggregate_id, after=facts),))


def out_of_sight(asked: Asked, quote_id: str, command: Payload) -> AuditEvent:
    """Return the audit event of a command on a quote that its author may not see; the reply is that for an unknown quote."""
    facts = {"code": "out_of_sight", "actor": asked.actor, "actor_kind": asked.actor_kind, "asked": command.kind}
    return AuditEvent("access.refused", quote_id, after=facts)
