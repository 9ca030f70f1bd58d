"""Messages about dead letters, and about a quote's pending effects on external services. Text is Slack mrkdwn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import Quote, local_time, title
from quotebot.views import messages

if TYPE_CHECKING:
    from ledger.records import Effect


def decided(decision: str, decided_by: str, decided_at: int) -> str:
    """Return "retried by @operator on 21 Nov 2026 10:31 UTC"."""
    return f"{decision} by {messages.mention(decided_by)}, {local_time(decided_at)}"


# What each effect class does, for operators.
_JOBS: Final = {
    "slack.post": "Slack message",
    "slack.card": "Card update",
    "slack.reply": "Private answer",
    "slack.direct": "Direct message",
    "slack.direct_card": "Direct message update",
    "slack.file": "PDF upload",
    "pdf.render": "PDF",
    "crm.create": "Salesforce write",
    "crm.update": "Salesforce update",
    "crm.read": "Salesforce read",
    "llm.extract": "AI reading",
    "llm.summarize": "AI summary",
}


def job(name: str) -> str:
    """Return an effect class or the kind of a command as people say it: "Salesforce write", "Command create"."""
    return _JOBS.get(name) or f"Command {messages.command_name(name)}"


def queued(reference: str) -> str:
    """Reply to a retry that took effect."""
    return f"Retrying #{reference}. What is there already isn't done again."


def discarded(reference: str) -> str:
    """Reply to a discard that took effect."""
    return f"Discarded #{reference}."


def resubmitted(reference: str, correlation_id: str) -> str:
    """Reply to an edited copy that was recorded."""
    return f"#{reference} is replaced by an edited copy, reference {correlation_id}."


def replaced_by(reference: str, correlation_id: str, reason: str) -> str:
    """Return the reason of a discard in favor of an edited copy."""
    return f"Replaced by {reference} ({correlation_id}): {reason}"


def not_editable(reference: str) -> str:
    """Reply if a dead letter is no command of a person, or is a decision."""
    return f"#{reference} can't be edited. Only a person's command can, and no decision. Retry or discard it."


def too_long_to_edit(reference: str) -> str:
    """Reply if the content of a dead command does not fit a form."""
    return f"#{reference} is too long for a form. At a terminal: `quotebot ops resubmit {reference} --payload FILE`"


def too_late(reference: str, standing: str, earlier: str | None) -> str:
    """Reply to the later of two operators: `earlier` is the first one's action and time, `standing` the current state."""
    who = f"it was {earlier}" if earlier else f"it is {standing}"
    return f"#{reference}: {who}. Your click changed nothing."


# Refuse a user who may not act on dead letters.
NOT_OPERATOR = "Only Quotebot operators can do that."


def unknown(reference: str) -> str:
    """Reply if the dead letter no longer exists."""
    return f"There's no failed job {messages.escape(reference)} any more."


# Error under the reason field of the discard form.
REASON_NEEDED = "Add a reason for the audit (500 characters max)."


def not_resubmitted(error: Exception) -> str:
    """Error under the content of an edited command."""
    readable = "That is no JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else str(error)
    return f"{clipped(messages.one_line(readable), 140)}."


# Result of the bot's own command about a card; it is stored with the command and never posted.
OPS_CARD_FOLLOWS = "The card follows in the operators' channel."
# Content of an older card.
CONTINUED = "⬇️ Continued in a newer message below."


def replayed_all(count: int) -> str:
    """Result of a retry of all dead letters of a cause."""
    jobs = "1 job" if count == 1 else f"{count} jobs"
    return f"Retrying {jobs}. What is there already isn't done again."


def unknown_cause(cause: str) -> str:
    """Reply if no card shows this cause."""
    return f"No failed job of {messages.escape(cause)} is left."


def announced(reference: str) -> str:
    """Result of the bot's own command; it is stored with the command and never posted."""
    return f"The card of dead letter {reference} follows in the operators' channel."


def recovered(label: str, quote: Quote, ref: str) -> str:
    """Notice in the quote's thread: an effect that had failed permanently succeeded after a retry."""
    return f"✅ {label} for {title(quote)} is done now. Ref {ref}"


