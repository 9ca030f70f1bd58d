"""Messages about changes made in Salesforce, for the quote's thread and for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.domain.language import N_, _
from quotebot.views.messages import escape, one_line

if TYPE_CHECKING:
    from quotebot.domain.quotes.crm_fields import Conflict, CrmDifference


def found(conflict: Conflict) -> str:
    """Notice in the thread: a user changed a field in Salesforce, and an operator has to decide."""
    told = conflict.difference
    return _(
        "Someone changed *{field}* of {quote} in Salesforce to {theirs} (Quotebot has {ours}). "
        "An operator decides which one is right: `quotebot crm reconcile apply {conflict}`",
        field=told.field,
        quote=f"{told.quote_id} v{told.version}",
        theirs=quoted(told.theirs),
        ours=quoted(told.ours),
        conflict=conflict.id,
    )


def quoted(value: str) -> str:
    """Return a value in quotation marks, at most 60 characters, escaped so that Slack interprets nothing in it."""
    shown = one_line(value)
    return f'"{escape(shown if len(shown) <= 60 else shown[:59] + "…")}"'  # noqa: PLR2004 -- fits one line


def taken(difference: CrmDifference, take: str) -> str:
    """Reply to a decision; `take` names the chosen value."""
    place = {"field": difference.field, "quote": f"{difference.quote_id} v{difference.version}"}
    if take == "theirs":
        return _("{field} of {quote} stays {value}.", **place, value=quoted(difference.theirs))
    return _("{field} of {quote} becomes {value}, unless somebody changes it again before.", **place, value=quoted(difference.ours))


def unknown(conflict_id: int) -> str:
    """Refuse a decision on a difference that does not exist."""
    return _("There is no difference {number}. Nothing was changed. See: quotebot crm reconcile list", number=conflict_id)


def too_late(conflict: Conflict) -> str:
    """Refuse a decision on a difference that is already settled."""
    if conflict.state == "over":
        return _("Difference {number} is gone by itself: Salesforce and the quote agree. Nothing was changed.", number=conflict.id)
    settled = {
        "ours": N_("Difference {number} was settled by {person}, who took ours. Nothing was changed."),
        "theirs": N_("Difference {number} was settled by {person}, who took theirs. Nothing was changed."),
    }
    return _(settled[conflict.state], number=conflict.id, person=conflict.decided_by)


def moved(conflict: Conflict) -> str:
    """Refuse a decision on a value that has changed since the operator read it."""
    now = quoted(conflict.difference.theirs)
    return _("Difference {number} changed meanwhile: it holds {value} now. Nothing was changed.", number=conflict.id, value=now)


def reason_needed(characters_max: int) -> str:
    """Refuse a decision without a reason, or with one over `characters_max`."""
    return _(
        "A decision needs a reason of at most {n} characters: it is what the audit will say. Nothing was changed.", n=characters_max
    )


# Reply to a sync command.
SYNC_FOLLOWS = N_("What changed in Salesforce is being read.")
