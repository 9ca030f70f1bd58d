"""Cards in the operators' channel about many dead letters of one cause, and about a refused login. Text is Slack mrkdwn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.domain.language import N_, _, ngettext
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import local_time, parse_quote_id
from quotebot.store.dead_letters import CAUSE, HOLDER
from quotebot.views import messages, operator_messages
from quotebot.views.blocks import Json, button, confirm, context, mrkdwn, plain, read, section, written
from quotebot.views.card import Card

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.database import Row
    from ledger.gates import Gate
    from quotebot.store.dead_letters import Backlog, OpsCard

REPLAY_ALL, CAUSE_DETAILS = "letter.replay_all", "letter.cause"  # action_ids
CAUSE_CHARACTERS_MAX: Final = 300
ERROR_CHARACTERS_MAX: Final = 300
LETTERS_SHOWN_MAX: Final = 20
SECTION_LETTERS: Final = 5  # lines in one section of the details
HEADER_CHARACTERS_MAX: Final = 150

_NAMES: Final = {"crm": "Salesforce", "llm": N_("The AI")}


def cause_value(cause: str) -> str:
    """Return the value of the buttons on the card of a cause."""
    return written({"cause": cause})


def parse_cause_value(text: str) -> str | None:
    """Return the cause of a button's value, or None if this build did not write it."""
    fields = read(text, {"cause"})
    found = None if fields is None else fields["cause"]
    return found if isinstance(found, str) and 0 < len(found) <= CAUSE_CHARACTERS_MAX else None


def ops_card(card: OpsCard, state: Backlog, newest_error: str | None, *, holds: bool = False) -> Card:
    """Render the card of a subject from its current state. `holds`: the person whom it is about may approve by a role."""
    if state.gate is not None:
        return _pause_card(state, state.gate)
    if card.subject.startswith(HOLDER):
        return _holder_card(card.subject.removeprefix(HOLDER), is_gone=bool(state.letters), holds=holds)
    return _cause_card(card, card.subject.removeprefix(CAUSE), state, newest_error)


def cause_details(cause: str, letters: Sequence[Row], count: int) -> Json:
    """Return the Details view of a cause: its letters that wait longest, without their payloads."""
    lines = [_dead_letter(row) for row in letters]
    jobs = f"{_count(count)}."
    if count > len(lines):
        jobs = _("{jobs}. The {shown} oldest:", jobs=_count(count), shown=len(lines))
    head = f"*{_words(cause)}*\n{_code(cause)}\n{jobs}"
    parts = [lines[at : at + SECTION_LETTERS] for at in range(0, len(lines), SECTION_LETTERS)]
    terminal = _("At a terminal: `quotebot dead list --cause {cause}`", cause=messages.escape(cause))
    return {
        "type": "modal",
        "title": plain(_("Failed jobs")),
        "close": plain(_("Close")),
        "blocks": [
            section(head),
            *(section("\n".join(part)) for part in parts),
            context([clipped(terminal, ERROR_CHARACTERS_MAX)]),
        ],
    }


def _cause_card(card: OpsCard, cause: str, state: Backlog, newest_error: str | None) -> Card:
    effect_class, category, _code_name = cause.split("/", 2)
    name = operator_messages.job(effect_class)
    head = _("{job} · all done", job=name)
    if state.letters:
        head = _("{job} failed · {jobs}", job=name, jobs=_count(state.letters))
    facts = {
        _("Cause"): f"{_words(cause)}\n{_code(cause)}",
        _("Status"): _("⚠️ Needs attention") if state.letters else _("✅ Done"),
    }
    if state.letters:
        facts |= {_("Concerns"): _concerns(state), _("Since"): local_time(state.oldest_at or card.opened_at)}
    value = cause_value(cause)
    sure = confirm(_("Retry all?"), _("What is done already isn't done again."), _("Retry all"), _("Go back"))
    replay = {**button(REPLAY_ALL, _("Retry all"), value, style="primary"), "confirm": sure}
    buttons = [replay, button(CAUSE_DETAILS, _("Details"), value)] if state.letters else []
    shown = newest_error if state.letters and category != "internal" else None
    decided = None
    if card.decided_by is not None and card.decided_at is not None:
        decided = _("Retried by {who}, {at}", who=messages.mention(card.decided_by), at=local_time(card.decided_at))
    newest = _("Newest error")
    blocks: list[Json] = [
        {"type": "header", "text": plain(clipped(head, HEADER_CHARACTERS_MAX))},
        {"type": "section", "fields": [mrkdwn(f"*{name}*\n{fact}") for name, fact in facts.items()]},
        *([] if shown is None else [section(f"*{newest}*\n{messages.short(shown, ERROR_CHARACTERS_MAX)}")]),
        *([{"type": "actions", "block_id": "ops.actions", "elements": buttons}] if buttons else []),
        *([] if decided is None else [context([decided])]),
    ]
    return Card(f"{head}: {_words(cause)}", blocks)


