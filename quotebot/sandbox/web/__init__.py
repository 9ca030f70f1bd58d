"""The sandbox's page: static files of the package, served under a policy that lets no foreign code load or run.

Every file is read once, when the routes are built. Only names found inside the package are served, so a path from the network is a
key to look up and never a path to open.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

_CONTENT_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}

_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class _Asset:
    """One file of the page, ready to be sent. `etag` is quoted, as the header requires."""

    body: bytes
    content_type: str
    etag: str

    def respond(self, request: web.Request) -> web.Response:
        """Respond with the file, or 304 if the browser has the same content."""
        headers = {**_SECURITY_HEADERS, "ETag": self.etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == self.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=headers)


def routes() -> list[web.RouteDef]:
    """Return the page at `/` and its files at `/static/...`.

    Raises LookupError if the package contains a file of a kind without a content type here: it would be served wrongly.
    """
    assets = dict(_walk(resources.files(__package__) / "static", ""))
    index = assets["index.html"]

    async def serve_index(request: web.Request) -> web.Response:
        return index.respond(request)

    async def serve_asset(request: web.Request) -> web.Response:
        asset = assets.get(request.match_info["path"])
        if asset is None:
            raise web.HTTPNotFound(text="The sandbox's page has no such file.", headers=_SECURITY_HEADERS)
        return asset.respond(request)

    return [web.get("/", serve_index), web.get("/static/{path:.+}", serve_asset)]


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, _Asset]]:
    """Yield every file below `folder` with its path relative to the start."""
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from _walk(entry, name + "/")
            continue
        suffix = "." + entry.name.rpartition(".")[2]
        if suffix not in _CONTENT_TYPES:
            raise LookupError(f"{name} has no content type: add {suffix!r} to the table or remove the file.")
        body = entry.read_bytes()
        yield name, _Asset(body=body, content_type=_CONTENT_TYPES[suffix], etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"')
