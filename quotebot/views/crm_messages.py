"""Messages about changes made in Salesforce, for the quote's thread and for operators, who decide there or in `/quote ops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from quotebot.domain.language import N_, _, grouped, ngettext
from quotebot.views.blocks import BUTTON_CHARACTERS_MAX, Json, button, context, modal, read, section, text_input, written
from quotebot.views.messages import escape, mention, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.quotes.crm_fields import Conflict, CrmDifference

    Take = Literal["ours", "theirs"]

TAKES: Final[Mapping[str, Take]] = {"crm.theirs": "theirs", "crm.ours": "ours"}  # by action_id
RECONCILE_FORM: Final = "crm.reconcile"  # callback_id
REASON: Final = "reason"
REASON_CHARACTERS_MAX: Final = 500
DIFFERENCES_SHOWN_MAX: Final = 10
_LABELS: Final = {"theirs": N_("Keep Salesforce"), "ours": N_("Use Quotebot")}


def found(conflict: Conflict) -> str:
    """Notice in the thread: a user changed a field in Salesforce, and an operator has to decide."""
    told = conflict.difference
    return _(
        "Someone changed *{field}* of {quote} in Salesforce to {theirs} (Quotebot has {ours}). "
        "An operator decides which one is right: in `/quote ops`, or with `quotebot crm reconcile apply {conflict}`",
        field=told.field,
        quote=f"{told.quote_id} v{told.version}",
        theirs=quoted(told.theirs),
        ours=quoted(told.ours),
        conflict=conflict.id,
    )


def waiting(conflicts: Sequence[Conflict], *, more: bool) -> tuple[str, list[Json]]:
    """Return the open differences for operators, the newest first, as mrkdwn and as blocks with two buttons each."""
    head = ngettext("{n} difference with Salesforce", "{n} differences with Salesforce", len(conflicts))
    if more:
        head = _("The newest {n} differences with Salesforce", n=grouped(len(conflicts)))
    blocks = [section(f"*{head}*")]
    for each in conflicts:
        value = written({"x": each.id})
        buttons = [button(action_id, _(_LABELS[take]), value) for action_id, take in TAKES.items()]
        blocks += [section(_changed(each.difference)), {"type": "actions", "block_id": f"crm.{each.id}", "elements": buttons}]
    if more:
        blocks.append(context([_("At a terminal: `quotebot crm reconcile list`")]))
    return "\n".join((f"*{head}*", *(f"• {_changed(each.difference)}" for each in conflicts))), blocks


def parse_difference(text: str) -> int | None:
    """Return the number of the difference that a button is about, or None if this build did not write its value."""
    fields = read(text, {"x"})
    return None if fields is None else _number(fields["x"])


def reconcile_form(conflict: Conflict, take: Take) -> Json | None:
    """Return the form that asks for the reason of a decision, or None if the value in Salesforce is too long for it."""
    seen = written({"x": conflict.id, "k": take, "s": conflict.difference.theirs})
    if len(seen) > BUTTON_CHARACTERS_MAX:
        return None
    said = f"{_changed(conflict.difference)}\n{taken(conflict.difference, take)}"
    why = text_input(REASON, _("Why?"), length_max=REASON_CHARACTERS_MAX, hint=_("For the audit."), multiline=True)
    return modal(RECONCILE_FORM, _("Salesforce difference"), _(_LABELS[take]), seen, [section(said), why])


def parse_decided(text: str) -> tuple[int, Take, str] | None:
    """Return the difference, the chosen side and the value in Salesforce of a form, or None if this build did not write them."""
    fields = read(text, {"x", "k", "s"})
    number = None if fields is None else _number(fields["x"])
    take = None if fields is None else next((each for each in TAKES.values() if each == fields["k"]), None)
    if fields is None or number is None or take is None or not isinstance(fields["s"], str):
        return None
    return number, take, fields["s"]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63 else None


def _changed(told: CrmDifference) -> str:
    return _(
        "*{quote}*: someone changed *{field}* in Salesforce to {theirs} (Quotebot has {ours}).",
        quote=f"{told.quote_id} v{told.version}",
        field=told.field,
        theirs=quoted(told.theirs),
        ours=quoted(told.ours),
    )


def too_long(conflict_id: int) -> str:
    """Reply if the value in Salesforce is too long for a form."""
    text = N_("The value in Salesforce is too long for a form. At a terminal: `quotebot crm reconcile apply {number}`")
    return _(text, number=conflict_id)


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
        "ours": N_("Difference {number} was settled by {person}, who took Quotebot's value. Nothing was changed."),
        "theirs": N_("Difference {number} was settled by {person}, who kept Salesforce's value. Nothing was changed."),
    }
    return _(settled[conflict.state], number=conflict.id, person=mention(conflict.decided_by or ""))


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
