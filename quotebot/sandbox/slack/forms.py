"""Parser of multipart/form-data bodies."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

_END = b"--"


@dataclass(frozen=True, slots=True)
class Part:
    """One field. `filename` is None for a plain field; `charset` is that of its text."""

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
    """Split a body into its parts; `content_type` is the whole header. Raises ValueError if it is not such a body."""
    header = Message()
    header["content-type"] = content_type
    boundary = _parameter(header, "boundary", "content-type")
    if not boundary:
        raise ValueError("no boundary")
    delimiter = b"\r\n--" + boundary.encode()
    pieces = (b"\r\n" + body).split(delimiter)
    if len(pieces) < 2 or not pieces[-1].startswith(_END):  # noqa: PLR2004 -- a preamble and an end
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
