"""Payloads of gestures, field by field as Slack sends them.

A payload names the workspace of the person who acts. For a person of another workspace (Slack Connect) that is not the workspace in
which the app is installed: a form names the latter as `view.app_installed_team_id`, an event in its `authorizations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.sandbox.slack.directory import APP_ID, BOT_USER_ID, TEAM_ID, VERIFICATION_TOKEN, Channel, Person
from quotebot.sandbox.slack.views import View

if TYPE_CHECKING:
    from quotebot.sandbox.slack.elements import Found
    from quotebot.sandbox.slack.errors import Json
    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.slack.passes import ResponseUrl
    from quotebot.sandbox.slack.workspace import Workspace


class Payloads:
    """Builds payloads over a workspace; each call issues new triggers and response URLs."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def slash(self, user: str, channel: Channel, command: str, text: str) -> tuple[Json, ResponseUrl]:
        """Return a slash command and its response URL."""
        hook = self._workspace.passes.response_url("commands", user, channel.id, None)
        person = self._workspace.directory.people[user]
        payload = {
            "token": VERIFICATION_TOKEN,
            "team_id": person.team_id,
            "team_domain": person.team_domain,
            **self._organization(person),
            "channel_id": channel.id,
            "channel_name": _channel_name(channel),
            "user_id": user,
            "user_name": person.name,
            "command": command,
            "text": text,
            "api_app_id": APP_ID,
            "is_enterprise_install": "false",
            "response_url": f"{self._workspace.url}{hook.path}",
            "trigger_id": self._workspace.passes.trigger(user),
        }
        return payload, hook

    def message_action(self, user: str, message: Message, action: Json, state: Json) -> Json:
        """Return block_actions for a click on a message. For an ephemeral message Slack sends no content back."""
        channel = self._workspace.place(message.channel)
        container: Json = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": message.channel,
            "is_ephemeral": message.ephemeral_for is not None,
        }
        if message.is_reply:
            container["thread_ts"] = message.thread_ts
        hook = self._workspace.passes.response_url("actions", user, message.channel, message.ts)
        payload = {
            **self._interactive("block_actions", user),
            "container": container,
            "channel": {"id": channel.id, "name": _channel_name(channel)},
            "state": {"values": state},
            "response_url": f"{self._workspace.url}{hook.path}",
            "actions": [action],
        }
        if message.ephemeral_for is None:
            payload["message"] = self._workspace.wire(message)
        return payload

    def view_action(self, user: str, view: View, action: Json) -> Json:
        """Return block_actions for a click in a modal or in App Home."""
        return {
            **self._interactive("block_actions", user),
            "container": {"type": "view", "view_id": view.id},
            "view": self._view(user, view),
            "actions": [action],
        }

    def view_submission(self, user: str, view: View) -> Json:
        """Return view_submission."""
        return {**self._interactive("view_submission", user), "view": self._view(user, view), "response_urls": []}

    def view_closed(self, user: str, view: View, *, is_cleared: bool) -> Json:
        """Return view_closed, which carries no trigger."""
        payload = self._interactive("view_closed", user)
        del payload["trigger_id"]
        return {**payload, "view": self._view(user, view), "is_cleared": is_cleared}

    def shortcut(self, user: str, callback_id: str, message: Message | None) -> Json:
        """Return a global shortcut, or a message shortcut if there is a message."""
        if message is None:
            return {**self._interactive("shortcut", user), "callback_id": callback_id, "action_ts": self._workspace.clock.stamp()}
        channel = self._workspace.place(message.channel)
        hook = self._workspace.passes.response_url("actions", user, message.channel, None)
        return {
            **self._interactive("message_action", user),
            "callback_id": callback_id,
            "action_ts": self._workspace.clock.stamp(),
            "message_ts": message.ts,
            "channel": {"id": channel.id, "name": _channel_name(channel)},
            "message": self._workspace.wire(message),
            "response_url": f"{self._workspace.url}{hook.path}",
        }

    def suggestion(self, user: str, where: View | Message, found: Found, value: str) -> Json:
        """Return block_suggestion: the text typed into a menu, and the menu's place. It contains no trigger."""
        payload = self._interactive("block_suggestion", user)
        del payload["trigger_id"]
        asked = {"action_id": found.action_id, "block_id": found.block_id, "value": value}
        if isinstance(where, View):
            untold = {**self._view(user, where), "state": {"values": {}}}  # Slack does not send the other fields' values
            return {**payload, **asked, "container": {"type": "view", "view_id": where.id}, "view": untold}
        channel = self._workspace.place(where.channel)
        container = {"type": "message", "message_ts": where.ts, "channel_id": channel.id, "is_ephemeral": False}
        place = {"id": channel.id, "name": _channel_name(channel)}
        return {**payload, **asked, "container": container, "channel": place, "message": self._workspace.wire(where)}

    def message_event(self, message: Message, kind: str, *, with_teams: bool = True) -> Json:
        """Return the event `message` or `app_mention` for a posted message.

        In an externally shared channel it names the author's workspace as `user_team` and `source_team`. Without `with_teams` it is
        a payload of the older kind, which names no workspace.
        """
        channel = self._workspace.place(message.channel)
        event = {
            **self._workspace.wire(message),
            "type": kind,
            "channel": message.channel,
            "event_ts": message.ts,
        }
        if kind == "message":
            event["channel_type"] = "im" if channel.is_im else "group" if channel.is_private else "channel"
        author = self._workspace.directory.people.get(message.user)
        if author is not None and (channel.is_ext_shared or author.is_external):
            event |= {"user_team": author.enterprise_id or author.team_id, "source_team": author.team_id}
        if not with_teams:
            for name in ("team", "user_team", "source_team"):
                event.pop(name, None)
        return event

    def link_composed(self, user: str, links: list[Json]) -> Json:
        """Return the event link_shared for the links in a message that a person is writing."""
        draft_id = f"{user}-{self._workspace.tokens.uuid()}"
        about: Json = {"channel": "COMPOSER", "is_bot_user_member": True, "message_ts": draft_id, "unfurl_id": draft_id}
        return {"type": "link_shared", "user": user, **about, **self._linking("composer", links)}

    def link_shared(self, message: Message, links: list[Json]) -> Json:
        """Return the event link_shared for the links in a posted message."""
        members, unfurl_id = self._workspace.place(message.channel).members, self._workspace.tokens.hex(32)
        about: Json = {"channel": message.channel, "is_bot_user_member": BOT_USER_ID in members, "message_ts": message.ts}
        about["unfurl_id"] = f"{message.channel}.{message.ts}.{unfurl_id}"
        about |= {"thread_ts": message.thread_ts} if message.is_reply else {}
        return {"type": "link_shared", "user": message.user, **about, **self._linking("conversations_history", links)}

    def _linking(self, source: str, links: list[Json]) -> Json:
        return {"source": source, "links": links, "event_ts": self._workspace.clock.stamp()}

    def home_opened(self, user: str) -> Json:
        """Return the event app_home_opened for the Home tab."""
        event: Json = {
            "type": "app_home_opened",
            "user": user,
            "channel": self._workspace.directory.open_im(user).id,
            "tab": "home",
            "event_ts": self._workspace.clock.stamp(),
        }
        home = self._workspace.views.homes.get(user)
        return event if home is None else {**event, "view": home.wire()}

    def _interactive(self, kind: str, user: str) -> Json:
        person = self._workspace.directory.people[user]
        organization = self._organization(person)
        enterprise = {"id": organization["enterprise_id"], "name": organization["enterprise_name"]} if organization else None
        return {
            "type": kind,
            "user": {"id": user, "username": person.name, "name": person.name, "team_id": person.team_id},
            "api_app_id": APP_ID,
            "token": VERIFICATION_TOKEN,
            "team": {"id": person.team_id, "domain": person.team_domain, **organization},
            "enterprise": enterprise,
            "is_enterprise_install": False,
            "trigger_id": self._workspace.passes.trigger(user),
        }

    def _organization(self, person: Person) -> Json:
        """Return the organization of the workspace from which a person acts; empty without one."""
        found = self._workspace.directory.enterprise_id if person.team_id == TEAM_ID else person.enterprise_id
        return {} if found is None else {"enterprise_id": found, "enterprise_name": f"Organization {found}"}

    def _view(self, user: str, view: View) -> Json:
        """Return a view as it is sent back. For a person of another workspace it names the workspace of the installation."""
        person = self._workspace.directory.people[user]
        return {**view.wire(), "app_installed_team_id": TEAM_ID} if person.team_id != TEAM_ID else view.wire()


def _channel_name(channel: Channel) -> str:
    return "directmessage" if channel.is_im else "privategroup" if channel.is_private else channel.name
