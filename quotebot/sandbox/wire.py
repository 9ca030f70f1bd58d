"""One HTTP exchange as plain values: the request that a stand-in receives and its answer, independent of the transport.

A server carries it over a socket (serving.py); a test or a simulation may call `receive` directly, without sockets or an event
loop. The stand-in is the same in both cases.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from email.message import Message
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Received:
    """A request: `verb` in capitals, `url` absolute and still escaped, the headers in any case, the whole body."""

    verb: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """Return a header, or ""; its name may be written in any case."""
        wanted = name.lower()
        for given, value in self.headers.items():
            if given.lower() == wanted:
                return value
        return ""

    @property
    def origin(self) -> str:
        """Return scheme, host and port, such as http://127.0.0.1:8080."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def path(self) -> str:
        """Return the path, unescaped."""
        return unquote(urlsplit(self.url).path)

    @property
    def segments(self) -> list[str]:
        """Return the parts of the path, split before they are unescaped: /api/auth.test is ["api", "auth.test"]."""
        parts = urlsplit(self.url).path[1:].split("/")
        return [unquote(part) if "%" in part else part for part in parts]

    @property
    def target(self) -> str:
        """Return path and query as they stand in the request line."""
        parts = urlsplit(self.url)
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    @property
    def query_text(self) -> str:
        """Return the query, still escaped."""
        return urlsplit(self.url).query

    @property
    def query(self) -> dict[str, str]:
        """Return the query's parameters; the first value of a repeated one."""
        return first_values(self.query_text)

    @property
    def content_type(self) -> str:
        """Return the media type of the body without its parameters; the protocol's default if none is given."""
        return self.header("Content-Type").partition(";")[0].strip().lower() or "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. With `drip_seconds` its body is sent one byte at a time, each after that many seconds."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    drip_seconds: float = 0.0


class Cut(Exception):  # noqa: N818 -- not an error of this code: the connection is cut without an answer
    """The connection is cut without an answer. The request log shows whether the request took effect before."""


class StandIn(Protocol):
    """A service of the local world as a function."""

    def delay(self, received: Received) -> float:
        """Return for how many seconds this request is delayed; call it once per request, because it counts a hit of the fault."""
        ...

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        """Answer; `waited` states that `delay` was not 0, so that no second fault applies. Raises Cut."""
        ...


def first_values(query: str) -> dict[str, str]:
    """Return the fields of a query or a form; the first value of a repeated one."""
    fields: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        fields.setdefault(name, value)
    return fields


def json_answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a JSON answer."""
    return Answer(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, json.dumps(body).encode())


def text_answer(text: str, status: int = 200) -> Answer:
    """Return a plain-text answer."""
    return Answer(status, {"Content-Type": "text/plain; charset=utf-8"}, text.encode())


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a multipart form. `filename` is None for a plain field; `charset` is that of its text."""

    name: str
    filename: str | None
    content_type: str
    charset: str
    content: bytes

    def text(self) -> str:
        """Return the content as text. Raises ValueError if it is not in its charset or the charset is unknown."""
        try:
            return self.content.decode(self.charset)
        except LookupError as error:
            raise ValueError(str(error)) from None


def multipart(content_type: str, body: bytes) -> list[Part]:
    """Split a multipart/form-data body into its parts; `content_type` is the whole header. Raises ValueError for any other body."""
    header = Message()
    header["content-type"] = content_type
    boundary = _parameter(header, "boundary", "content-type")
    if not boundary:
        raise ValueError("no boundary")
    delimiter = b"\r\n--" + boundary.encode()
    pieces = (b"\r\n" + body).split(delimiter)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):  # noqa: PLR2004 -- a preamble and an end
        raise ValueError("the closing boundary is missing")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> Part:
    head, separator, content = piece.lstrip(b" \t").partition(b"\r\n\r\n")
    if not separator:
        raise ValueError("a part without an end of its headers")
    headers = Message()
    for line in head.decode().split("\r\n"):
        header, colon, value = line.partition(":")
        if colon:
            headers[header.strip()] = value.strip()
    name = _parameter(headers, "name", "content-disposition")
    if name is None:
        raise ValueError("a part without a name")
    kind = headers.get_content_type() if "content-type" in headers else "text/plain"
    return Part(name, headers.get_filename(), kind, str(headers.get_content_charset("utf-8")), content)


def _parameter(headers: Message, name: str, header: str) -> str | None:
    found = headers.get_param(name, header=header)
    return found if isinstance(found, str) else None
