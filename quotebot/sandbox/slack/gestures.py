"""Gestures of people: typing a command, a click, a form, a message. Each becomes a delivery; its ack changes what they see.

The options of some menus (external_select) come from the app while a person types: Slack requests them with block_suggestion.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from quotebot.sandbox.slack.api_content import checked_content, domain_of
from quotebot.sandbox.slack.directory import BOT_USER_ID, PARTNER_TEAM_ID, Channel
from quotebot.sandbox.slack.elements import REQUIRED, STATELESS, Found, action_of, find_all, initial_state, refusals, state_object
from quotebot.sandbox.slack.errors import GestureError, Json, SlackError
from quotebot.sandbox.slack.payloads import Payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from quotebot.sandbox.slack.courier import Ack, Courier, Delivery, Kind
    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.slack.passes import ResponseUrl
    from quotebot.sandbox.slack.views import View
    from quotebot.sandbox.slack.workspace import Workspace

NO_ANSWER = "We had some trouble connecting. Try again?"
OPTIONS_MAX = 100
OPTION_TEXT_MAX = 75
OPTION_VALUE_MAX = 150
QUERY_LENGTH_MIN = 3  # Slack's minimum unless the element sets another
_LOOKED_UP = frozenset({"external_select", "multi_external_select"})
_TYPED_MENTION = re.compile(r"(?<![\w<])@quotebot\b", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s<>|]+")
_TYPED_NAME = re.compile(r"(?<![\w<])([@#])([\w-]+)")


class Gestures:
    """All gestures of people in the workspace. Raises GestureError for an impossible one."""

    def __init__(self, workspace: Workspace, courier: Courier, *, echo_own_messages: bool) -> None:
        self._workspace = workspace
        self._courier = courier
        self._payloads = Payloads(workspace)
        self._echo_own_messages = echo_own_messages
        workspace.on_post = self._posted

    async def slash(self, user: str, channel_reference: str, command: str, text: str) -> Json:
        """Type a slash command."""
        workspace = self._workspace
        workspace.person(user)
        channel = self._open(user, channel_reference)
        if not command.startswith("/"):
            raise GestureError(400, f"command must start with '/', not {command!r}")
        payload, hook = self._payloads.slash(user, channel, command, self._escaped(text))

        on_ack = partial(self._slash_acked, user=user, channel=channel, hook=hook, command=command, text=text)
        return await self._send(payload, on_ack, kind="slash_commands", accepts_response=True)

    async def click_message(
        self,
        user: str,
        channel_reference: str,
        ts: str,
        action_id: str,
        *,
        block_id: str | None,
        value: Any,
        values: dict[str, Json],
        stale: bool,
    ) -> Json:
        """Click or choose an element of a message; with `stale` also one that an update has removed since."""
        self._workspace.person(user)
        message = self._message(user, channel_reference, ts)
        earlier = [block for blocks in reversed(message.revisions) for block in blocks] if stale else []
        where = f"message {message.ts}{' (earlier versions included)' * stale}"
        found = _pick(find_all([*message.blocks, *earlier]), action_id, block_id, value, where)
        state = initial_state(message.blocks)
        action = self._chosen(found, value, find_all(message.blocks), values, state)
        payload = self._payloads.message_action(user, message, action, state)
        return await self._send(payload, partial(self._click_acked, message=message))

    async def click_view(
        self, user: str, view_id: str, action_id: str, *, block_id: str | None, value: Any, values: dict[str, Json]
    ) -> Json:
        """Click or choose an element of a modal or of App Home."""
        view = self._view(user, view_id)
        found = _pick(find_all(view.blocks), action_id, block_id, value, f"view {view_id}")
        action = self._chosen(found, value, find_all(view.blocks), values, view.state)
        payload = self._payloads.view_action(user, view, action)
        return await self._send(payload, partial(self._view_click_acked, view=view, block_id=found.block_id))

    async def submit(self, user: str, view_id: str, values: dict[str, Json]) -> Json:
        """Submit a modal. An empty, too long or non-numeric field is refused by the client, and the bot receives nothing."""
        view = self._view(user, view_id)
        if view.content["type"] != "modal":
            raise GestureError(400, f"view {view_id} is an App Home; only a modal can be submitted")
        inputs = find_all(view.blocks)
        _fill(view.state, inputs, values)
        refused = refusals(inputs, view.state)
        self._workspace.views.refuse(view, refused)
        if refused:
            code = "required_fields_missing" if REQUIRED in refused.values() else "invalid_fields"
            return {"request_id": None, "ack": None, "ack_ms": None, "error": code, "errors": refused}
        payload = self._payloads.view_submission(user, view)
        return await self._send(payload, partial(self._submission_acked, view=view), accepts_response=True)

    async def close_view(self, user: str, view_id: str) -> Json:
        """Close a modal with its cross; the bot is notified if the view requested that."""
        view = self._view(user, view_id)
        payload = self._payloads.view_closed(user, view, is_cleared=False)
        self._workspace.views.close(view)
        if not view.content.get("notify_on_close"):
            return {"request_id": None, "ack": None, "ack_ms": None}
        return await self._send(payload, lambda ack: ack.error)

    async def suggest(self, user: str, place: Json, action_id: str, value: str) -> Json:
        """Return the content of the menu after `value` was typed; `place` names a view_id, or a channel and message_ts.

        Slack's client does this at every pause in the typing. Fewer characters than the menu's minimum are not sent. An answer that
        Slack cannot show counts as none: no options, an error.
        """
        where, found = self._element_at(user, place, action_id)
        if found.element["type"] not in _LOOKED_UP:
            raise GestureError(400, f"{action_id!r} is a {found.element['type']}: its options are its own")
        if len(value) < found.element.get("min_query_length", QUERY_LENGTH_MIN):
            return {"request_id": None, "ack": None, "ack_ms": None, "options": []}
        payload = self._payloads.suggestion(user, where, found, value)
        delivery, ack = await self._courier.send("interactive", payload, accepts_response=True, on_ack=_trouble)
        options = _options(ack.payload) if ack.error is None and ack.payload is not None else []
        return {"request_id": delivery.request_id, **ack.body(), "options": options}

    def _element_at(self, user: str, place: Json, action_id: str) -> tuple[View | Message, Found]:
        """Return the view or message in front of a person, and an element of it."""
        view_id, ts = place.get("view_id"), place.get("message_ts")
        if view_id is not None:
            view = self._view(user, str(view_id))
            return view, _pick(find_all(view.blocks), action_id, None, None, f"view {view_id}")
        if ts is None or place.get("channel") is None:
            raise GestureError(400, "field 'view_id', or 'channel' and 'message_ts', is missing: where the menu is")
        message = self._message(user, str(place["channel"]), str(ts))
        return message, _pick(find_all(message.blocks), action_id, None, None, f"message {ts}")

    async def shortcut(self, user: str, callback_id: str, channel_reference: str | None, ts: str | None) -> Json:
        """Use a global shortcut, or a message shortcut on the message given."""
        self._workspace.person(user)
        message = self._message(user, channel_reference, ts) if channel_reference and ts else None
        payload = self._payloads.shortcut(user, callback_id, message)
        return await self._send(payload, lambda ack: ack.error)

    async def write(self, user: str, channel_reference: str, text: str, thread_ts: str | None, *, with_teams: bool = True) -> Json:
        """Post a message; the bot gets the events it subscribed to. Returns after the first attempt of each.

        Without `with_teams` the events are of the older kind, which does not name the author's workspace.
        """
        workspace = self._workspace
        workspace.person(user)
        channel = self._open(user, channel_reference)
        if thread_ts is not None:
            try:
                thread_ts = workspace.root_of(channel, thread_ts)
            except SlackError as error:
                raise GestureError(404, f"no thread {thread_ts!r} in {channel.id} ({error.code})") from None
        typed = _TYPED_MENTION.sub(f"<@{BOT_USER_ID}>", text)
        links = self._links(typed)
        if links:
            await self._raise_event(self._payloads.link_composed(user, links), channel)
        message = workspace.post_as_user(channel, user, typed, thread_ts, workspace.tokens.object_id(""))
        events_of = {
            kind: self._payloads.message_event(message, kind, with_teams=with_teams)
            for kind in ("app_mention", "message")
            if self._subscribed(kind, channel, message)
        }
        if links:
            events_of["link_shared"] = self._payloads.link_shared(message, links)
        kinds = sorted(events_of)
        told = [events_of[kind] for kind in kinds]
        sent = await asyncio.gather(*(self._raise_event(event, channel) for event in told))
        events = [
            {"type": kind, "request_id": delivery.request_id, **ack.body()}
            for kind, (delivery, ack) in zip(kinds, sent, strict=True)
        ]
        first: Json = events[0] if events else {"request_id": None, "ack": None, "ack_ms": None}
        return {
            "channel": channel.id,
            "ts": message.ts,
            "events": events,
            **{key: value for key, value in first.items() if key != "type"},
        }

    def _links(self, text: str) -> list[Json]:
        """Return the addresses in a text whose domain the app has registered, if it is told about them."""
        domains = self._workspace.unfurl_domains if "link_shared" in self._workspace.subscriptions else frozenset[str]()
        found = {address: domain_of(address, domains) for address in _ADDRESS.findall(text)} if domains else {}
        return [{"domain": domain, "url": address} for address, domain in found.items() if domain is not None]

    def change_channel(
        self,
        reference: str,
        *,
        archived: bool | None,
        restricted: bool | None,
        with_bot: bool | None,
        private: bool | None = None,
        shared: bool | None = None,
        pending: bool | None = None,
        members: list[str] | None = None,
    ) -> Json:
        """Change the given properties of a channel: None leaves one unchanged.

        `shared` connects it with the partner's workspace (Slack Connect), `pending` invites that workspace; `members` are its
        people.
        """
        channel = self._workspace.place(reference)
        if channel.is_im:
            raise GestureError(400, f"{channel.id} is a direct message: nobody archives or leaves one")
        if members is not None:
            bot = (BOT_USER_ID,) if BOT_USER_ID in channel.members else ()
            people = dict.fromkeys(map(self._workspace.person, members))
            channel = replace(channel, members=(*(member for member in people if member != BOT_USER_ID), *bot))
        if shared is not None:
            channel = replace(channel, connected_teams=(PARTNER_TEAM_ID,) if shared else ())
        if pending is not None:
            channel = replace(channel, pending_teams=(PARTNER_TEAM_ID,) if pending else ())
        others = tuple(member for member in channel.members if member != BOT_USER_ID)
        changed = replace(
            channel,
            is_archived=channel.is_archived if archived is None else archived,
            is_restricted=channel.is_restricted if restricted is None else restricted,
            is_private=channel.is_private if private is None else private,
            members=channel.members if with_bot is None else (*others, BOT_USER_ID) if with_bot else others,
        )
        self._workspace.directory.channels[channel.id] = changed
        self._workspace.changes.bump()
        return asdict(changed)

    async def open_home(self, user: str) -> Json:
        """Open the bot's App Home."""
        self._workspace.person(user)
        if "app_home_opened" not in self._workspace.subscriptions:
            return {"request_id": None, "ack": None, "ack_ms": None}
        delivery, ack = await self._raise_event(self._payloads.home_opened(user), None)
        return {"request_id": delivery.request_id, **ack.body()}

    def _posted(self, message: Message) -> None:
        """Send the bot its own messages too, as Slack does; it must ignore them."""
        if message.user != BOT_USER_ID or not self._echo_own_messages:
            return
        channel = self._workspace.place(message.channel)
        if self._subscribed("message", channel, message):
            self._courier.spawn(self._raise_event(self._payloads.message_event(message, "message"), channel))

    async def _send(
        self,
        payload: Json,
        on_ack: Callable[[Ack], str | None],
        *,
        kind: Kind = "interactive",
        accepts_response: bool = False,
    ) -> Json:
        delivery, ack = await self._courier.send(kind, payload, accepts_response=accepts_response, on_ack=on_ack)
        return {"request_id": delivery.request_id, **ack.body()}

    async def _raise_event(self, event: Json, channel: Channel | None) -> tuple[Delivery, Ack]:
        ext_shared = channel is not None and channel.is_ext_shared
        return await self._courier.raise_event(event, ext_shared=ext_shared, enterprise_id=self._workspace.directory.enterprise_id)

    def _subscribed(self, kind: str, channel: Channel, message: Message) -> bool:
        subscriptions = self._workspace.subscriptions
        if BOT_USER_ID not in channel.members:
            return False
        if kind == "app_mention":
            return not channel.is_im and f"<@{BOT_USER_ID}>" in message.text and kind in subscriptions
        if channel.is_private:
            return "message.groups" in subscriptions
        return ("message.im" if channel.is_im else "message.channels") in subscriptions

    def _slash_acked(self, ack: Ack, user: str, channel: Channel, hook: ResponseUrl, command: str, text: str) -> str | None:
        """Show the result of a slash command: the bot's answer, or Slack's notice that there is none."""
        workspace = self._workspace
        if ack.payload is None:
            workspace.tell(channel, user, f'{command} failed with the error "{ack.error}"')
            return ack.error
        if not any(ack.payload.get(name) for name in ("text", "blocks", "attachments")):
            return None
        try:
            answer, blocks = checked_content(ack.payload, workspace.tokens)
        except SlackError as error:
            workspace.tell(channel, user, f'{command} failed with the error "invalid_command_response"')
            return f"invalid_command_response: {error}"
        in_channel = ack.payload.get("response_type") == "in_channel"
        if in_channel:
            workspace.post_as_user(channel, user, f"{command} {text}".rstrip(), None, None)
        message = workspace.post_as_bot(channel, text=answer, blocks=blocks, ephemeral_for=None if in_channel else user)
        hook.message_ts = message.ts
        return None

    def _click_acked(self, ack: Ack, message: Message) -> str | None:
        self._workspace.messages.mark(message, ack.error)
        return ack.error

    def _view_click_acked(self, ack: Ack, view: View, block_id: str) -> str | None:
        self._workspace.views.refuse(view, {block_id: NO_ANSWER} if ack.error else {})
        return ack.error

    def _submission_acked(self, ack: Ack, view: View) -> str | None:
        """Apply the bot's answer to a form: close, show errors, update, push or clear."""
        if ack.payload is None:
            self._workspace.views.refuse(view, {"": NO_ANSWER})
            return ack.error
        try:
            self._respond(view, ack.payload)
        except SlackError as error:
            self._workspace.views.refuse(view, {"": NO_ANSWER})
            return str(error)
        return None

    def _respond(self, view: View, answer: Json) -> None:
        views = self._workspace.views
        action = answer.get("response_action")
        if action == "errors":
            views.refuse(view, _known_errors(view, answer.get("errors")))
        elif action == "update":
            views.update(view, answer.get("view"), expected_hash=None)
        elif action == "push":
            views.push(view.user, answer.get("view"))
        elif action == "clear":
            views.clear(view.user)
        elif action is None:
            views.close(view)
        else:
            raise SlackError("invalid_response_action", messages=[f"unknown response_action {action!r}"])

    def _escaped(self, text: str) -> str:
        """Replace @name and #channel by ids, as Slack does for a command with should_escape."""
        directory = self._workspace.directory
        people = {person.name: person.id for person in directory.people.values()}
        channels = {channel.name: channel.id for channel in directory.channels.values() if not channel.is_im}

        def escape(found: re.Match[str]) -> str:
            sign, name = found[1], found[2]
            known = (people if sign == "@" else channels).get(name.lower())
            if known is not None:
                return f"<{sign}{known}|{name.lower()}>"
            return f"<!{name}>" if sign == "@" and name in ("here", "channel", "everyone") else found[0]

        return _TYPED_NAME.sub(escape, text)

    def _open(self, user: str, reference: str) -> Channel:
        channel = self._joined(user, reference)
        if channel.is_archived:
            raise GestureError(403, f"{channel.id} (#{channel.name}) is archived: nobody writes there any more")
        return channel

    def _joined(self, user: str, reference: str) -> Channel:
        channel = self._workspace.place(reference)
        if user not in channel.members:
            raise GestureError(403, f"{user} is not in {channel.id} (#{channel.name})")
        return channel

    def _message(self, user: str, channel_reference: str, ts: str) -> Message:
        channel = self._joined(user, channel_reference)
        message = self._workspace.messages.get(channel.id, ts)
        if message is not None and message.ephemeral_for in (None, user):
            return message
        clickable = [m.ts for m in self._workspace.messages.all() if m.channel == channel.id and find_all(m.blocks)]
        raise GestureError(404, f"no message {ts!r} in {channel.id}; with buttons there are: {', '.join(clickable) or 'none'}")

    def _chosen(self, found: Found, value: Any, fields: list[Found], values: dict[str, Json], state: dict[str, Json]) -> Json:
        """Enter `values` and the choice into the state of a form, and return the action of the choice."""
        _fill(state, fields, values)
        action = action_of(found, value, self._workspace.clock.stamp())
        if found.element["type"] not in STATELESS:
            state.setdefault(found.block_id, {})[found.action_id] = state_object(found.element, value)
        return action

    def _view(self, user: str, view_id: str) -> View:
        self._workspace.person(user)
        views = self._workspace.views
        mine = [*views.stacks.get(user, []), *([views.homes[user]] if user in views.homes else [])]
        for view in mine:
            if view.id == view_id:
                return view
        there = ", ".join(f"{view.id} ({view.content['type']})" for view in mine) or "none"
        raise GestureError(404, f"{user} has no view {view_id!r} open; open are: {there}")