def _holder_card(user: str, *, is_gone: bool, holds: bool) -> Card:
    """Return the card of a role holder who is no full member of the workspace any more."""
    who = messages.mention(user)
    if is_gone:
        head = _("An approver can't approve any more")
        text = _(
            "⚠️ {who} holds a role and is no full member of this workspace. Others are asked instead.\n"
            "Name somebody else in `QUOTEBOT_APPROVERS` and restart the bot.",
            who=who,
        )
    elif holds:
        head, text = _("An approver is a full member again"), _("✅ {who} is asked to approve again.", who=who)
    else:
        head = _("The approvers are up to date")
        text = _("✅ {who} holds no role any more and is not asked to approve.", who=who)
    return Card(head, [{"type": "header", "text": plain(head)}, section(text)])


def _pause_card(state: Backlog, gate: Gate) -> Card:
    who = _(_NAMES.get(gate.name, gate.name))
    if gate.state == "flowing":
        head = _("{service} works again", service=who)
        return Card(
            head,
            [{"type": "header", "text": plain(head)}, section(_("✅ The login works. Everything that waited is sent now."))],
        )
    head = _("{service} is paused: login refused", service=who)
    quotes = ngettext("{n} quote", "{n} quotes", state.aggregates)
    waits = _("Nothing is waiting yet")
    if state.letters:
        waits = ngettext("{n} job is waiting", "{n} jobs of {quotes} are waiting", state.letters, quotes=quotes)
    if gate.state == "half_open":
        status = _("⏳ Trying one job first. {waits}.", waits=waits)
    elif gate.held_at is None:
        status = _("⏸️ Paused. {waits}. Nothing is lost.", waits=waits)
    else:
        status = _("⏸️ Paused since {at}. {waits}. Nothing is lost.", at=local_time(gate.held_at), waits=waits)
    why = messages.short(gate.reason or _("no reason is known"), ERROR_CHARACTERS_MAX)
    todo = _("Fix the login, then run `quotebot resume {name}`", name=gate.name)
    last = _("Last error")
    blocks = [{"type": "header", "text": plain(head)}, section(f"{status}\n{todo}"), section(f"*{last}*\n{why}")]
    return Card(f"{head}. {waits}.", blocks)


def _count(letters: int) -> str:
    return ngettext("{n} job", "{n} jobs", letters)


def _concerns(state: Backlog) -> str:
    return ngettext("{n} quote or command", "{n} quotes or commands", state.aggregates)


def _words(cause: str) -> str:
    return operator_messages.failure_words(cause.split("/", 2)[1])


def _dead_letter(row: Row) -> str:
    reference = f"{'op' if row['kind'] == 'operation' else ''}{row['id']}"
    told = {"reference": reference, "at": local_time(row["updated_at"]), "ref": _code(row["correlation_id"])}
    if parse_quote_id(row["aggregate_id"]) is None:
        return _("• `{reference}`, {at}, ref {ref}", **told)
    return _("• `{reference}` of {quote}, {at}, ref {ref}", **told, quote=row["aggregate_id"])


def _code(text: str) -> str:
    return f"`{messages.short(text, 100).replace('`', '')}`"
