"""HTTP endpoints for a bot: /api/<method>, uploads, private files and response URLs, with Slack's limits on an app's calls.

The limits are the scopes that each method requires, and rates: tiers per method and a pace per channel, each a bucket that a
minute's worth of calls may empty at once. Slack documents only a minimum ("50+ per minute") and tolerates bursts of an undocumented
size: the model uses the documented figure as the refill and one minute of it as the burst.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from quotebot.sandbox.faults import ArmedFaults, Fault, Outages, Served
from quotebot.sandbox.serving import serving
from quotebot.sandbox.slack import api_content, api_directory
from quotebot.sandbox.slack.arguments import Arguments, read_arguments
from quotebot.sandbox.slack.directory import APP_ID, APP_TOKEN, BOT_TOKEN
from quotebot.sandbox.slack.errors import Json, SlackError
from quotebot.sandbox.slack.workspace import Workspace
from quotebot.sandbox.wire import Answer, Received, json_answer, multipart, text_answer

if TYPE_CHECKING:
    from collections.abc import Collection

    from quotebot.sandbox.request_log import Witness
    from quotebot.sandbox.slack.directory import Directory

MINUTE_SECONDS: Final = 60.0
POSTS_AT_ONCE: Final = 15  # into one channel, which then accepts one per second
CONNECTIONS_AT_ONCE: Final = 20  # despite tier 1's one per minute: a bot that has lost its connections must be able to reconnect
POSTS_PER_MINUTE: Final = 300  # into the whole workspace: "several hundred"
PER_MINUTE: Final[dict[str, int]] = {
    "apps.connections.open": 1,
    "chat.postMessage": POSTS_PER_MINUTE,
    **dict.fromkeys(("usergroups.list", "usergroups.users.list", "users.list", "conversations.list", "reactions.remove"), 20),
    **dict.fromkeys(
        (
            *("chat.update", "chat.unfurl", "chat.delete", "conversations.history", "conversations.replies", "conversations.info"),
            *("conversations.open", "files.delete", "reactions.add", "team.info", "users.lookupByEmail", "bots.info"),
        ),
        50,
    ),
    **dict.fromkeys(
        (
            *("chat.postEphemeral", "conversations.members", "files.getUploadURLExternal", "files.completeUploadExternal"),
            *("files.info", "users.info", "views.open", "views.push", "views.update", "views.publish"),
        ),
        100,
    ),
}
_AT_ONCE: Final = {"apps.connections.open": CONNECTIONS_AT_ONCE}  # methods whose burst is not a minute's worth
# method -> scopes of which one is needed; methods that are not listed need none
ANY_OF: Final[dict[str, tuple[str, ...]]] = {
    "bots.info": ("users:read",),
    "chat.delete": ("chat:write",),
    "chat.postEphemeral": ("chat:write",),
    "chat.postMessage": ("chat:write",),
    "chat.unfurl": ("links:write",),
    "chat.update": ("chat:write",),
    "conversations.list": ("channels:read", "groups:read", "im:read", "mpim:read"),
    "conversations.open": ("im:write", "channels:manage", "groups:write", "mpim:write"),
    "files.completeUploadExternal": ("files:write",),
    "files.delete": ("files:write",),
    "files.getUploadURLExternal": ("files:write",),
    "files.info": ("files:read",),
    "reactions.add": ("reactions:write",),
    "reactions.remove": ("reactions:write",),
    "team.info": ("team:read",),
    "usergroups.list": ("usergroups:read",),
    "usergroups.users.list": ("usergroups:read",),
    "users.conversations": ("channels:read", "groups:read", "im:read", "mpim:read"),
    "users.info": ("users:read",),
    "users.list": ("users:read",),
    "users.lookupByEmail": ("users:read.email",),
}
EMAIL_SCOPE: Final = "users:read.email"  # without it, user objects have no e-mail address
_BY_KIND: Final = {  # method -> access to the conversation; the required scope depends on its kind
    "conversations.history": "history",
    "conversations.replies": "history",
    "conversations.info": "read",
    "conversations.members": "read",
}
Method = Callable[[Workspace, Arguments], Json]


@dataclass(slots=True)
class _Bucket:
    """Token bucket: `level` calls may be made now; it fills by `per_second` up to `size`."""

    size: float
    per_second: float
    level: float
    at: float

    def take(self, now: float) -> float:
        """Take one call; return 0, or the seconds that the caller has to wait."""
        self.level = min(self.size, self.level + (now - self.at) * self.per_second)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.per_second


class Rates:
    """Rate limits of the app. One per workspace and app."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def wait_seconds(self, method: str, arguments: Arguments) -> int:
        """Count one call; return 0, or the Retry-After of a refused one in whole seconds."""
        channel = arguments.text("channel") if method == "chat.postMessage" else ""
        wait = self._take(method, channel)
        if not wait and channel:
            wait = self._take(method, "")
        return math.ceil(wait)

    def _take(self, method: str, channel: str) -> float:
        bucket = self._buckets.get((method, channel))
        if bucket is None:
            if channel:
                size, per_second = float(POSTS_AT_ONCE), 1.0
            elif method in PER_MINUTE:
                size, per_second = float(_AT_ONCE.get(method, PER_MINUTE[method])), PER_MINUTE[method] / MINUTE_SECONDS
            else:
                return 0.0
            bucket = self._buckets[method, channel] = _Bucket(size, per_second, size, self._monotonic())
        return bucket.take(self._monotonic())


