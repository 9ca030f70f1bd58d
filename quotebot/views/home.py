"""Home tab of one person, drawn in full: their work queue with a filter and pages, or a first visit. See work_queue.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.commands.queries import Section
from quotebot.domain import money
from quotebot.domain.approvals.policy import margin_words
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import local_day, local_time, state_words, title, utc_text
from quotebot.store.homes import HomeChoice
from quotebot.views import messages
from quotebot.views.blocks import ButtonValue, Json, button, context, option, plain, read, section, value_text, written
from quotebot.views.card import STATE_ICONS, deciding
from quotebot.views.confirmations import SHOW
from quotebot.views.work_queue import CLOSED, Home, Needed, Part, WaitingQuote

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Listed, Quote

NEW_QUOTE, EXAMPLE, DIGEST = "home.new", "home.example", "home.digest"  # action_ids
FILTER, PREVIOUS, NEXT, ALL = "home.filter", "home.previous", "home.next", "home.all"  # likewise: they choose what is shown

ACCOUNT_CHARACTERS_MAX: Final = 60
REASONS_CHARACTERS_MAX: Final = 300
NAME_CHARACTERS_MAX: Final = 40
NOON, EVENING = 12, 18  # hours
REFUSED: Final = "refused"  # private_metadata of the tab of a refused person
LABELS: Final = {
    Section.ALL: "Everything",
    Section.NEEDS_YOU: "Needs you",
    Section.WAITING: "Waiting on others",
    Section.READY: "Ready to send",
    Section.EXPIRING: "Expiring this week",
    Section.OPEN: "Other open quotes",
    Section.CLOSED: "Recently closed",
}
FIRST_LINES: Final = (
    "*Quote, approve and track deals without leaving Slack.*\n"
    "1. *New quote* asks for the customer and the products, and shows the price at once.\n"
    "2. *Submit* asks whoever has to approve. A quote within the limits is approved at once.\n"
    "3. An approved quote gets its PDF and its record in the CRM."
)


def choice_text(choice: HomeChoice) -> str:
    """Return the value of a button or a menu entry that chooses a section; `parse_choice` reads it."""
    return written({"s": choice.section.value, "p": choice.page})


def parse_choice(text: str) -> HomeChoice | None:
    """Return the chosen section and page, or None if this build did not write the value."""
    fields = read(text, {"s", "p"})
    if fields is None or fields["s"] not in set(Section) or type(fields["p"]) is not int or fields["p"] < 1:
        return None
    return HomeChoice(Section(fields["s"]), fields["p"])


def digest_text(*, wanted: bool) -> str:
    """Return the value of the button that turns the daily digest on or off; `parse_digest` reads it."""
    return written({"d": wanted})


def parse_digest(text: str) -> bool | None:
    """Return whether the digest is wanted, or None if this build did not write the value."""
    fields = read(text, {"d"})
    return fields["d"] if fields is not None and isinstance(fields["d"], bool) else None


def home_view(home: Home) -> Json:
    """Return the view that views.publish takes, at most 100 blocks."""
    blocks = [{"type": "header", "text": plain(greeting(home))}]
    if home.is_first and home.section is Section.ALL:
        return {"type": "home", "blocks": [*blocks, section(FIRST_LINES), _actions(home), *_caught_up(home)]}
    blocks += [context([_counts(home)]), _actions(home)]
    if home.section is not Section.ALL:
        return {"type": "home", "blocks": [*blocks, *_page(home, home.section)]}
    for part_of in LABELS:
        if part_of in home.parts:
            blocks += _part(home, part_of, home.parts[part_of])
    return {"type": "home", "blocks": blocks}


def refused_view(text: str) -> Json:
    """Return the Home tab of a user whom the access gate does not admit."""
    blocks = [{"type": "header", "text": plain("Quotebot")}, section(messages.escape(text))]
    return {"type": "home", "private_metadata": REFUSED, "blocks": blocks}


def greeting(home: Home) -> str:
    """Return "Good morning, Rep", by the hour where the person is."""
    part = "morning" if home.hour < NOON else "afternoon" if home.hour < EVENING else "evening"
    first = clipped(messages.one_line(home.name).partition(" ")[0], NAME_CHARACTERS_MAX)
    return f"Good {part}, {first}" if first else f"Good {part}"


def _counts(home: Home) -> str:
    needs = home.parts.get(Section.NEEDS_YOU, Part())
    own = sum(part.total for name, part in home.parts.items() if name not in (Section.NEEDS_YOU, Section.CLOSED))
    asked = f"*{_count(needs)} {'needs' if needs.total == 1 else 'need'} you* · " if needs.total else ""
    return f"{asked}{own} open"


def _count(part: Part) -> str:
    return f"{part.total}+" if part.more else str(part.total)


def _actions(home: Home) -> Json:
    elements = [button(NEW_QUOTE, "New quote", "new", style="primary")]
    if home.is_first and home.section is Section.ALL:
        elements.append(button(EXAMPLE, "Try an example", "example"))
    else:
        options = [option(label, choice_text(HomeChoice(name))) for name, label in LABELS.items() if _offered(home, name)]
        shown = next(each for each in options if each["value"] == choice_text(HomeChoice(home.section)))
        elements.append({"type": "static_select", "action_id": FILTER, "options": options, "initial_option": shown})
        label = "Stop the daily digest" if home.digest else "Get a daily digest"
        elements.append(button(DIGEST, label, digest_text(wanted=not home.digest)))
    return {"type": "actions", "block_id": "home.actions", "elements": elements}


def _offered(home: Home, name: Section) -> bool:
    return home.approves or name is not Section.NEEDS_YOU or home.section is name


def _caught_up(home: Home) -> list[Json]:
    return [_heading(LABELS[Section.NEEDS_YOU]), context(["You're all caught up."])] if home.approves else []


def _part(home: Home, name: Section, part: Part) -> list[Json]:
    """Return the beginning of one section; an empty one is left out, except the approvals of an approver."""
    if not part.total:
        if name is Section.OPEN and not any(home.parts[each].total for each in home.parts if each is not Section.CLOSED):
            return [context(["No open quotes yet."])]
        return _caught_up(home) if name is Section.NEEDS_YOU else []
    blocks = [_heading(f"{LABELS[name]} ({_count(part)})"), *_rows(part)]
    if part.total > len(part.rows):
        everything = button(ALL, f"See all {_count(part)}", choice_text(HomeChoice(name)))
        blocks.append({"type": "actions", "block_id": f"home.all.{name.value}", "elements": [everything]})
    return blocks


def _page(home: Home, name: Section) -> list[Json]:
    """Return one page of a chosen section, with buttons for the others."""
    part = home.parts.get(name, Part())
    if not part.total:
        return _caught_up(home) if name is Section.NEEDS_YOU else [_heading(LABELS[name]), context(["Nothing here now."])]
    where = f", page {home.page} of {home.pages}" if home.pages > 1 else ""
    turns = [
        *([button(PREVIOUS, "◀ Previous", choice_text(HomeChoice(name, home.page - 1)))] if home.page > 1 else []),
        *([button(NEXT, "Next ▶", choice_text(HomeChoice(name, home.page + 1)))] if home.page < home.pages else []),
    ]
    pager = [{"type": "actions", "block_id": "home.pages", "elements": turns}] if turns else []
    return [_heading(f"{LABELS[name]} ({_count(part)}){where}"), *_rows(part), *pager]


def _rows(part: Part) -> list[Json]:
    return [block for row in part.rows for block in _row(row)]


def _row(row: Needed | WaitingQuote | Listed) -> list[Json]:
    if isinstance(row, Needed):
        return _needed(row)
    return [_waiting(row)] if isinstance(row, WaitingQuote) else [_listed(row)]


def one_line_of(row: Needed | WaitingQuote | Listed) -> str:
    """Return one row as a line without buttons and figures of a margin."""
    if isinstance(row, Needed):
        due = "" if row.due_at is None else f" · due {local_time(row.due_at)}"
        named = f"*{_account(row.quote)} · {messages.net(row.quote)}* · {title(row.quote)}"
        return f"{named} · {messages.mention(row.approval.requested_by)}{due}"
    if isinstance(row, WaitingQuote):
        asked = f" · waiting for {messages.mentions(row.asked)}" if row.asked else ""
        return f"{_name(row.listed)}{asked}"
    return f"{_name(row)} · {state_words(row.state)} · valid until {local_day(row.valid_until)}"


def _needed(row: Needed) -> list[Json]:
    quote, approval = row.quote, row.approval
    why = clipped("; ".join(messages.one_line(reason) for reason in approval.reasons), REASONS_CHARACTERS_MAX)
    easier = "".join(f"\n💡 {name}: {clipped(value, REASONS_CHARACTERS_MAX)}" for name, value in row.easier)
    times = [f"asked {_ago(approval.requested_at)}"]
    times += [] if row.escalates_at is None else [f"more people are asked {local_time(row.escalates_at)}"]
    times += [] if row.due_at is None else [f"due {local_time(row.due_at)}"]
    lines = (
        f"*{_account(quote)} · {messages.net(quote)}* · {title(quote)}",
        messages.escape(why),
        messages.escape(f"{_effect(quote, row.margins)}{easier}"),
        " · ".join((messages.mention(approval.requested_by), *times)),
    )
    return [
        section("\n".join(line for line in lines if line)),
        {"type": "actions", "block_id": f"home.decide.{quote.quote_id}", "elements": [*deciding(quote), _show(quote)]},
    ]


def _waiting(row: WaitingQuote) -> Json:
    asked = f"for {messages.mentions(row.asked)}" if row.asked else "for an approver, and nobody holds the role now"
    times = [] if row.since is None else [f"asked {_ago(row.since)}"]
    times += [] if row.due_at is None else [f"due {local_time(row.due_at)}"]
    text = f"{_name(row.listed)}\n{' · '.join((f'Waiting {asked}', *times))}"
    return {**section(text), "accessory": _show(row.listed)}


def _listed(listed: Listed) -> Json:
    valid = "" if listed.state in CLOSED else f" · valid until {local_day(listed.valid_until)}"
    return {**section(f"{_name(listed)} · {state_words(listed.state)}{valid}"), "accessory": _show(listed)}


def _name(listed: Listed) -> str:
    net = money.format_amount(listed.net_total, listed.currency)
    return f"{STATE_ICONS[listed.state]} *{_account(listed)} · {net}* · {title(listed)}"


def _effect(quote: Quote, margins: tuple[str, ...]) -> str:
    """Return the effect of the discount on the price and margin. Only approvers see it: a margin is not for the whole channel."""
    pricing = quote.pricing
    amount = money.format_amount(pricing.discount_total, pricing.currency)
    discount = f"{money.format_percent(pricing.discount_percent)} discount ({amount})"
    return "; ".join((", ".join((discount, *margin_words(pricing))), *margins))


def _show(quote: Quote | Listed) -> Json:
    return button(SHOW, "Show", value_text(ButtonValue(quote.quote_id, quote.version, None)))


def _account(quote: Quote | Listed) -> str:
    return messages.short(quote.account, ACCOUNT_CHARACTERS_MAX)


def _heading(text: str) -> Json:
    return {"type": "header", "text": plain(text)}


def _ago(unix_ms: int) -> str:
    """Return a time as Slack shows its age, which stays right without another drawing."""
    return f"<!date^{unix_ms // 1000}^{{ago}}|{utc_text(unix_ms)}>"
