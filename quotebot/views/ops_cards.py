"""Cards in the operators' channel about many dead letters of one cause, and about a refused login. Text is Slack mrkdwn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

_WORDS: Final = {
    "transient": "The service was unavailable",
    "timeout": "The service did not answer in time",
    "throttled": "The service asked to wait for too long",
    "auth": "The login was refused",
    "mapping": "The service does not know a field or its value",
    "validation": "The service refuses the request for good",
    "not_found": "The target does not exist",
    "conflict": "The service holds other content under our key",
    "render": "The document cannot be rendered",
    "llm_schema": "The AI answered in the wrong form",
    "uncertain": "It is not known whether it was done",
    "poison": "The bot crashed on it several times",
    "expired": "It waited longer than its class allows",
    "internal": "An error in Quotebot's own code",
}
_NAMES: Final = {"crm": "Salesforce", "llm": "The AI"}


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
    left = f" The {len(lines)} oldest:" if count > len(lines) else ""
    head = f"*{_words(cause)}*\n{_code(cause)}\n{_count(count)}.{left}"
    parts = [lines[at : at + SECTION_LETTERS] for at in range(0, len(lines), SECTION_LETTERS)]
    terminal = f"At a terminal: `quotebot dead list --cause {messages.escape(cause)}`"
    return {
        "type": "modal",
        "title": plain("Failed jobs"),
        "close": plain("Close"),
        "blocks": [
            section(head),
            *(section("\n".join(part)) for part in parts),
            context([clipped(terminal, ERROR_CHARACTERS_MAX)]),
        ],
    }


def _cause_card(card: OpsCard, cause: str, state: Backlog, newest_error: str | None) -> Card:
    effect_class, category, _ = cause.split("/", 2)
    name = operator_messages.job(effect_class)
    head = f"{name} failed · {_count(state.letters)}" if state.letters else f"{name} · all done"
    facts = {
        "Cause": f"{_words(cause)}\n{_code(cause)}",
        "Status": "⚠️ Needs attention" if state.letters else "✅ Done",
    }
    if state.letters:
        facts |= {"Concerns": _concerns(state), "Since": local_time(state.oldest_at or card.opened_at)}
    value = cause_value(cause)
    sure = confirm("Retry all?", "What is done already isn't done again.", "Retry all", "Go back")
    replay = {**button(REPLAY_ALL, "Retry all", value, style="primary"), "confirm": sure}
    buttons = [replay, button(CAUSE_DETAILS, "Details", value)] if state.letters else []
    shown = newest_error if state.letters and category != "internal" else None
    decided = card.decided_by is not None and card.decided_at is not None
    blocks: list[Json] = [
        {"type": "header", "text": plain(clipped(head, HEADER_CHARACTERS_MAX))},
        {"type": "section", "fields": [mrkdwn(f"*{name}*\n{fact}") for name, fact in facts.items()]},
        *([] if shown is None else [section(f"*Newest error*\n{messages.short(shown, ERROR_CHARACTERS_MAX)}")]),
        *([{"type": "actions", "block_id": "ops.actions", "elements": buttons}] if buttons else []),
        *(
            [context([f"Retried by {messages.mention(card.decided_by or '')}, {local_time(card.decided_at or 0)}"])]
            if decided
            else []
        ),
    ]
    return Card(f"{head}: {_words(cause)}", blocks)


def _holder_card(user: str, *, is_gone: bool, holds: bool) -> Card:
    """Return the card of a role holder who is no full member of the workspace any more."""
    who = messages.mention(user)
    if is_gone:
        head = "An approver can't approve any more"
        text = (
            f"⚠️ {who} holds a role and is no full member of this workspace. Others are asked instead.\n"
            "Name somebody else in `QUOTEBOT_APPROVERS` and restart the bot."
        )
    elif holds:
        head, text = "An approver is a full member again", f"✅ {who} is asked to approve again."
    else:
        head, text = "The approvers are up to date", f"✅ {who} holds no role any more and is not asked to approve."
    return Card(head, [{"type": "header", "text": plain(head)}, section(text)])


def _pause_card(state: Backlog, gate: Gate) -> Card:
    who = _NAMES.get(gate.name, gate.name)
    if gate.state == "flowing":
        head = f"{who} works again"
        return Card(
            head,
            [{"type": "header", "text": plain(head)}, section("✅ The login works. Everything that waited is sent now.")],
        )
    head = f"{who} is paused: login refused"
    many = f"{state.letters} jobs of {_counted(state.aggregates, 'quote')} are waiting"
    jobs = "1 job is waiting" if state.letters == 1 else many
    waits = jobs if state.letters else "Nothing is waiting yet"
    if gate.state == "half_open":
        status = f"⏳ Trying one job first. {waits}."
    else:
        since = "" if gate.held_at is None else f" since {local_time(gate.held_at)}"
        status = f"⏸️ Paused{since}. {waits}. Nothing is lost."
    why = messages.short(gate.reason or "no reason is known", ERROR_CHARACTERS_MAX)
    todo = f"Fix the login, then run `quotebot resume {gate.name}`"
    blocks = [{"type": "header", "text": plain(head)}, section(f"{status}\n{todo}"), section(f"*Last error*\n{why}")]
    return Card(f"{head}. {waits}.", blocks)


def _count(letters: int) -> str:
    return "1 job" if letters == 1 else f"{letters} jobs"


def _concerns(state: Backlog) -> str:
    return "1 quote or command" if state.aggregates == 1 else f"{state.aggregates} quotes or commands"


def _words(cause: str) -> str:
    return _WORDS.get(cause.split("/", 2)[1], "The reason is not known")


def _dead_letter(row: Row) -> str:
    reference = f"{'op' if row['kind'] == 'operation' else ''}{row['id']}"
    about = "" if parse_quote_id(row["aggregate_id"]) is None else f" of {row['aggregate_id']}"
    return f"• `{reference}`{about}, {local_time(row['updated_at'])}, ref {_code(row['correlation_id'])}"


def _code(text: str) -> str:
    return f"`{messages.short(text, 100).replace('`', '')}`"


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"