def check_scopes(method: str, arguments: Arguments, directory: Directory, granted: Collection[str]) -> None:
    """Return if a required scope is granted; otherwise raise SlackError missing_scope with `needed` and `provided`, as Slack does.

    The scope to read a conversation depends on its kind: im:history for a direct message, groups:history for a private channel,
    channels:history for a public one, and likewise groups:read and channels:read.
    """
    needed = ANY_OF.get(method, ())
    read = _BY_KIND.get(method)
    channel = None if read is None else directory.channel(arguments.text("channel"))
    if channel is not None:  # the method itself reports a missing one
        needed = (f"{'im' if channel.is_im else 'groups' if channel.is_private else 'channels'}:{read}",)
    if needed and not set(needed) & set(granted):
        raise SlackError("missing_scope", needed=",".join(needed), provided=",".join(sorted(granted)))


def connections_open(workspace: Workspace, arguments: Arguments) -> Json:
    """apps.connections.open."""
    base = workspace.url.replace("http://", "ws://", 1)
    return {"url": f"{base}/link/?ticket={workspace.passes.ticket(arguments.token or APP_TOKEN)}&app_id={APP_ID}"}


METHODS: dict[str, Method] = {
    "api.test": api_directory.api_test,
    "apps.connections.open": connections_open,
    "auth.test": api_directory.auth_test,
    "bots.info": api_directory.bots_info,
    "chat.delete": api_content.delete_message,
    "chat.getPermalink": api_content.get_permalink,
    "chat.postEphemeral": api_content.post_ephemeral,
    "chat.postMessage": api_content.post_message,
    "chat.unfurl": api_content.unfurl,
    "chat.update": api_content.update_message,
    "conversations.history": api_directory.history,
    "conversations.info": api_directory.conversations_info,
    "conversations.list": api_directory.conversations_list,
    "conversations.members": api_directory.members,
    "conversations.open": api_directory.open_conversation,
    "conversations.replies": api_directory.replies,
    "files.completeUploadExternal": api_content.complete_upload,
    "files.delete": api_content.delete_file,
    "files.getUploadURLExternal": api_content.get_upload_url,
    "files.info": api_content.files_info,
    "reactions.add": api_content.add_reaction,
    "reactions.remove": api_content.remove_reaction,
    "team.info": api_directory.team_info,
    "usergroups.list": api_directory.usergroups_list,
    "usergroups.users.list": api_directory.usergroups_users_list,
    "users.conversations": api_directory.user_conversations,
    "users.info": api_directory.users_info,
    "users.list": api_directory.users_list,
    "users.lookupByEmail": api_directory.users_lookup_by_email,
    "views.open": api_content.open_view,
    "views.publish": api_content.publish_view,
    "views.push": api_content.push_view,
    "views.update": api_content.update_view,
}

_TOKEN_OF = {"apps.connections.open": APP_TOKEN}

_WITHOUT_TOKEN = frozenset({"api.test"})

# Other types are downloaded: an uploaded page must not run in the sandbox's origin.
_SHOWN_IN_PAGE = frozenset({"application/pdf", "image/png", "image/jpeg", "text/plain"})

_MALFORMED = Answer(200, {"Content-Type": "application/json; charset=utf-8"}, b'{"ok": tr')

_KEY_ARGUMENTS = {
    "chat.unfurl": ("channel", "ts"),
    "chat.update": ("channel", "ts"),
    "chat.delete": ("channel", "ts"),
    "views.publish": ("user_id",),
    "views.update": ("view_id",),
    "files.info": ("file",),
    "files.delete": ("file",),
}


