"""The app's manifest as Slack uses it: its command, its shortcuts, and its scopes.

tests/test_manifest.py compares this with manifest.yml, which is not part of the installed package.
"""

from __future__ import annotations

from typing import Any

COMMAND: dict[str, str] = {
    "command": "/quote",
    "description": "Create, show and move a quote",
    "usage_hint": "new for Acme: 150 pro, 1 support; term 12m; discount 15%  |  list  |  revise Q-2026-0001: 200 pro  |  help",
}
# Each {"name", "type" (message or global), "callback_id", "description"}.
SHORTCUTS: tuple[dict[str, str], ...] = (
    {
        "name": "Create a quote",
        "type": "message",
        "callback_id": "quote.from_message",
        "description": "Open the form of a new quote with what this message says",
    },
)
# The composer's completions after the command: the verb, its arguments, its purpose. Slack itself shows the usage hint only.
VERBS: tuple[tuple[str, str, str], ...] = (
    ("new", "for Acme: 150 pro, 1 support; term 12m; discount 15%", "Create and price a quote; alone it opens a form"),
    ("list", "[mine|all] [open|sent|...] [customer]", "Quotes, newest first"),
    ("status", "Q-2026-0001", "A quote and what it waits for"),
    ("submit", "Q-2026-0001", "Ask for approval"),
    ("revise", "Q-2026-0001: 200 pro", "A new version of a quote"),
    ("add-line", "Q-2026-0001: 10 sso", "A new version with more in it"),
    ("discount", "Q-2026-0001: 12%", "A new version with another discount"),
    ("simulate", "Q-2026-0001: discount 20%", "What that would come to, without doing it"),
    ("explain", "Q-2026-0001 [line 2]", "How a price comes about"),
    ("compare", "Q-2026-0001 v1 v2", "What two versions differ in"),
    ("clone", "Q-2026-0001 [for Globex]", "A new quote with the same content"),
    ("finalize", "Q-2026-0001", "Freeze an approved quote"),
    ("sent", "Q-2026-0001 to buyer@example.com", "Record to whom it was sent"),
    ("accept", "Q-2026-0001", "The customer said yes"),
    ("lost", "Q-2026-0001: too expensive", "The customer said no, and why"),
    ("cancel", "Q-2026-0001", "It is not wanted any more"),
    ("delegate", "@colleague until 2026-12-24", "Somebody approves instead of you"),
    ("digest", "on", "Your work queue as a message each working morning"),
    ("audit", "Q-2026-0001", "Who did what to a quote"),
    ("ops", "", "What waits for operators"),
    ("products", "[part of a name]", "Products on sale and their list prices"),
    ("report", "discounts by product", "Numbers for the deal desk"),
    ("help", "", "What can be typed"),
)
MESSAGES_TAB = True  # whether people can write to the app next to its Home tab
SCOPES = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "files:read",
        "files:write",
        "groups:history",
        "groups:read",
        "im:history",
        "im:write",
        "links:read",
        "links:write",
        "users:read",
        "users:read.email",
    }
)


def listing() -> dict[str, Any]:
    """Return the app's entries for the page: commands, completions, message shortcuts, and if it has a Messages tab."""
    verbs = [{"text": f"{COMMAND['command']} {verb}", "hint": hint, "about": about} for verb, hint, about in VERBS]
    return {"commands": [COMMAND], "verbs": verbs, "shortcuts": list(SHORTCUTS), "messages_tab": MESSAGES_TAB}
