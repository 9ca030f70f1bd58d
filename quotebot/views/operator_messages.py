"""Messages about dead letters, and about a quote's pending effects on external services. Text is Slack mrkdwn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quotebot.domain.language import N_, _, ngettext
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import Quote, local_time, title
from quotebot.views import messages

if TYPE_CHECKING:
    from ledger.records import Effect


def decided(decision: str, decided_by: str, decided_at: int) -> str:
    """Return "retried by @operator on 21 Nov 2026 10:31 UTC"."""
    return _(_DECIDED[decision], who=messages.mention(decided_by), at=local_time(decided_at))


_DECIDED: Final = {"retried": N_("retried by {who}, {at}"), "discarded": N_("discarded by {who}, {at}")}
GONE: Final = N_("no dead letter any more")
GONE_COMMAND: Final = N_("no dead command any more")
# The state of a dead letter, or the result of its replay, for the later of two operators.
_STANDINGS: Final = frozenset(
    {
        N_("pending"),
        N_("queued"),
        N_("replaying"),
        N_("replayed"),
        N_("discarded"),
        N_("uncertain"),
        N_("superseded"),
        N_("already there"),
        N_("under way"),
        N_("not found"),
        N_("lost to another operator"),
        GONE,
        GONE_COMMAND,
    }
)


# What each effect class does, for operators.
_JOBS: Final = {
    "slack.post": N_("Slack message"),
    "slack.card": N_("Card update"),
    "slack.reply": N_("Private answer"),
    "slack.direct": N_("Direct message"),
    "slack.direct_card": N_("Direct message update"),
    "slack.unfurl": N_("Link preview"),
    "slack.file": N_("PDF upload"),
    "pdf.render": N_("PDF"),
    "crm.create": N_("Salesforce write"),
    "crm.update": N_("Salesforce update"),
    "crm.read": N_("Salesforce read"),
    "llm.extract": N_("AI reading"),
    "llm.summarize": N_("AI summary"),
}


def job(name: str) -> str:
    """Return an effect class or the kind of a command as people say it: "Salesforce write", "Command create"."""
    return _(_JOBS[name]) if name in _JOBS else _("Command {name}", name=messages.command_name(name))


# Why a job failed, for people who cannot do anything about the service.
_FAILURES: Final = {
    "transient": N_("The service was unavailable"),
    "timeout": N_("The service did not answer in time"),
    "throttled": N_("The service asked to wait for too long"),
    "auth": N_("The login was refused"),
    "mapping": N_("The service does not know a field or its value"),
    "validation": N_("The service refuses the request for good"),
    "not_found": N_("The target does not exist"),
    "conflict": N_("The service holds other content under our key"),
    "render": N_("The document cannot be rendered"),
    "llm_schema": N_("The AI answered in the wrong form"),
    "uncertain": N_("It is not known whether it was done"),
    "poison": N_("The bot crashed on it several times"),
    "expired": N_("It waited longer than its class allows"),
    "internal": N_("An error in Quotebot's own code"),
}
_UNKNOWN: Final = N_("The reason is not known")


def failure_words(category: str | None) -> str:
    """Return the category of a failure as a sentence without a full stop. The service's own text is for operators."""
    return _(_FAILURES.get(category or "", _UNKNOWN))


def queued(reference: str) -> str:
    """Reply to a retry that took effect."""
    return _("Retrying #{reference}. What is there already isn't done again.", reference=reference)


def discarded(reference: str) -> str:
    """Reply to a discard that took effect."""
    return _("Discarded #{reference}.", reference=reference)


def resubmitted(reference: str, correlation_id: str) -> str:
    """Reply to an edited copy that was recorded."""
    return _("#{reference} is replaced by an edited copy, reference {ref}.", reference=reference, ref=correlation_id)


def replaced_by(reference: str, correlation_id: str, reason: str) -> str:
    """Return the reason of a discard in favor of an edited copy."""
    return _("Replaced by {reference} ({ref}): {reason}", reference=reference, ref=correlation_id, reason=reason)