SENTENCE_CHARACTERS_MAX: Final = 500
_DEEDS: Final = {
    "PDF": "The PDF",
    "CRM": "The write to Salesforce",
    "CRM status": "The status in Salesforce",
    "CRM amount": "The opportunity's amount in Salesforce",
    "CRM stage": "The opportunity's stage in Salesforce",
    "CRM PDF": "The PDF in Salesforce",
}


def tried(label: str, quote: Quote, effect: Effect, sentence: str) -> str:
    """Reply to a Retry that took effect."""
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} The card shows what comes of it."


def cancelled(label: str, quote: Quote, effect: Effect, by: str) -> str:
    """Notice in the thread: the effect is cancelled, and a revision of the quote enqueues it again."""
    unsure = " An earlier try may have reached Salesforce or Slack." if effect.maybe_sent else ""
    return f"🚫 {messages.mention(by)} skipped {_named(label, quote, effect)}.{unsure} The next approved version will have it."


def effect_too_late(label: str, quote: Quote, effect: Effect, sentence: str) -> str:
    """Reply to a click that came too late; `sentence` is the effect's current state."""
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} Your click changed nothing."


def not_yours(label: str, quote: Quote) -> str:
    """Refuse a user who may not cancel a pending effect of the quote."""
    makers = messages.mentions(quote.authors)
    return f"{_DEEDS[label]} of {title(quote)} can be canceled by {makers} or an operator."


def command_tried(name: str, ref: str, sentence: str) -> str:
    """Reply to a Retry of a command that took effect."""
    return f"{_command(name, ref)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} The card shows what comes of it."


def command_cancelled(name: str, ref: str) -> str:
    """Reply to a Cancel of a command that took effect."""
    return f"{_command(name, ref)}, is canceled. The quote itself doesn't change."


def command_cancelled_by(by: str) -> str:
    """Reason of a cancelled command, for its author."""
    return f"{messages.mention(by)} canceled it on the quote's card."


def command_too_late(name: str, ref: str, sentence: str) -> str:
    """Reply to a click that came too late; `sentence` is the command's current state."""
    return f"{_command(name, ref)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} Your click changed nothing."


def command_not_yours(name: str, author: str, quote: Quote) -> str:
    """Refuse a user who may not cancel a command about the quote."""
    makers = messages.mentions(tuple(dict.fromkeys((author, *quote.authors))))
    return f"The command {name} of {title(quote)} can be canceled by {makers} or an operator."


def unknown_command(quote_id: str) -> str:
    """Reply to a click on a command that does not exist, or whose quote the person does not see."""
    return f"No command about {messages.escape(quote_id)} waits like that. Nothing was changed; refresh its card."


def command_standing(name: str, ref: str, sentence: str, remedy: str | None) -> str:
    """Reply to a status check of a command. `remedy` is a terminal command for operators."""
    todo = "" if remedy is None else f"\nAn operator can do something about it: `{messages.escape(clipped(remedy, 200))}`"
    return f"{_command(name, ref)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} You need not do anything.{todo}"


def _command(name: str, ref: str) -> str:
    return f"The command {messages.escape(name)}, ref {messages.escape(ref)}"


def unknown_effect(quote_id: str) -> str:
    """Reply to a click on an effect that this quote does not have."""
    return f"{messages.escape(quote_id)} owes nothing like that. Nothing was changed; refresh its card."


def standing(label: str, quote: Quote, effect: Effect, sentence: str, remedy: str | None) -> str:
    """Reply to a status check of an effect. `remedy` is a terminal command for operators."""
    todo = "" if remedy is None else f"\nAn operator can do something about it: `{messages.escape(clipped(remedy, 200))}`"
    return f"{_named(label, quote, effect)}: {messages.short(sentence, SENTENCE_CHARACTERS_MAX)} You need not do anything.{todo}"


def _named(label: str, quote: Quote, effect: Effect) -> str:
    of_version = replace(quote, version=effect.payload.get("version", quote.version))  # the effect's version, possibly not the head
    return f"{_DEEDS[label]} of {title(of_version)}, ref {messages.escape(effect.correlation_id)}"
