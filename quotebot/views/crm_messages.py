"""Messages about changes made in Salesforce, for the quote's thread and for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.views.messages import escape, one_line

if TYPE_CHECKING:
    from quotebot.domain.quotes.crm_fields import Conflict, CrmDifference


def found(conflict: Conflict) -> str:
    """Notice in the thread: a user changed a field in Salesforce, and an operator has to decide."""
    told = conflict.difference
    return (
        f"Someone changed *{told.field}* of {told.quote_id} v{told.version} in Salesforce to {quoted(told.theirs)} "
        f"(Quotebot has {quoted(told.ours)}). An operator decides which one is right: `quotebot crm reconcile apply {conflict.id}`"
    )


def quoted(value: str) -> str:
    """Return a value in quotation marks, at most 60 characters, escaped so that Slack interprets nothing in it."""
    shown = one_line(value)
    return f'"{escape(shown if len(shown) <= 60 else shown[:59] + "…")}"'  # noqa: PLR2004 -- fits one line


def taken(difference: CrmDifference, take: str) -> str:
    """Reply to a decision; `take` names the chosen value."""
    place = f"{difference.field} of {difference.quote_id} v{difference.version}"
    if take == "theirs":
        return f"{place} stays {quoted(difference.theirs)}."
    return f"{place} becomes {quoted(difference.ours)}, unless somebody changes it again before."


def unknown(conflict_id: int) -> str:
    """Refuse a decision on a difference that does not exist."""
    return f"There is no difference {conflict_id}. Nothing was changed. See: quotebot crm reconcile list"


def too_late(conflict: Conflict) -> str:
    """Refuse a decision on a difference that is already settled."""
    if conflict.state == "over":
        return f"Difference {conflict.id} is gone by itself: Salesforce and the quote agree. Nothing was changed."
    return f"Difference {conflict.id} was settled by {conflict.decided_by}, who took {conflict.state}. Nothing was changed."


def moved(conflict: Conflict) -> str:
    """Refuse a decision on a value that has changed since the operator read it."""
    return f"Difference {conflict.id} changed meanwhile: it holds {quoted(conflict.difference.theirs)} now. Nothing was changed."


def reason_needed(characters_max: int) -> str:
    """Refuse a decision without a reason, or with one over `characters_max`."""
    return f"A decision needs a reason of at most {characters_max} characters: it is what the audit will say. Nothing was changed."


# Reply to a sync command.
SYNC_FOLLOWS = "What changed in Salesforce is being read."
