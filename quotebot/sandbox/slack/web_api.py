"""The HTTP side of the Web API: /api/<method>, uploads, private files and response URLs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from quotebot.sandbox.slack import api_chat, api_conversations, api_files, api_people, api_views
from quotebot.sandbox.slack.arguments import Arguments, read_arguments
from quotebot.sandbox.slack.directory import APP_ID, APP_TOKEN, BOT_TOKEN
from quotebot.sandbox.slack.errors import Json, SlackError
from quotebot.sandbox.slack.hooks import answer_hook
from quotebot.sandbox.slack.outages import Outages, Served, json_response
from quotebot.sandbox.slack.workspace import Workspace

if TYPE_CHECKING:
    from quotebot.sandbox.weather import Weather
    from quotebot.sandbox.witness import Witness

Method = Callable[[Workspace, Arguments], Json]


def connections_open(workspace: Workspace, arguments: Arguments) -> Json:
    """apps.connections.open."""
    del arguments
    base = workspace.url.replace("http://", "ws://", 1)
    return {"url": f"{base}/link/?ticket={workspace.passes.ticket()}&app_id={APP_ID}"}


METHODS: dict[str, Method] = {
    "api.test": api_people.api_test,
    "apps.connections.open": connections_open,
    "auth.test": api_people.auth_test,
    "bots.info": api_people.bots_info,
    "chat.delete": api_chat.delete,
    "chat.getPermalink": api_chat.get_permalink,
    "chat.postEphemeral": api_chat.post_ephemeral,
    "chat.postMessage": api_chat.post_message,
    "chat.update": api_chat.update,
    "conversations.history": api_conversations.history,
    "conversations.info": api_conversations.info,
    "conversations.list": api_conversations.list_,
    "conversations.members": api_conversations.members,
    "conversations.open": api_conversations.open_,
    "conversations.replies": api_conversations.replies,
    "files.completeUploadExternal": api_files.complete_upload,
    "files.delete": api_files.delete,
    "files.getUploadURLExternal": api_files.get_upload_url,
    "files.info": api_files.info,
    "reactions.add": api_chat.add_reaction,
    "reactions.remove": api_chat.remove_reaction,
    "team.info": api_people.team_info,
    "usergroups.list": api_people.usergroups_list,
    "usergroups.users.list": api_people.usergroups_users_list,
    "users.info": api_people.users_info,
    "users.list": api_people.users_list,
    "users.lookupByEmail": api_people.users_lookup_by_email,
    "views.open": api_views.open_,
    "views.publish": api_views.publish,
    "views.push": api_views.push,
    "views.update": api_views.update,
}
_TOKEN_OF = {"apps.connections.open": APP_TOKEN}
_WITHOUT_TOKEN = frozenset({"api.test"})
# Anything else is downloaded: an uploaded page must not run beside the sandbox's own.
_SHOWN_IN_PAGE = frozenset({"application/pdf", "image/png", "image/jpeg", "text/plain"})
_KEY_ARGUMENTS = {
    "chat.update": ("channel", "ts"),
    "chat.delete": ("channel", "ts"),
    "views.publish": ("user_id",),
    "views.update": ("view_id",),
    "files.info": ("file",),
    "files.delete": ("file",),
}


class WebApi:
    """The routes a bot calls."""

    def __init__(self, workspace: Workspace, weather: Weather, witness: Witness) -> None:
        self._workspace = workspace
        self._outages = Outages(weather, witness)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.route("*", "/api/{method}", self._call),
            web.route("*", "/upload/v1/{upload_id}", self._upload),
            web.get("/files-pri/{ids}/{name}", self._download),
            web.post("/hooks/{kind}/{team}/{id}/{secret}", self._hook),
        ]

    async def _call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        arguments, unreadable = await _read(request)

        def apply() -> Served:
            if unreadable is not None:
                return Served(json_response(unreadable.body()), applied=False, status=unreadable.code, key=None)
            try:
                body = {"ok": True, **self._answer(method, arguments)}
            except SlackError as error:
                return Served(json_response(error.body()), applied=False, status=error.code, key=_key(method, arguments))
            key = _key(method, arguments) or body.get("file_id")
            return Served(json_response(body), applied=True, status=200, key=key)

        return await self._outages.serve(request, method, arguments.raw, lambda: _key(method, arguments), apply)

    def _answer(self, method: str, arguments: Arguments) -> Json:
        handler = METHODS.get(method)
        if handler is None:
            raise SlackError("unknown_method", req_method=method)
        if method not in _WITHOUT_TOKEN:
            _check_token(method, arguments.token)
        return handler(self._workspace, arguments)

    async def _upload(self, request: web.Request) -> web.Response:
        stored = self._workspace.files.by_upload(request.match_info["upload_id"])
        data = await _uploaded_bytes(request)
        file_id = stored.id if stored is not None else None

        def apply() -> Served:
            if stored is None or stored.completed:
                return Served(web.Response(text="upload not found", status=404), applied=False, status=404, key=file_id)
            if not data:
                return Served(web.Response(text="empty upload", status=400), applied=False, status=400, key=file_id)
            self._workspace.files.put(stored, data)
            return Served(web.Response(text=f"OK - {len(data)}"), applied=True, status=200, key=file_id)

        return await self._outages.serve(request, "upload", data, lambda: file_id, apply)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        file_id = request.match_info["ids"].partition("-")[2]
        stored = self._workspace.files.get(file_id)
        if stored is None or not stored.uploaded:
            return web.Response(text="file not found", status=404)
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if bearer != BOT_TOKEN and request.query.get("secret") != stored.secret:
            return web.Response(text="a private file: send the bot's token", status=403)
        shown = stored.mimetype in _SHOWN_IN_PAGE
        headers = {
            "Content-Type": stored.mimetype,
            "Content-Disposition": "inline" if shown else "attachment",
            "X-Content-Type-Options": "nosniff",
        }
        return web.FileResponse(stored.path, headers=headers)

    async def _hook(self, request: web.Request) -> web.Response:
        raw = await request.read()

        def apply() -> Served:
            try:
                answer_hook(self._workspace, request.path, raw)
            except SlackError as error:
                status = 404 if error.code in ("no_hook", "used_url", "expired_url") else 400
                return Served(json_response(error.body(), status), applied=False, status=error.code, key=_hook_key(request, raw))
            return Served(web.Response(text="ok"), applied=True, status=200, key=_hook_key(request, raw))

        return await self._outages.serve(request, "response_url", raw, lambda: _hook_key(request, raw), apply)


def _check_token(method: str, token: str | None) -> None:
    if not token:
        raise SlackError("not_authed")
    if token not in (BOT_TOKEN, APP_TOKEN):
        raise SlackError("invalid_auth")
    if token != _TOKEN_OF.get(method, BOT_TOKEN):
        raise SlackError("not_allowed_token_type")


def _key(method: str, arguments: Arguments) -> str | None:
    """Name a call for the witness: the bot's own key where the protocol carries one, else the object it is about."""
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


def _hook_key(request: web.Request, raw: bytes) -> str | None:
    """Return our key from the body's metadata, else the public half of the URL."""
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    key = _metadata_key(body.get("metadata")) if isinstance(body, dict) else None
    return key or request.match_info["id"]


async def _read(request: web.Request) -> tuple[Arguments, SlackError | None]:
    """Read the arguments, or say why they cannot be read."""
    try:
        return await read_arguments(request), None
    except SlackError as error:
        raw = b"" if request.content_type == "multipart/form-data" else await request.read()
        return Arguments({}, None, raw), error


async def _uploaded_bytes(request: web.Request) -> bytes:
    """Return the bytes of an upload, raw or as the first file part of a multipart form."""
    if request.content_type != "multipart/form-data":
        return await request.read()
    form = await request.post()
    for part in form.values():
        if isinstance(part, web.FileField):
            with part.file:
                return part.file.read()
    return b""
