"""Protection of HTTP servers on the loopback interface against web pages: DNS rebinding and cross-site requests.

A browser sends any page's requests to 127.0.0.1. The Host, Origin and Sec-Fetch-Site headers distinguish them from requests of
local programs, which send a loopback name with the server's own port and neither of the other two headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
OWN_SITE: Final = frozenset({"same-origin", "none"})  # "none": the user typed the address


@web.middleware
async def only_local(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests sent by a page of another site. A link to the start page is allowed from any site."""
    return await handler(request) if has_own_host(request) and is_from_here(request) else page_refused()


def page_refused() -> web.Response:
    """Return the response to a request sent by another site's page."""
    return web.json_response({"error": "only local pages and programs may talk to this server"}, status=403)


def is_from_here(request: web.Request) -> bool:
    """Return true if a local program, a page of this server or a link to its start page sent the request."""
    return _is_own_page(request) or _is_link_to_start(request)


def has_own_host(request: web.Request) -> bool:
    """Return true if the Host header names the loopback interface and, if it has a port, the port of this connection.

    Browsers always send the port. slack_sdk's own WebSocket client omits it.
    """
    try:
        named = urlsplit(f"//{request.host}")
        name, port = named.hostname, named.port
    except ValueError:
        return False
    own = None if request.transport is None else request.transport.get_extra_info("sockname")
    return name in NAMES and own is not None and port in (None, own[1])


def _is_own_page(request: web.Request) -> bool:
    """Return true if a local program or a page of this server sent the request."""
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    return (site is None or site in OWN_SITE) and (origin is None or origin == f"{request.scheme}://{request.host}")


def _is_link_to_start(request: web.Request) -> bool:
    link = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.headers.get("Sec-Fetch-Dest") == "document"
    return link and request.method == "GET" and request.path == "/" and "Origin" not in request.headers
