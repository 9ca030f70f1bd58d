"""Client of Slack's Web API and of the two URLs it issues: response_url and the upload URL.

Each call is one HTTP request; a refusal becomes an `AdapterError` by the tables in adapters/slack/errors.py. Nothing here retries,
sleeps or decides. An append carries our key in its message metadata, so that `find` can detect whether a call with a lost answer
took effect. A message that breaks a limit of Block Kit is refused here (VALIDATION, "block_kit") and not sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from yarl import URL

from adapters.failures import AdapterError, Failure
from adapters.http import AnswerTooLargeError, bounded_body, call_seconds, closed_session, sent_at_ms
from adapters.slack.block_kit import message_problems, view_problems
from adapters.slack.errors import ADDRESS_STATUSES, STATUSES, refusal, unreadable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

Json = dict[str, Any]

SLACKBOT = "USLACKBOT"  # users.info reports it as a person
METADATA_EVENT_TYPE = "quotebot_delivery"
FILES_ORIGIN = URL("https://files.slack.com")  # upload host of Slack, besides its API host
FIND_PAGES_MAX = 5
NAME_CHARACTERS_MAX = 100
ZONE_CHARACTERS_MAX = 64
EMAIL_CHARACTERS_MAX = 100
PHONE_CHARACTERS_MAX = 40
FIND_PAGE_MESSAGES = 200
MEMBER_PAGES_MAX = 10
MEMBER_PAGE_USERS = 999
PROBLEMS_NAMED_MAX = 3
LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})  # private without TLS
ANSWER_BYTES_MAX = 64 * 1024  # of a response_url or an upload address, which answer "ok"


class BoundedWebClient(AsyncWebClient):
    """slack_sdk's client with its `_request` replaced; the client sends every request through it.

    An answer that is not a JSON object counts as an empty one, which the client refuses like `ok: false`.
    """

    async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
        if self.session is not None and not self.session.closed:
            return await _exchange(self.session, http_verb, api_url, req_args)
        async with closed_session(timeout=aiohttp.ClientTimeout(total=self.timeout)) as session:
            return await _exchange(session, http_verb, api_url, req_args)

    async def _upload_file(self, **_: Any) -> Any:
        raise NotImplementedError("files are uploaded by adapters/slack/api.py, which checks the address first")


async def _exchange(session: aiohttp.ClientSession, verb: str, url: str, arguments: dict[str, Any]) -> dict[str, Any]:
    headers = {**(arguments.get("headers") or {}), "Accept-Encoding": "gzip, deflate"}
    given = {**arguments, "headers": headers}
    async with session.request(verb, url, allow_redirects=False, auto_decompress=False, **given) as response:
        content = await bounded_body(response)
    return {"data": _object(content), "headers": response.headers, "status_code": response.status}


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Identity:
    """Workspace and bot user that the token belongs to."""

    team_id: str
    bot_user_id: str
    bot_id: str
    enterprise_id: str | None = None  # of the Enterprise organization, if the workspace belongs to one
    url: str = field(default="", compare=False)  # of the workspace, for links to its messages; empty if Slack sends none


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """Location of a message: `ts` is its id inside the channel."""

    channel: str
    ts: str


@dataclass(frozen=True, slots=True)
class UploadTicket:
    """Announced file and its upload URL (a secret: it grants permission to write the file)."""

    file_id: str
    upload_url: str


@dataclass(frozen=True, slots=True)
class SlackMember:
    """Slack's record of a person. `teams` are the workspaces they belong to.

    `is_stranger` is not read: Slack reports false for people of another workspace who share a channel with the bot.
    """

    teams: frozenset[str]
    deactivated: bool
    bot: bool
    guest: bool
    enterprise_ids: frozenset[str] = frozenset()
    name: str = ""  # as the person writes it in their profile; empty if Slack returned none
    zone: str = ""  # IANA name of their time zone; empty if Slack returned none
    email: str = ""  # empty also without the scope users:read.email
    phone: str = ""


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """Kind of a conversation. `ext_shared`: people of another organization are members or invited (Slack Connect).

    `org_shared`: other workspaces of the same Enterprise organization use it too.
    """

    kind: Literal["public", "private", "direct"]
    ext_shared: bool
    org_shared: bool = False


@dataclass(frozen=True, slots=True)
class SharedFile:
    """File whose upload into a channel is complete; `permalink` opens it for the channel's members, None if Slack sends none."""

    file_id: str
    permalink: str | None