class WebApi:
    """HTTP endpoints for a bot.

    Faults and the log name the method, `upload` and `response_url`; downloads have no faults or entries.
    """

    def __init__(
        self,
        workspace: Workspace,
        weather: ArmedFaults,
        witness: Witness,
        *,
        scopes: frozenset[str] | None = None,
        rates: Rates | None = None,
    ) -> None:
        """Set up the endpoints. `scopes` are those of the installation, None for all; without `rates` there are no rate limits."""
        self._workspace = workspace
        self._scopes = scopes
        self._rates = rates
        self._outages = Outages("slack", weather, witness)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        answer = serving(self, reset=True)
        return [
            web.route("*", "/api/{method}", answer),
            web.route("*", "/upload/v1/{upload_id}", answer),
            web.get("/files-pri/{ids}/{name}", answer),
            web.post("/hooks/{kind}/{team}/{id}/{secret}", answer),
        ]

    def delay(self, received: Received) -> float:
        """Return for how many seconds this request is delayed."""
        match received.segments:
            case ["api", method]:
                return self._outages.delay(method)
            case ["upload", *_]:
                return self._outages.delay("upload")
            case ["hooks", *_]:
                return self._outages.delay("response_url")
        return 0.0

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        """Answer one request. Raises Cut."""
        match received.segments:
            case ["api", method]:
                answer = self._call(received, method, waited=waited)
                return replace(answer, headers={**answer.headers, "Date": self._workspace.clock.date()})
            case ["upload", "v1", upload_id]:
                return self._upload(received, upload_id, waited=waited)
            case ["files-pri", ids, _] if received.verb in ("GET", "HEAD"):
                return self._download(received, ids.partition("-")[2])
            case ["hooks", _, _, hook_id, _] if received.verb == "POST":
                return self._hook(received, hook_id, waited=waited)
        return text_answer("404: Not Found", 404)

    def _call(self, received: Received, method: str, *, waited: bool) -> Answer:
        arguments, unreadable = _read(received)
        key = _key(method, arguments)

        def apply() -> Served:
            if unreadable is not None:
                return Served(json_answer(unreadable.body()), applied=False, status=unreadable.code, key=key)
            wait = 0 if self._rates is None else self._rates.wait_seconds(method, arguments)
            if wait:
                return Served(_rate_limited(wait), applied=False, status=429, key=key)
            try:
                body = {"ok": True, **self._answer(method, arguments)}
            except SlackError as error:
                return Served(json_answer(error.body()), applied=False, status=error.code, key=key)
            scopes = {} if self._scopes is None else {"x-oauth-scopes": ",".join(sorted(self._scopes))}
            return Served(json_answer(body, headers=scopes), applied=True, status=200, key=key or body.get("file_id"))

        return self._serve(method, arguments.raw, key, apply, waited=waited)

    def _serve(self, method: str, raw: bytes, key: str | None, apply: Callable[[], Served], *, waited: bool) -> Answer:
        def under(fault: Fault | None) -> Served:
            refusal = None if fault is None else _refusal(fault, method)
            if refusal is not None:
                answer, status = refusal
                return Served(answer, applied=False, status=status, key=key)
            served = apply()
            if fault is not None and fault.effect == "refused_after":
                answer, status = _refused(fault.code or "fatal_error", method)
                return replace(served, answer=answer, status=status)
            return replace(served, answer=_MALFORMED) if fault is not None and fault.effect == "malformed" else served

        return self._outages.serve(method, raw, key, under, waited=waited)

    def _answer(self, method: str, arguments: Arguments) -> Json:
        handler = METHODS.get(method)
        if handler is None:
            raise SlackError("unknown_method", req_method=method)
        if method not in _WITHOUT_TOKEN:
            _check_token(method, arguments.token)
        if self._scopes is not None:
            check_scopes(method, arguments, self._workspace.directory, self._scopes)
        answer = handler(self._workspace, arguments)
        if self._scopes is not None and EMAIL_SCOPE not in self._scopes:
            named = [answer["user"]] if method == "users.info" else answer["members"] if method == "users.list" else []
            for person in named:
                person["profile"].pop("email", None)
        return answer

    def _upload(self, received: Received, upload_id: str, *, waited: bool) -> Answer:
        stored = self._workspace.files.by_upload(upload_id)
        data = _uploaded_bytes(received)
        file_id = stored.id if stored is not None else None

        def apply() -> Served:
            if stored is None:
                return Served(text_answer("upload not found", 404), applied=False, status=404, key=file_id)
            if not data:
                return Served(text_answer("empty upload", 400), applied=False, status=400, key=file_id)
            self._workspace.files.put(stored, data)
            return Served(text_answer(f"OK - {len(data)}"), applied=True, status=200, key=file_id)

        return self._serve("upload", data, file_id, apply, waited=waited)

    def _download(self, received: Received, file_id: str) -> Answer:
        stored = self._workspace.files.get(file_id)
        if stored is None or not stored.uploaded:
            return text_answer("file not found", 404)
        bearer = received.header("Authorization").removeprefix("Bearer ")
        if bearer != BOT_TOKEN and received.query.get("secret") != stored.secret:
            return text_answer("a private file: send the bot's token", 403)
        shown = stored.mimetype in _SHOWN_IN_PAGE
        headers = {
            "Content-Type": stored.mimetype,
            "Content-Disposition": "inline" if shown else "attachment",
            "X-Content-Type-Options": "nosniff",
        }
        return Answer(200, headers, self._workspace.files.content(stored))

    def _hook(self, received: Received, hook_id: str, *, waited: bool) -> Answer:
        raw = received.body
        key = _hook_key(hook_id, raw)

        def apply() -> Served:
            try:
                api_content.answer_hook(self._workspace, received.path, raw)
            except SlackError as error:
                status = 404 if error.code in ("no_hook", "used_url", "expired_url") else 400
                return Served(json_answer(error.body(), status), applied=False, status=error.code, key=key)
            return Served(text_answer("ok"), applied=True, status=200, key=key)

        return self._serve("response_url", raw, key, apply, waited=waited)