def not_editable(reference: str) -> str:
    """Reply if a dead letter is no command of a person, or is a decision."""
    text = N_("#{reference} can't be edited. Only a person's command can, and no decision. Retry or discard it.")
    return _(text, reference=reference)


def too_long_to_edit(reference: str) -> str:
    """Reply if the content of a dead command does not fit a form."""
    text = N_("#{reference} is too long for a form. At a terminal: `quotebot ops resubmit {reference} --payload FILE`")
    return _(text, reference=reference)


def too_late(reference: str, standing: str, earlier: str | None) -> str:
    """Reply to the later of two operators: `earlier` is the first one's action and time, `standing` the current state."""
    who = (
        _("it was {earlier}", earlier=earlier)
        if earlier
        else _("it is {state}", state=_(standing) if standing in _STANDINGS else standing)
    )
    return _("#{reference}: {who}. Your click changed nothing.", reference=reference, who=who)


# Refuse a user who may not act on dead letters.
NOT_OPERATOR: Final = N_("Only Quotebot operators can do that.")


def unknown(reference: str) -> str:
    """Reply if the dead letter no longer exists."""
    return _("There's no failed job {reference} any more.", reference=messages.escape(reference))


# Error under the reason field of the discard form.
REASON_NEEDED: Final = N_("Add a reason for the audit (500 characters max).")


def not_resubmitted(error: Exception) -> str:
    """Error under the content of an edited command."""
    readable = _("That is no JSON") if isinstance(error, (json.JSONDecodeError, RecursionError)) else str(error)
    return f"{clipped(messages.one_line(readable), 140)}."


# Result of the bot's own command about a card; it is stored with the command and never posted.
OPS_CARD_FOLLOWS = "The card follows in the operators' channel."
# Content of an older card.
CONTINUED: Final = N_("⬇️ Continued in a newer message below.")


def replayed_all(count: int) -> str:
    """Result of a retry of all dead letters of a cause."""
    return ngettext(
        "Retrying {n} job. What is there already isn't done again.",
        "Retrying {n} jobs. What is there already isn't done again.",
        count,
    )


def unknown_cause(cause: str) -> str:
    """Reply if no card shows this cause."""
    return _("No failed job of {cause} is left.", cause=messages.escape(cause))


def announced(reference: str) -> str:
    """Result of the bot's own command; it is stored with the command and never posted."""
    return f"The card of dead letter {reference} follows in the operators' channel."


def recovered(label: str, quote: Quote, ref: str) -> str:
    """Notice in the quote's thread: an effect that had failed permanently succeeded after a retry."""
    return _("✅ {label} for {quote} is done now. Ref {ref}", label=label, quote=title(quote), ref=ref)


SENTENCE_CHARACTERS_MAX: Final = 500
_DEEDS: Final = {
    "PDF": N_("The PDF"),
    "CRM": N_("The write to Salesforce"),
    "CRM status": N_("The status in Salesforce"),
    "CRM amount": N_("The opportunity's amount in Salesforce"),
    "CRM stage": N_("The opportunity's stage in Salesforce"),
    "CRM PDF": N_("The PDF in Salesforce"),
}


def tried(label: str, quote: Quote, effect: Effect, sentence: str) -> str:
    """Reply to a Retry that took effect."""
    return _tried(_named(label, quote, effect), sentence)


def cancelled(label: str, quote: Quote, effect: Effect, by: str) -> str:
    """Notice in the thread: the effect is cancelled, and a revision of the quote enqueues it again."""
    sure = N_("🚫 {who} skipped {what}. The next approved version will have it.")
    unsure = N_(
        "🚫 {who} skipped {what}. An earlier try may have reached Salesforce or Slack. The next approved version will have it."
    )
    return _(unsure if effect.maybe_sent else sure, who=messages.mention(by), what=_named(label, quote, effect))