def _pick(found: list[Found], action_id: str, block_id: str | None, value: Any, where: str) -> Found:
    """Choose the element: by action_id, by block_id if given, among equal ones by the button's value."""
    candidates = [each for each in found if each.action_id == action_id and block_id in (None, each.block_id)]
    if not candidates:
        known = ", ".join(f"{each.action_id} (block {each.block_id})" for each in found) or "none"
        raise GestureError(404, f"no action {action_id!r} on {where}; there are: {known}")
    return next((each for each in candidates if value is not None and each.element.get("value") == value), candidates[0])


def _fill(state: dict[str, Json], found: list[Found], values: dict[str, Json]) -> None:
    """Enter `values` ({block_id: {action_id: value}}) into a form's state. Raises GestureError 404 for an unknown field."""
    fields = {(each.block_id, each.action_id): each for each in found if each.element["type"] not in STATELESS}
    for block_id, actions in values.items():
        if not isinstance(actions, dict):
            raise GestureError(400, f"values[{block_id!r}] must be an object of action_id: value")
        for action_id, value in actions.items():
            field = fields.get((block_id, action_id))
            if field is None:
                known = ", ".join(f"{block}/{action}" for block, action in fields) or "none"
                raise GestureError(404, f"no field {block_id}/{action_id}; there are: {known}")
            state.setdefault(block_id, {})[action_id] = state_object(field.element, value)


