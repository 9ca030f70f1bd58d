"""Home tab of one person, drawn in full: their work queue with a filter and pages, or a first visit. See work_queue.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.commands.queries import Section
from quotebot.domain import money
from quotebot.domain.approvals.policy import margin_words
from quotebot.domain.language import N_, _, grouped, initial_capital, ngettext
from quotebot.domain.pricing.engine import clipped
from quotebot.domain.quotes.quote import local_age, local_day, local_time, state_words, title
from quotebot.store.homes import HomeChoice
from quotebot.views import messages
from quotebot.views.approval_messages import covered_by
from quotebot.views.blocks import ButtonValue, Json, button, context, option, plain, read, section, value_text, written
from quotebot.views.card import STATE_ICONS, deciding
from quotebot.views.confirmations import COVER, SHOW
from quotebot.views.work_queue import CLOSED, Home, Needed, Part, WaitingQuote

if TYPE_CHECKING:
    from quotebot.domain.quotes.quote import Listed, Quote

NEW_QUOTE, EXAMPLE, DIGEST = "home.new", "home.example", "home.digest"  # action_ids
COVER_END: Final = "cover.end"  # likewise
FIND: Final = "home.find"  # likewise, of the menu that searches quotes: its entries are sealed when they are offered
FILTER, PREVIOUS, NEXT, ALL = "home.filter", "home.previous", "home.next", "home.all"  # likewise: they choose what is shown

ACCOUNT_CHARACTERS_MAX: Final = 60
REASONS_CHARACTERS_MAX: Final = 300
NAME_CHARACTERS_MAX: Final = 40
NOON, EVENING = 12, 18  # hours
COVERS_MAX: Final = 5  # shown
_GREETINGS: Final = (
    (N_("Good morning"), N_("Good morning, {name}")),
    (N_("Good afternoon"), N_("Good afternoon, {name}")),
    (N_("Good evening"), N_("Good evening, {name}")),
)
REFUSED: Final = "refused"  # private_metadata of the tab of a refused person
LABELS: Final = {
    Section.ALL: N_("Everything"),
    Section.NEEDS_YOU: N_("Needs you"),
    Section.WAITING: N_("Waiting on others"),
    Section.READY: N_("Ready to send"),
    Section.EXPIRING: N_("Expiring this week"),
    Section.OPEN: N_("Other open quotes"),
    Section.CLOSED: N_("Recently closed"),
}
FIRST_LINES: Final = N_(
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
        shown = [section(_(FIRST_LINES)), _actions(home), *_covered(home), *_caught_up(home)]
        return {"type": "home", "blocks": [*blocks, *shown]}
    blocks += [context([_counts(home)]), _actions(home), *_covered(home)]
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
    hello, hello_name = _GREETINGS[0 if home.hour < NOON else 1 if home.hour < EVENING else 2]
    first = clipped(messages.one_line(home.name).partition(" ")[0], NAME_CHARACTERS_MAX)
    return _(hello_name, name=first) if first else _(hello)


def _counts(home: Home) -> str:
    needs = home.parts.get(Section.NEEDS_YOU, Part())
    own = sum(part.total for name, part in home.parts.items() if name not in (Section.NEEDS_YOU, Section.CLOSED))
    opened = _("{count} open", count=grouped(own))
    if not needs.total:
        return opened
    asked = ngettext("*{count} needs you*", "*{count} need you*", needs.total, count=_count(needs))
    return f"{asked} · {opened}"


def _count(part: Part) -> str:
    return f"{grouped(part.total)}+" if part.more else grouped(part.total)


def _actions(home: Home) -> Json:
    elements = [button(NEW_QUOTE, _("New quote"), "new", style="primary")]
    if home.is_first and home.section is Section.ALL:
        elements.append(button(EXAMPLE, _("Try an example"), "example"))
    else:
        options = [option(_(label), choice_text(HomeChoice(name))) for name, label in LABELS.items() if _offered(home, name)]
        shown = next(each for each in options if each["value"] == choice_text(HomeChoice(home.section)))
        elements.append({"type": "static_select", "action_id": FILTER, "options": options, "initial_option": shown})
        label = _("Stop the daily digest") if home.digest else _("Get a daily digest")
        elements.append(button(DIGEST, label, digest_text(wanted=not home.digest)))
    if home.holds_role:
        elements.append(button(COVER, _("Set cover…"), "cover"))
    elements.append({"type": "external_select", "action_id": FIND, "min_query_length": 2, "placeholder": plain(_("Find a quote"))})
    return {"type": "actions", "block_id": "home.actions", "elements": elements}


def _covered(home: Home) -> list[Json]:
    """Return who covers for the person, with the button that ends all of it."""
    lines = [covered_by(each, home.drawn_at, home.zone) for each in home.covers[:COVERS_MAX]]
    ending = button(COVER_END, _("End now") if len(lines) == 1 else _("End all"), "end")
    return [{**section("\n".join(lines)), "accessory": ending}] if lines else []


def _offered(home: Home, name: Section) -> bool:
    return home.approves or name is not Section.NEEDS_YOU or home.section is name


def _caught_up(home: Home) -> list[Json]:
    return [_heading(_(LABELS[Section.NEEDS_YOU])), context([_("You're all caught up.")])] if home.approves else []


def _part(home: Home, name: Section, part: Part) -> list[Json]:
    """Return the beginning of one section; an empty one is left out, except the approvals of an approver."""
    if not part.total:
        if name is Section.OPEN and not any(home.parts[each].total for each in home.parts if each is not Section.CLOSED):
            return [context([_("No open quotes yet.")])]
        return _caught_up(home) if name is Section.NEEDS_YOU else []
    blocks = [_heading(_counted(name, part)), *_rows(part)]
    if part.total > len(part.rows):
        everything = button(ALL, _("See all {count}", count=_count(part)), choice_text(HomeChoice(name)))
        blocks.append({"type": "actions", "block_id": f"home.all.{name.value}", "elements": [everything]})
    return blocks


def _page(home: Home, name: Section) -> list[Json]:
    """Return one page of a chosen section, with buttons for the others."""
    part = home.parts.get(name, Part())
    if not part.total:
        return _caught_up(home) if name is Section.NEEDS_YOU else [_heading(_(LABELS[name])), context([_("Nothing here now.")])]
    heading = _counted(name, part)
    if home.pages > 1:
        heading = _("{section}, page {page} of {pages}", section=heading, page=home.page, pages=home.pages)
    turns = [
        *([button(PREVIOUS, _("◀ Previous"), choice_text(HomeChoice(name, home.page - 1)))] if home.page > 1 else []),
        *([button(NEXT, _("Next ▶"), choice_text(HomeChoice(name, home.page + 1)))] if home.page < home.pages else []),
    ]
    pager = [{"type": "actions", "block_id": "home.pages", "elements": turns}] if turns else []
    return [_heading(heading), *_rows(part), *pager]


def _counted(name: Section, part: Part) -> str:
    return f"{_(LABELS[name])} ({_count(part)})"


def _rows(part: Part) -> list[Json]:
    return [block for row in part.rows for block in _row(row)]


def _row(row: Needed | WaitingQuote | Listed) -> list[Json]:
    if isinstance(row, Needed):
        return _needed(row)
    return [_waiting(row)] if isinstance(row, WaitingQuote) else [_listed(row)]


def one_line_of(row: Needed | WaitingQuote | Listed) -> str:
    """Return one row as a line without buttons and figures of a margin."""
    if isinstance(row, Needed):
        due = "" if row.due_at is None else " · " + _("due {time}", time=local_time(row.due_at))
        named = f"*{_account(row.quote)} · {messages.net(row.quote)}* · {title(row.quote)}"
        return f"{named} · {messages.mention(row.approval.requested_by)}{due}"
    if isinstance(row, WaitingQuote):
        asked = " · " + _("waiting for {people}", people=messages.mentions(row.asked)) if row.asked else ""
        return f"{_name(row.listed)}{asked}"
    valid = _("valid until {day}", day=local_day(row.valid_until))
    return f"{_name(row)} · {state_words(row.state)} · {valid}"


def _needed(row: Needed) -> list[Json]:
    quote, approval = row.quote, row.approval
    why = clipped("; ".join(messages.one_line(reason) for reason in approval.reasons), REASONS_CHARACTERS_MAX)
    easier = "".join(f"\n💡 {name}: {clipped(value, REASONS_CHARACTERS_MAX)}" for name, value in row.easier)
    times = [_("asked {time}", time=local_age(approval.requested_at))]
    times += [] if row.escalates_at is None else [_("more people are asked {time}", time=local_time(row.escalates_at))]
    times += [] if row.due_at is None else [_("due {time}", time=local_time(row.due_at))]
    lines = (
        f"*{_account(quote)} · {messages.net(quote)}* · {title(quote)}",
        messages.escape(initial_capital(why)),
        messages.escape(f"{_effect(quote, row.margins)}{easier}"),
        " · ".join((messages.mention(approval.requested_by), *times)),
    )
    return [
        section("\n".join(line for line in lines if line)),
        {"type": "actions", "block_id": f"home.decide.{quote.quote_id}", "elements": [*deciding(quote), _show(quote)]},
        {"type": "divider"},
    ]


def _waiting(row: WaitingQuote) -> Json:
    if row.asked:
        facts = [_("Waiting for {people}", people=messages.mentions(row.asked))]
    else:
        facts = [_("Waiting for an approver, and nobody holds the role now")]
    facts += [] if row.since is None else [_("asked {time}", time=local_age(row.since))]
    facts += [] if row.due_at is None else [_("due {time}", time=local_time(row.due_at))]
    text = f"{_name(row.listed)}\n{' · '.join(facts)}"
    return {**section(text), "accessory": _show(row.listed)}


def _listed(listed: Listed) -> Json:
    valid = "" if listed.state in CLOSED else " · " + _("valid until {day}", day=local_day(listed.valid_until))
    return {**section(f"{_name(listed)} · {state_words(listed.state)}{valid}"), "accessory": _show(listed)}


def _name(listed: Listed) -> str:
    net = money.format_amount(listed.net_total, listed.currency)
    return f"{STATE_ICONS[listed.state]} *{_account(listed)} · {net}* · {title(listed)}"


def _effect(quote: Quote, margins: tuple[str, ...]) -> str:
    """Return the effect of the discount on the price and margin. Only approvers see it: a margin is not for the whole channel."""
    pricing = quote.pricing
    amount = money.format_amount(pricing.discount_total, pricing.currency)
    discount = _("{percent} discount ({amount})", percent=money.format_percent(pricing.discount_off_list_percent), amount=amount)
    return "; ".join((", ".join((discount, *margin_words(pricing))), *margins))


def _show(quote: Quote | Listed) -> Json:
    return button(SHOW, _("Show"), value_text(ButtonValue(quote.quote_id, quote.version, None)))


def _account(quote: Quote | Listed) -> str:
    return messages.short(quote.account, ACCOUNT_CHARACTERS_MAX)


def _heading(text: str) -> Json:
    return {"type": "header", "text": plain(text)}