def _check_token(method: str, token: str | None) -> None:
    if not token:
        raise SlackError("not_authed")
    kind = APP_TOKEN if token.startswith(APP_TOKEN) else token
    if kind not in (BOT_TOKEN, APP_TOKEN):
        raise SlackError("invalid_auth")
    if kind != _TOKEN_OF.get(method, BOT_TOKEN):
        raise SlackError("not_allowed_token_type")


def _key(method: str, arguments: Arguments) -> str | None:
    """Name a call for the request log: the bot's own key where the protocol carries one, else the object it is about."""
    try:
        if method == "chat.postMessage":
            return _metadata_key(arguments.structure("metadata", ""))
        if method == "files.completeUploadExternal":
            return ",".join(str(entry["id"]) for entry in arguments.structure("files", "") or ()) or None
    except (SlackError, KeyError, TypeError):
        return None
    parts = [arguments.text(name) for name in _KEY_ARGUMENTS.get(method, ())]
    return ":".join(parts) if all(parts) and parts else None


def _metadata_key(metadata: Any) -> str | None:
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    key = payload.get("key") if isinstance(payload, dict) else None
    return None if key is None else str(key)


def _hook_key(hook_id: str, raw: bytes) -> str | None:
    """Return Quotebot's key from the body's metadata, else the public half of the URL."""
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    key = _metadata_key(body.get("metadata")) if isinstance(body, dict) else None
    return key or hook_id


def _read(received: Received) -> tuple[Arguments, SlackError | None]:
    """Parse the arguments, or return the error."""
    try:
        return read_arguments(received), None
    except SlackError as error:
        raw = b"" if received.content_type == "multipart/form-data" else received.body
        return Arguments({}, None, raw), error


def _uploaded_bytes(received: Received) -> bytes:
    """Return the bytes of an upload, raw or as the first file part of a multipart form; empty if the form cannot be read."""
    if received.content_type != "multipart/form-data":
        return received.body
    try:
        parts = multipart(received.header("Content-Type"), received.body)
    except ValueError:
        return b""
    return next((part.content for part in parts if part.filename is not None), b"")


def _rate_limited(retry_after_seconds: int) -> Answer:
    """Return Slack's answer to a call above the rate limit."""
    return json_answer({"ok": False, "error": "ratelimited"}, 429, {"Retry-After": str(retry_after_seconds)})


def _refusal(fault: Fault, method: str) -> tuple[Answer, int | str] | None:
    if fault.effect == "429":
        return _rate_limited(1 if fault.retry_after is None else fault.retry_after), 429
    if fault.effect == "5xx":
        status = int(fault.code or 503)
        return text_answer("upstream connect error", status), status
    if fault.effect == "refused":
        return _refused(fault.code or "internal_error", method)
    if fault.effect == "auth_expired":
        return json_answer({"ok": False, "error": "invalid_auth"}), "invalid_auth"
    return None


def _refused(code: str, method: str) -> tuple[Answer, int | str]:
    """Refuse with a code: a method does so with HTTP 200, an address it handed out with 404 or 500."""
    if method == "upload":
        return text_answer(code, 500), 500
    if method == "response_url":
        return json_answer({"ok": False, "error": code}, 404), code
    return json_answer({"ok": False, "error": code}), code