def _known_errors(view: View, errors: Any) -> dict[str, str]:
    """Return the bot's errors. Raises SlackError if they name no block of the view, which Slack refuses as a whole."""
    known = {str(block["block_id"]) for block in view.blocks}
    if not isinstance(errors, dict) or not errors:
        raise SlackError("invalid_errors", messages=["errors must be an object of block_id: message"])
    unknown = [block_id for block_id in errors if block_id not in known]
    if unknown:
        raise SlackError("invalid_errors", messages=[f"no block {', '.join(map(repr, unknown))} in the view"])
    return {str(block_id): str(message) for block_id, message in errors.items()}


def _trouble(ack: Ack) -> str | None:
    """Return the error of an answer, or None."""
    if ack.payload is None:
        return ack.error
    options = _options(ack.payload)
    if not {"options", "option_groups"} & ack.payload.keys():
        return "invalid_response: neither options nor option_groups"
    if len(options) > OPTIONS_MAX:
        return f"invalid_response: more than {OPTIONS_MAX} options"
    return next((words for option in options if (words := _wrong(option)) is not None), None)


def _options(answer: Json) -> list[Any]:
    groups = answer.get("option_groups")
    grouped = [group.get("options") for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    return [option for part in (answer.get("options"), *grouped) if isinstance(part, list) for option in part]


def _wrong(option: Any) -> str | None:
    if not isinstance(option, dict) or not isinstance(option.get("value"), str) or not isinstance(option.get("text"), dict):
        return "invalid_response: an option is a text object and a value"
    text = option["text"]
    if text.get("type") != "plain_text" or not 1 <= len(str(text.get("text", ""))) <= OPTION_TEXT_MAX:
        return f"invalid_response: an option's text is plain and has 1 to {OPTION_TEXT_MAX} characters"
    return (
        f"invalid_response: a value of more than {OPTION_VALUE_MAX} characters" if len(option["value"]) > OPTION_VALUE_MAX else None
    )
