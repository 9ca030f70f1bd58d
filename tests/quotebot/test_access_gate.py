"""Tests that no query and no command bypasses the access gate."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest

from quotebot.commands.registry import REGISTRY
from quotebot.handlers.decision import GUEST_COMMANDS
from quotebot.slack.listeners import register
from tests.quotebot.test_access_matrix import ROWS, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from quotebot.slack import verbs

MEMBERS_ONLY: Final = {
    *("approval.decide", "approval.delegate", "approval.escalate", "approval.expire", "approval.reassign"),
    *(
        "letter.announce",
        "letter.retry",
        "letter.discard",
        "letter.resubmit",
        "letter.replay_all",
        "ops.card",
        "crm.sync",
        "crm.reconcile",
    ),
    *("quote.expire", "quote.note_stale", "digest.send", "link.preview"),
}
# The listeners that the matrix drives. A new one is added here and to the matrix.
DRIVEN: Final = {
    *("app_home_opened", "message", "app_mention", "", "quote.from_message"),
    *("quote.create_another", "quote.show", "^list\\.", "quote.fill_in", "quote.more", "quote.apply_change"),
    *(
        "help.show",
        "help.commands",
        "quote.use_correction",
        "quote.edit_first",
        "quote.clone",
        "member_joined_channel",
        "link_shared",
    ),
    *("cover.set", "cover.end", "cover.form"),
    *("home.new", "home.find", "home.example", "home.digest", "^home\\.(filter|previous|next|all)$"),
    *("^crm\\.", "crm.reconcile"),
    *("^letter\\.", "letter.discard", "letter.resubmit", "^owed\\.", "^command\\.", "^(quote|approval)\\.", "^quote\\."),
    *(
        "^product\\.",
        r"^(?:row\.|product\.|form\.|(?:account|term|months|discount|currency|segment|billing|tax|special|deal\.payment_days)$)",
    ),
    *("quote.account_found", "^quote\\.opportunity\\.", "quote.contact_found"),
    *("approval.reject", "approval.request_changes", "approval.approve"),
}


class Recorder:
    """Replacement of Bolt that records the registered listeners."""

    def __init__(self) -> None:
        self.patterns: set[str] = set()

    def __getattr__(self, kind: str) -> Callable[[Any], Callable[[Any], None]]:
        def registered(pattern: Any) -> Callable[[Any], None]:
            self.patterns.add(pattern.pattern if isinstance(pattern, re.Pattern) else str(pattern))
            return lambda _: None

        return registered


def test_every_listener_is_in_the_matrix() -> None:
    app: Any = Recorder()
    surface: Any = type("Surface", (), {"__getattr__": lambda *_: None})()
    register(app, surface)
    assert app.patterns == DRIVEN


def test_every_verb_has_a_row_on_the_page() -> None:
    rows = table()
    assert {verb for verb in verbs.VERBS.values() if ROWS.get(verb, f"`/quote {verb}`") not in rows} == set()


def test_every_command_is_for_guests_or_for_members_only() -> None:
    for_guests = {each.kind for each in get_args(GUEST_COMMANDS)}
    assert for_guests | MEMBERS_ONLY == set(REGISTRY)
    assert for_guests & MEMBERS_ONLY == set()


def test_only_the_gate_makes_a_viewer(checkout: Path) -> None:
    makers = {
        module.relative_to(checkout).as_posix()
        for module in (checkout / "quotebot").rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Viewer"
    }
    assert makers == {"quotebot/domain/access.py"}


@pytest.mark.parametrize("read", ["load", "load_version", "of_thread", "list_quotes"])
def test_every_read_of_a_quote_on_the_surface_takes_a_viewer(checkout: Path, read: str) -> None:
    without = [
        f"{module.name}:{function.name}"
        for package in ("slack", "views")
        for module in (checkout / "quotebot" / package).glob("*.py")
        for function in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(isinstance(call, ast.Call) and _name(call.func) == read for call in ast.walk(function))
        and not any(isinstance(name, ast.Name) and name.id == "viewer" for name in ast.walk(function))
    ]
    assert without == []


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