def effect_too_late(label: str, quote: Quote, effect: Effect, sentence: str) -> str:
    """Reply to a click that came too late; `sentence` is the effect's current state."""
    return _too_late(_named(label, quote, effect), sentence)


def not_yours(label: str, quote: Quote) -> str:
    """Refuse a user who may not cancel a pending effect of the quote."""
    return _(
        "{what} of {quote} can be canceled by {makers} or an operator.",
        what=_(_DEEDS[label]),
        quote=title(quote),
        makers=messages.mentions(quote.authors),
    )


def command_tried(name: str, ref: str, sentence: str) -> str:
    """Reply to a Retry of a command that took effect."""
    return _tried(_command(name, ref), sentence)


def command_cancelled(name: str, ref: str) -> str:
    """Reply to a Cancel of a command that took effect."""
    return _("{command}, is canceled. The quote itself doesn't change.", command=_command(name, ref))


def command_cancelled_by(by: str) -> str:
    """Reason of a cancelled command, for its author."""
    return _("{who} canceled it on the quote's card.", who=messages.mention(by))


def command_too_late(name: str, ref: str, sentence: str) -> str:
    """Reply to a click that came too late; `sentence` is the command's current state."""
    return _too_late(_command(name, ref), sentence)


def command_not_yours(name: str, author: str, quote: Quote) -> str:
    """Refuse a user who may not cancel a command about the quote."""
    makers = messages.mentions(tuple(dict.fromkeys((author, *quote.authors))))
    return _(
        "The command {name} of {quote} can be canceled by {makers} or an operator.", name=name, quote=title(quote), makers=makers
    )


def unknown_command(quote_id: str) -> str:
    """Reply to a click on a command that does not exist, or whose quote the person does not see."""
    text = N_("No command about {quote} waits like that. Nothing was changed; refresh its card.")
    return _(text, quote=messages.escape(quote_id))


def command_status(name: str, ref: str, sentence: str, remedy: str | None) -> str:
    """Reply to a status check of a command. `remedy` is a terminal command for operators."""
    return _status(_command(name, ref), sentence, remedy)


def _command(name: str, ref: str) -> str:
    return _("The command {name}, ref {ref}", name=messages.escape(name), ref=messages.escape(ref))


def unknown_effect(quote_id: str) -> str:
    """Reply to a click on an effect that this quote does not have."""
    return _("{quote} owes nothing like that. Nothing was changed; refresh its card.", quote=messages.escape(quote_id))


def effect_status(label: str, quote: Quote, effect: Effect, sentence: str, remedy: str | None) -> str:
    """Reply to a status check of an effect. `remedy` is a terminal command for operators."""
    return _status(_named(label, quote, effect), sentence, remedy)


def _tried(what: str, sentence: str) -> str:
    said = messages.short(sentence, SENTENCE_CHARACTERS_MAX)
    return _("{what}: {sentence} The card shows what comes of it.", what=what, sentence=said)


def _too_late(what: str, sentence: str) -> str:
    said = messages.short(sentence, SENTENCE_CHARACTERS_MAX)
    return _("{what}: {sentence} Your click changed nothing.", what=what, sentence=said)


def _status(what: str, sentence: str, remedy: str | None) -> str:
    said = messages.short(sentence, SENTENCE_CHARACTERS_MAX)
    text = _("{what}: {sentence} You need not do anything.", what=what, sentence=said)
    if remedy is None:
        return text
    todo = _("An operator can do something about it: `{remedy}`", remedy=messages.escape(clipped(remedy, 200)))
    return f"{text}\n{todo}"


def _named(label: str, quote: Quote, effect: Effect) -> str:
    of_version = replace(quote, version=effect.payload.get("version", quote.version))  # the effect's version, possibly not the head
    ref = messages.escape(effect.correlation_id)
    return _("{what} of {quote}, ref {ref}", what=_(_DEEDS[label]), quote=title(of_version), ref=ref)
