"""Daily digest: one direct message with a work queue, and the replies about turning it on or off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.commands.queries import Section
from quotebot.domain.language import N_, _, grouped
from quotebot.views import home as home_tab
from quotebot.views import messages
from quotebot.views.blocks import Json, context, section
from quotebot.views.card import Card

if TYPE_CHECKING:
    from quotebot.views.work_queue import Home, Part

SECTIONS: Final = (Section.NEEDS_YOU, Section.WAITING, Section.READY, Section.EXPIRING)
HEADING_CHARACTERS_MAX: Final = 2_900
# Results of a command of the scheduler. They are stored with it, never posted.
SENT: Final = N_("The digest follows.")
NOT_SENT: Final = N_("No digest was due, or nothing waits.")

_COUNTED: Final = {
    Section.NEEDS_YOU: N_("{n} needs you"),
    Section.WAITING: N_("{n} waiting on others"),
    Section.READY: N_("{n} ready to send"),
    Section.EXPIRING: N_("{n} expiring this week"),
}


def turned(*, wanted: bool) -> str:
    """Reply to a person who turned their digest on or off."""
    if wanted:
        return _("You get a digest at 9:00 each working morning when something waits for you. `/quote digest off` stops it.")
    return _("You get no digest any more. `/quote digest on` starts it again.")


def waits(home: Home) -> bool:
    """Return whether anything in a person's work queue is for the digest."""
    return any(home.parts[name].total for name in SECTIONS if name in home.parts)


def digest_card(home: Home) -> Card:
    """Return the message. It has no buttons: decisions are made on the Home tab and on each request's own message."""
    parts = [(name, home.parts[name]) for name in SECTIONS if name in home.parts and home.parts[name].total]
    counts = ", ".join(_(_COUNTED[name], n=grouped(part.total)) for name, part in parts)
    greeting = messages.escape(home_tab.greeting(home))
    blocks = [
        section(f"*{greeting}*"),
        *(_part(name, part) for name, part in parts),
        context([_("The Home tab shows everything. `/quote digest off` stops this message.")]),
    ]
    return Card(f"{greeting}: {counts}", blocks)


def _part(name: Section, part: Part) -> Json:
    lines = [f"*{_(home_tab.LABELS[name])} ({part.total})*"]
    for row in part.rows:
        line = f"• {home_tab.one_line_of(row)}"
        if sum(map(len, lines)) + len(lines) + len(line) > HEADING_CHARACTERS_MAX:
            break
        lines.append(line)
    return section("\n".join(lines))
