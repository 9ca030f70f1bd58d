"""Open modals (a stack of at most three per person) and published App Homes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.slack.blocks import check_view, with_ids
from quotebot.sandbox.slack.directory import APP_ID, BOT_ID, TEAM_ID
from quotebot.sandbox.slack.elements import initial_state
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.chance import Changes, Tokens, VirtualClock

STACK_LIMIT = 3


@dataclass(slots=True)
class View:
    """A modal or a Home tab as Slack stores it. `errors` maps block_id (or "" for the whole form) to the visible message."""

    id: str
    user: str
    content: Json
    hash: str
    root_view_id: str
    previous_view_id: str | None = None
    state: dict[str, Json] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def blocks(self) -> list[Json]:
        """Return its blocks."""
        blocks: list[Json] = self.content["blocks"]
        return blocks

    def wire(self) -> Json:
        """Return the view as Slack sends it."""
        given = self.content
        return {
            "id": self.id,
            "team_id": TEAM_ID,
            "type": given["type"],
            "blocks": given["blocks"],
            "private_metadata": given.get("private_metadata", ""),
            "callback_id": given.get("callback_id", ""),
            "state": {"values": self.state},
            "hash": self.hash,
            "title": given.get("title", {"type": "plain_text", "text": "View Title", "emoji": True}),
            "clear_on_close": bool(given.get("clear_on_close", False)),
            "notify_on_close": bool(given.get("notify_on_close", False)),
            "close": given.get("close"),
            "submit": given.get("submit"),
            "previous_view_id": self.previous_view_id,
            "root_view_id": self.root_view_id,
            "app_id": APP_ID,
            "external_id": given.get("external_id", ""),
            "app_installed_team_id": TEAM_ID,
            "bot_id": BOT_ID,
        }


class Views:
    """Opens, pushes, updates, closes and publishes views, with Slack's hash and stack rules."""

    def __init__(self, changes: Changes, clock: VirtualClock, tokens: Tokens) -> None:
        self._changes = changes
        self._clock = clock
        self._tokens = tokens
        self.stacks: dict[str, list[View]] = {}
        self.homes: dict[str, View] = {}

    def _all(self) -> list[View]:
        return [view for stack in self.stacks.values() for view in stack] + list(self.homes.values())

    def open(self, user: str, content: Any) -> View:
        """Open a modal that `check_view` has accepted, in place of the person's open modals. Raises SlackError."""
        checked = self._with_ids(content)
        view = self._view(user, checked, root=None, previous=None)
        self.stacks[user] = [view]
        self._changes.bump()
        return view

    def push(self, user: str, content: Any) -> View:
        """Put a modal on top of the open one. Raises SlackError."""
        checked = self._checked(content, kind="modal")
        stack = self.stacks.get(user, [])
        if not stack:
            raise SlackError("not_found")
        if len(stack) >= STACK_LIMIT:
            raise SlackError("push_limit_reached")
        view = self._view(user, checked, root=stack[0].id, previous=stack[-1].id)
        stack.append(view)
        self._changes.bump()
        return view

    def update(self, view: View, content: Any, *, expected_hash: str | None) -> View:
        """Replace a view's content; values typed into blocks that remain are kept. Raises SlackError."""
        return self._replace(view, self._checked(content, kind=view.content["type"], replacing=view), expected_hash)

    def _replace(self, view: View, checked: Json, expected_hash: str | None) -> View:
        if expected_hash and expected_hash != view.hash:
            raise SlackError("hash_conflict")
        view.content = checked
        view.hash = self._hash()
        fresh = initial_state(checked["blocks"])
        for block_id, actions in fresh.items():
            for action_id in actions:
                typed = view.state.get(block_id, {}).get(action_id)
                if typed is not None and typed.get("type") == actions[action_id]["type"]:
                    actions[action_id] = typed
        view.state = fresh
        view.errors = {}
        self._changes.bump()
        return view

    def publish(self, user: str, content: Any, *, expected_hash: str | None) -> View:
        """Set a person's App Home. Raises SlackError."""
        home = self.homes.get(user)
        checked = self._checked(content, kind="home", replacing=home)
        if home is not None:
            return self._replace(home, checked, expected_hash)
        view = self._view(user, checked, root=None, previous=None)
        self.homes[user] = view
        self._changes.bump()
        return view

    def by_reference(self, view_id: str | None, external_id: str | None) -> View:
        """Find the view of an update. Raises SlackError not_found."""
        for view in self._all():
            if (view_id and view.id == view_id) or (external_id and view.content.get("external_id") == external_id):
                return view
        raise SlackError("not_found")

    def close(self, view: View) -> None:
        """Close one modal (the one below shows again)."""
        stack = self.stacks.get(view.user, [])
        if view in stack:
            stack.remove(view)
        self._drop_empty(view.user)

    def clear(self, user: str) -> None:
        """Close every modal of a person."""
        self.stacks[user] = []
        self._drop_empty(user)

    def refuse(self, view: View, errors: dict[str, str]) -> None:
        """Show errors in a form (keyed by block_id, "" for the whole form); an empty mapping clears them."""
        if view.errors != errors:
            view.errors = dict(errors)
            self._changes.bump()

    def _drop_empty(self, user: str) -> None:
        if not self.stacks.get(user):
            self.stacks.pop(user, None)
        self._changes.bump()

    def _checked(self, content: Any, *, kind: str, replacing: View | None = None) -> Json:
        check_view(content, kind=kind)
        return self._with_ids(content, replacing=replacing)

    def _with_ids(self, content: Json, *, replacing: View | None = None) -> Json:
        external_id = content.get("external_id")
        if external_id and any(view.content.get("external_id") == external_id for view in self._all() if view is not replacing):
            raise SlackError("duplicate_external_id")
        return {**content, "blocks": with_ids(content["blocks"], self._tokens)}

    def _view(self, user: str, content: Json, *, root: str | None, previous: str | None) -> View:
        view_id = self._tokens.object_id("V")
        return View(
            id=view_id,
            user=user,
            content=content,
            hash=self._hash(),
            root_view_id=root or view_id,
            previous_view_id=previous,
            state=initial_state(content["blocks"]),
        )

    def _hash(self) -> str:
        return f"{self._clock.microseconds() // 1_000_000}.{self._tokens.short_id()}{self._tokens.short_id()}"
