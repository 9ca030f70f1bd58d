"""What Slack knows of the app from its manifest: the command it offers, its shortcuts, and what it may do.

tests/test_manifest.py holds this to manifest.yml, which is no part of the installed package.
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
SCOPES = frozenset(
    {"app_mentions:read", "channels:history", "chat:write", "commands", "files:read", "files:write", "groups:history", "users:read"}
)


def listing() -> dict[str, Any]:
    """Return what the page offers for completion and in a message's menu."""
    return {"commands": [COMMAND], "shortcuts": list(SHORTCUTS)}