class SlackApi:
    """Client of one workspace. Every method makes one request (paged reads: one per page) and raises only `AdapterError`.

    `client` holds the token and the API address and must have no retry handlers; without a `session` it uses ours, so that
    connections are reused. `response_url_hosts` are the hosts (with a non-default port) that a response_url may name.
    The time-outs hold for calls outside of effects; see `call_seconds`.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        session: aiohttp.ClientSession | None = None,
        *,
        timeout_seconds: float = 10.0,
        upload_timeout_seconds: float = 60.0,
        response_url_hosts: frozenset[str],
    ) -> None:
        if client.retry_handlers:
            raise ValueError("the Slack client must be built with retry_handlers=[]: a retry inside it would post twice")
        self._client = client
        self._session = session
        self._owns_session = session is None
        self._timeout_seconds = timeout_seconds
        self._upload_timeout_seconds = upload_timeout_seconds
        self._response_url_hosts = response_url_hosts
        self._sent_at_ms: int | None = None

    @property
    def time_ms(self) -> int | None:
        """Slack's time (Unix ms) by the Date header of its latest answer; None without one."""
        return self._sent_at_ms

    async def ask_time(self) -> int | None:
        """Return Slack's time (Unix ms), by the Date header of an auth.test answer; None without that header."""
        await self.identify()
        return self._sent_at_ms

    async def identify(self) -> Identity:
        """Return the identity behind the bot's token (auth.test)."""
        who = await self._call("auth.test", form={})
        enterprise = who.get("enterprise_id")
        team_id, bot_user_id, bot_id = (_text(who, "auth.test", field) for field in ("team_id", "user_id", "bot_id"))
        url = who.get("url")
        return Identity(
            team_id,
            bot_user_id,
            bot_id,
            enterprise if isinstance(enterprise, str) and enterprise else None,
            url if isinstance(url, str) else "",
        )

    async def member(self, *, user: str) -> SlackMember:
        """Return Slack's record of a user (users.info). NOT_FOUND: no user visible to this workspace."""
        who = (await self._call("users.info", form={"user": user})).get("user")
        if not isinstance(who, dict) or who.get("id") != user:
            raise unreadable("users.info", HTTPStatus.OK)
        organisation = who.get("enterprise_user") or {}
        if not isinstance(organisation, dict):
            raise unreadable("users.info", HTTPStatus.OK)
        enterprise_ids = (organisation.get("enterprise_id"), who.get("enterprise_id"))
        return SlackMember(
            teams=frozenset({_text(who, "users.info", "team_id"), *_texts(organisation.get("teams"))}),
            deactivated=bool(who.get("deleted")),
            bot=bool(who.get("is_bot") or who.get("is_workflow_bot")) or user == SLACKBOT,
            guest=bool(who.get("is_restricted") or who.get("is_ultra_restricted")),
            enterprise_ids=frozenset(_texts(enterprise_ids)),
            name=_name_of(who),
            zone=next(iter(_texts([who.get("tz")])), "")[:ZONE_CHARACTERS_MAX],
            email=_of_profile(who, "email", EMAIL_CHARACTERS_MAX),
            phone=_of_profile(who, "phone", PHONE_CHARACTERS_MAX),
        )

    async def channel(self, *, channel: str) -> ChannelFacts:
        """Return the facts of a conversation (conversations.info). NOT_FOUND: deleted, or private without the bot as a member."""
        method = "conversations.info"
        found = (await self._call(method, form={"channel": channel})).get("channel")
        if not isinstance(found, dict) or found.get("id") != channel:
            raise unreadable(method, HTTPStatus.OK)
        if found.get("is_im") or found.get("is_mpim"):
            return ChannelFacts("direct", bool(found.get("is_ext_shared")))
        private, shared = found.get("is_private"), found.get("is_ext_shared")
        if not isinstance(private, bool) or not isinstance(shared, bool):
            raise unreadable(method, HTTPStatus.OK)
        ext_shared, org_shared = shared or bool(found.get("is_pending_ext_shared")), bool(found.get("is_org_shared"))
        return ChannelFacts("private" if private else "public", ext_shared, org_shared)

    async def members(self, *, channel: str) -> frozenset[str]:
        """Return the user ids of everyone in a channel (conversations.members), page by page.

        Raises UNCERTAIN when there are more than MEMBER_PAGES_MAX pages.
        """
        method = "conversations.members"
        form = {"channel": channel, "limit": str(MEMBER_PAGE_USERS)}
        found: set[str] = set()
        for _ in range(MEMBER_PAGES_MAX):
            page = await self._call(method, form=form)
            members = page.get("members")
            if not isinstance(members, list):
                raise unreadable(method, HTTPStatus.OK)
            found.update(str(member) for member in members)
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return frozenset(found)
            form["cursor"] = str(cursor)
        raise AdapterError(
            Failure.UNCERTAIN, "too_many_members", f"The channel has more members than {MEMBER_PAGES_MAX} pages of {method} name."
        )

    async def open_direct(self, *, user: str) -> str:
        """Return the id of the direct-message channel with a user (conversations.open). May be repeated."""
        opened = (await self._call("conversations.open", form={"users": user})).get("channel")
        return _text(opened if isinstance(opened, dict) else {}, "conversations.open", "id")

    async def post(
        self, *, channel: str, text: str, blocks: Sequence[Json], thread_ts: str | None, key: str, correlation_id: str
    ) -> PostedMessage:
        """Add a message to a channel, or to the thread of `thread_ts`. `key` travels in its metadata for `find`."""
        message = {
            **_content(channel, text, blocks),
            **({"thread_ts": thread_ts} if thread_ts else {}),
            "metadata": {"event_type": METADATA_EVENT_TYPE, "event_payload": {"key": key}},
            "unfurl_links": False,
            "unfurl_media": False,
        }
        posted = await self._call(
            "chat.postMessage", body=message, headers={"X-Request-Id": correlation_id, "Idempotency-Key": key}
        )
        return PostedMessage(*(_text(posted, "chat.postMessage", field) for field in ("channel", "ts")))

    async def find(self, *, channel: str, thread_ts: str | None, key: str, oldest_seconds: float) -> PostedMessage | None:
        """Return the message that carries `key`, from `oldest_seconds` (Unix time) on. None: it provably does not exist.

        Raises UNCERTAIN when there are more than FIND_PAGES_MAX pages: absence is not proven.
        """
        method = "conversations.replies" if thread_ts else "conversations.history"
        async with contextlib.aclosing(self._messages(channel, thread_ts, oldest_seconds)) as messages:
            async for message in messages:
                if _key_of(message) == key:
                    return PostedMessage(channel, _text(message, method, "ts"))
        return None

    async def _messages(self, channel: str, thread_ts: str | None, oldest_seconds: float) -> AsyncGenerator[Json, None]:
        """Yield the messages of a thread, or of a channel, page by page. Raises UNCERTAIN when there are too many pages."""
        method = "conversations.replies" if thread_ts else "conversations.history"
        form = {
            "channel": channel,
            **({"ts": thread_ts} if thread_ts else {}),
            "oldest": f"{oldest_seconds:.6f}",
            "inclusive": "1",
            "include_all_metadata": "1",
            "limit": str(FIND_PAGE_MESSAGES),
        }
        for _ in range(FIND_PAGES_MAX):
            page = await self._call(method, form=form)
            for message in page.get("messages") or ():
                yield message
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor and not page.get("has_more"):
                return
            form["cursor"] = str(cursor or "")
        raise AdapterError(
            Failure.UNCERTAIN,
            "too_many_messages",
            f"{FIND_PAGES_MAX} pages of {method} did not hold the message and there are more; whether it was posted is unknown.",
        )

    async def update(
        self, *, channel: str, ts: str, text: str, blocks: Sequence[Json], correlation_id: str, file_ids: Sequence[str] = ()
    ) -> None:
        """Replace the content of one of our messages; its metadata stays, and of its files those of `file_ids`."""
        files = {"file_ids": list(file_ids)} if file_ids else {}
        body = {**_content(channel, text, blocks), **files, "ts": ts}
        await self._call("chat.update", body=body, headers={"X-Request-Id": correlation_id})

    async def ephemeral(
        self, *, channel: str, user: str, text: str, blocks: Sequence[Json] = (), thread_ts: str | None = None
    ) -> None:
        """Send an ephemeral message to one user in a channel; it cannot be read back or updated."""
        thread = {"thread_ts": thread_ts} if thread_ts else {}
        await self._call("chat.postEphemeral", body={**_content(channel, text, blocks), **thread, "user": user})

    async def unfurl(self, *, channel: str, ts: str, previews: Mapping[str, Sequence[Json]], correlation_id: str) -> None:
        """Show blocks below a person's message, for each of its addresses in `previews`. A repeated call replaces them."""
        for address, blocks in previews.items():
            _accept("link preview", message_problems(address, list(blocks)))
        unfurls = {address: {"blocks": list(blocks)} for address, blocks in previews.items()}
        content = {"channel": channel, "ts": ts, "unfurls": unfurls}
        await self._call("chat.unfurl", body=content, headers={"X-Request-Id": correlation_id})

    async def respond(self, response_url: str, *, text: str, blocks: Sequence[Json] = (), replace: bool = False) -> None:
        """Reply to an interaction through its response_url. NOT_FOUND: the URL has expired or is used up.

        `replace` replaces the ephemeral message that the interaction came from.
        """
        target = _address(response_url, "response_url")
        private = target.scheme == "https" or (target.scheme == "http" and target.host in LOCAL_HOSTS)
        if target.host_port_subcomponent not in self._response_url_hosts or not private:
            raise _refused_host("response_url")
        _accept("message", message_problems(text, list(blocks)))
        message = {"text": text, **({"blocks": list(blocks)} if blocks else {})}
        content = {**message, "response_type": "ephemeral", "replace_original": replace}
        await self._send(
            "response_url", target, json.dumps(content).encode(), "application/json", call_seconds(self._timeout_seconds)
        )

    async def open_view(self, *, trigger_id: str, view: Json) -> None:
        """Open a modal for the interaction of `trigger_id`. EXPIRED: older than three seconds, or already used."""
        _accept("form", view_problems(view))
        await self._call("views.open", body={"trigger_id": trigger_id, "view": view})

    async def update_view(self, *, view_id: str, view_hash: str, view: Json) -> str:
        """Replace an open modal if it still has this hash; return its new hash."""
        _accept("form", view_problems(view))
        answer = await self._call("views.update", body={"view_id": view_id, "hash": view_hash, "view": view})
        return str((answer.get("view") or {}).get("hash") or "")

    async def publish_home(self, *, user: str, view: Json, correlation_id: str) -> None:
        """Replace one person's App Home."""
        _accept("Home tab", view_problems(view))
        await self._call("views.publish", body={"user_id": user, "view": view}, headers={"X-Request-Id": correlation_id})

    async def upload_url(self, *, filename: str, length: int) -> UploadTicket:
        """Step 1 of 3: announce a file of `length` bytes. May be repeated: an upload never completed is discarded."""
        method = "files.getUploadURLExternal"
        ticket = await self._call(method, form={"filename": filename, "length": str(length)})
        return UploadTicket(*(_text(ticket, method, field) for field in ("file_id", "upload_url")))

    async def upload_bytes(self, upload_url: str, content: bytes) -> None:
        """Step 2 of 3: upload the bytes; may be repeated. The URL's host must be the API's or Slack's host for files."""
        target = _address(upload_url, "upload address")
        if target.origin() not in (URL(self._client.base_url).origin(), FILES_ORIGIN):
            raise _refused_host("upload address")
        await self._send("upload", target, content, "application/octet-stream", call_seconds(self._upload_timeout_seconds))

    async def complete_upload(self, *, file_id: str, title: str, channel: str, thread_ts: str | None, comment: str) -> SharedFile:
        """Step 3 of 3: share the file. Once only: after a lost answer call `find_file`; a second attempt is refused (NOT_FOUND)."""
        form = {
            "files": json.dumps([{"id": file_id, "title": title}]),
            "channel_id": channel,
            "initial_comment": comment,
            **({"thread_ts": thread_ts} if thread_ts else {}),
        }
        answer = await self._call("files.completeUploadExternal", form=form)
        files = answer.get("files")
        return _shared(file_id, files[0] if isinstance(files, list) and files else None)

    async def find_file(self, *, file_id: str, channel: str) -> SharedFile | None:
        """Return an upload completed into the channel, else None. Slack may list it only after some seconds."""
        try:
            found, places = await self._described(file_id)
        except AdapterError as error:
            if error.code == "file_not_found":
                return None
            raise
        return _shared(file_id, found) if channel in places else None

    async def find_message_of(self, *, file_id: str, channel: str) -> str | None:
        """Return the ts of the message that shares a file in a channel, None if there is none.

        Raises NOT_FOUND for a deleted file, and TRANSIENT while Slack lists no message at all with the file.
        """
        _found, places = await self._described(file_id)
        if not places:
            raise AdapterError(Failure.TRANSIENT, "not_listed", "Slack lists no message with this file yet.")
        return next((str(place["ts"]) for place in places.get(channel) or () if place.get("ts")), None)

    async def _described(self, file_id: str) -> tuple[Json, dict[str, list[Json]]]:
        """Return what Slack says of a file, and the messages that share it, by channel."""
        answer = await self._call("files.info", form={"file": file_id})
        found: Json = answer.get("file") or {}
        shares: Json = found.get("shares") or {}
        return found, {channel: messages for places in shares.values() for channel, messages in places.items()}

    async def find_shared(
        self, *, channel: str, thread_ts: str, filenames: Sequence[str], oldest_seconds: float
    ) -> SharedFile | None:
        """Return a file of these names in the thread, from `oldest_seconds` (Unix time) on. None: it provably does not exist.

        Raises UNCERTAIN as `find` does.
        """
        async with contextlib.aclosing(self._messages(channel, thread_ts, oldest_seconds)) as messages:
            async for message in messages:
                for file in message.get("files") or ():
                    if file.get("name") in filenames:
                        return _shared(_text(file, "conversations.replies", "id"), file)
        return None

    async def close(self) -> None:
        """Close the connections, unless the caller supplied the session."""
        if self._owns_session and self._session is not None:
            await self._session.close()

    async def _call(
        self, method: str, *, body: Json | None = None, form: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Json:
        if self._client.session is None:
            self._client.session = self._connections()
        with translated(method):
            async with asyncio.timeout(call_seconds(self._timeout_seconds)):
                answer = await self._client.api_call(method, json=body, data=form, headers=headers)
        self._sent_at_ms = sent_at_ms(answer.headers)
        if not isinstance(answer.data, dict):
            raise unreadable(method, answer.status_code)
        return answer.data

    async def _send(self, what: str, target: URL, content: bytes, content_type: str, seconds: float) -> None:
        """POST to a URL that carries its own permission, without a token and without following redirects."""
        with translated(what):
            async with (
                asyncio.timeout(seconds),
                self._connections().post(
                    target,
                    data=io.BytesIO(content),  # raw bytes over 1 MiB would block the event loop
                    headers={"Content-Type": content_type, "Accept-Encoding": "identity"},
                    allow_redirects=False,
                    auto_decompress=False,
                    proxy=self._client.proxy,
                    ssl=self._client.ssl if self._client.ssl is not None else True,
                ) as response,
            ):
                answer = _parsed(await response.content.read(ANSWER_BYTES_MAX))
        if response.status != HTTPStatus.OK or (isinstance(answer, dict) and answer.get("ok") is False):
            raise refusal(what, response.status, response.headers, answer, ADDRESS_STATUSES)

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = closed_session()
        return self._session


def _content(channel: str, text: str, blocks: Sequence[Json]) -> Json:
    """Return the fields of every message. Slack must not turn names into mentions or links: our mentions are ids already."""
    _accept("message", message_problems(text, list(blocks)))
    return {"channel": channel, "text": text, **({"blocks": list(blocks)} if blocks else {}), "parse": "none", "link_names": False}


def _accept(what: str, problems: list[str]) -> None:
    """Raise AdapterError (VALIDATION) if there are problems, naming their places but not the texts."""
    if problems:
        named = "; ".join(problems[:PROBLEMS_NAMED_MAX])
        more = f" and {len(problems) - PROBLEMS_NAMED_MAX} more" if len(problems) > PROBLEMS_NAMED_MAX else ""
        raise AdapterError(
            Failure.VALIDATION,
            "block_kit",
            f"Slack would refuse this {what} ({named}{more}): nothing was sent. It is a bug of ours.",
        )


def _key_of(message: Json) -> str | None:
    """Return the key that `post` gave this message, or None."""
    metadata = message.get("metadata") or {}
    if metadata.get("event_type") != METADATA_EVENT_TYPE:
        return None
    key = (metadata.get("event_payload") or {}).get("key")
    return key if isinstance(key, str) else None


def _shared(file_id: str, described: object) -> SharedFile:
    link = described.get("permalink") if isinstance(described, dict) else None
    return SharedFile(file_id, link if isinstance(link, str) and link else None)


def _name_of(who: Json) -> str:
    """Return the real name of a person's profile, else the name that they display."""
    profile = who.get("profile")
    places = (*((profile, name) for name in ("real_name", "display_name")), (who, "real_name"), (who, "name"))
    names = (place.get(name) for place, name in places if isinstance(place, dict))
    return next((" ".join(name.split())[:NAME_CHARACTERS_MAX] for name in names if isinstance(name, str) and name.strip()), "")


def _of_profile(who: Json, field: str, most: int) -> str:
    """Return a text of a person's profile on one line; empty if there is none, or if it is too long to be one of its kind."""
    profile = who.get("profile")
    value = profile.get(field) if isinstance(profile, dict) else None
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if len(text) <= most else ""


def _text(answer: Json, method: str, field: str) -> str:
    value = answer.get(field)
    if not isinstance(value, str) or not value:
        raise unreadable(method, HTTPStatus.OK)
    return value


def _texts(values: object) -> list[str]:
    """Return the non-empty texts of a list; empty if the value is not a list."""
    return [value for value in values if isinstance(value, str) and value] if isinstance(values, list | tuple) else []


def _parsed(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _address(text: str, what: str) -> URL:
    """Parse a URL that must be absolute and without credentials, which can disguise the host. Raises VALIDATION otherwise."""
    try:
        target = URL(text)
    except ValueError as error:
        raise _refused_host(what) from error
    if not target.absolute or target.user is not None or target.password is not None:
        raise _refused_host(what)
    return target


def _refused_host(what: str) -> AdapterError:
    return AdapterError(Failure.VALIDATION, "host_refused", f"The {what} does not point to Slack; nothing was sent.")


@contextlib.contextmanager
def translated(method: str) -> Iterator[None]:
    """Translate every failure of a request into `AdapterError`; `possibly_applied` if the request may have been sent."""
    try:
        yield
    except SlackApiError as error:
        answer = error.response
        if isinstance(answer, AsyncSlackResponse):
            raise refusal(method, answer.status_code, answer.headers, answer.data, STATUSES) from error
        raise refusal(method, answer.status, answer.headers, None, STATUSES) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise AdapterError(Failure.TRANSIENT, "network", f"Slack could not be reached for {method}; nothing was sent.") from error
    except TimeoutError as error:
        message = f"Slack did not answer {method} in time; it may have been applied."
        raise AdapterError(Failure.TIMEOUT, "timeout", message, possibly_applied=True) from error
    except AnswerTooLargeError as error:
        message = f"Slack's answer to {method} was too large to be read; it may have been applied."
        raise AdapterError(Failure.TRANSIENT, "too_large", message, possibly_applied=True) from error
    except (aiohttp.ClientError, OSError) as error:
        message = f"The connection to Slack broke during {method}; it may have been applied."
        raise AdapterError(Failure.TRANSIENT, "network", message, possibly_applied=True) from error
    except (AttributeError, ValueError) as error:  # slack_sdk raises these for an answer that is neither JSON nor an error
        raise unreadable(method, None) from error
