"""Handlers of the commands about Salesforce. Pure, as everything in this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.records import AuditEvent
from quotebot import effects
from quotebot.commands.payloads import CRM_AGGREGATE, REASON_CHARACTERS_MAX, ReconcileCrm, SyncCrm
from quotebot.domain.language import _
from quotebot.handlers.decision import Asked, Decision
from quotebot.views import crm_messages, operator_messages

if TYPE_CHECKING:
    from collections.abc import Collection

    from ledger.records import EffectIntent
    from quotebot.domain.quotes.crm_fields import Conflict, CrmDifference


def sync(command: SyncCrm) -> Decision:
    """Enqueue one sync of our changed records, and one of each mirrored kind."""
    owed = (effects.read_crm(CRM_AGGREGATE), *(effects.read_mirror(CRM_AGGREGATE, kind) for kind in command.mirrors))
    return Decision("applied", {"code": "syncing", "text": _(crm_messages.SYNC_FOLLOWS)}, None, owed)


def reconcile(asked: Asked, command: ReconcileCrm, conflict: Conflict | None, operators: Collection[str]) -> Decision:
    """Settle a difference once, in the state that the person saw, who must be one of the `operators`."""
    reason = command.reason.strip()
    if asked.actor not in operators:
        return _refused(asked, "not_operator", _(operator_messages.NOT_OPERATOR))
    if conflict is None:
        return _refused(asked, "unknown_conflict", crm_messages.unknown(command.conflict))
    if conflict.state != "open":
        return _refused(asked, "too_late", crm_messages.too_late(conflict))
    found = conflict.difference
    if found.theirs != command.theirs:
        return _refused(asked, "stale", crm_messages.moved(conflict))
    if not reason or len(reason) > REASON_CHARACTERS_MAX:
        return _refused(asked, "reason_needed", crm_messages.reason_needed(REASON_CHARACTERS_MAX))
    owed = (_written_again(found),) if command.take == "ours" else ()
    facts = {"field": found.field, "version": found.version, "take": command.take, "by": asked.actor}
    event = AuditEvent("crm.reconciled", found.quote_id, after=facts)
    text = crm_messages.taken(found, command.take)
    response = {"code": "reconciled", "quote_id": found.quote_id, "text": text}
    return Decision("applied", response, None, (*owed, _answer(asked, text)), (event,))


def _written_again(found: CrmDifference) -> EffectIntent:
    """Return the update that writes the field over the value that the operator saw."""
    instead_of = (found.theirs,)
    if found.what == "amount":
        return effects.amount_in_crm(found.quote_id, found.version, instead_of=instead_of)
    write = effects.stage_in_crm if found.what == "stage" else effects.status_in_crm
    return write(found.quote_id, found.version, "approved", instead_of=instead_of)


def _answer(asked: Asked, text: str) -> EffectIntent:
    """Return the reply to the operator: a direct message, because a form has no place of its own."""
    return effects.reply(CRM_AGGREGATE, asked.actor, None, text, asked.received_at)


def _refused(asked: Asked, code: str, text: str) -> Decision:
    return Decision("refused", {"code": code, "text": text}, None, (_answer(asked, text),))
