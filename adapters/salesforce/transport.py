"""HTTP transport to Salesforce: a requests session without retries or redirects, whose live sockets can be shut down.

requests has no total deadline (its time-outs are per read, so a slow server outlasts them) and a thread cannot be cancelled.
So every call holds a duplicate handle of its socket; `cut` shuts the socket down and the thread ends at once.
"""

from __future__ import annotations

import io
import os
import socket
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
ANSWER_BYTES_MAX = 8 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class ResponseTooLargeError(Exception):
    """The answer is larger than ANSWER_BYTES_MAX."""


class CallCutError(Exception):
    """The call was cancelled before its thread started."""


class LiveCall:
    """One HTTP exchange in a worker thread. Thread-safe: the event loop's thread may `cut` it at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self._cut = False
        self._ended = False
        self.sent = False  # bytes of the request may have been sent
        self.answer_headers: Mapping[str, str] = {}

    def run(self, work: Callable[[], T]) -> T:
        """Run `work` in this thread as this call. Raises CallCutError at once if it was cut before it started."""
        if self._cut:
            raise CallCutError
        token = _LIVE_CALL.set(self)
        try:
            return work()
        finally:
            _LIVE_CALL.reset(token)
            with self._lock:
                self._ended = True
                handle, self._handle = self._handle, None
            if handle is not None:
                handle.close()

    def hold(self, descriptor: int) -> None:
        """Keep a duplicate handle of this call's socket, so that it can be shut down independently of its owner."""
        handle = socket.socket(fileno=os.dup(descriptor))
        with self._lock:
            previous, self._handle = self._handle, handle
            if self._cut:
                _shut_down(handle)
        if previous is not None:
            previous.close()

    def cut(self) -> None:
        """Shut the call's socket down; without effect once the call has ended."""
        with self._lock:
            self._cut = True
            if self._handle is not None and not self._ended:
                _shut_down(self._handle)


_LIVE_CALL: ContextVar[LiveCall | None] = ContextVar("live_salesforce_call", default=None)


def leaving(headers: Mapping[str, str] | None = None) -> None:
    """Mark the live call's request as sent or, with `headers`, store the headers of its answer."""
    call = _LIVE_CALL.get()
    if call is not None and headers is None:
        call.sent = True
    elif call is not None and headers is not None:
        call.answer_headers = headers


class _Connection(HTTPSConnection):
    """Connection that gives the live call its socket and marks the request as sent."""

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        call = _LIVE_CALL.get()
        if call is not None:
            call.hold(connected.fileno())
        return connected

    def request(self, *args: Any, **kwargs: Any) -> None:
        call = _LIVE_CALL.get()
        if call is not None:
            if self.sock is not None:
                call.hold(self.sock.fileno())
            call.sent = True
        super().request(*args, **kwargs)


class _Pool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Connection


class _Adapter(HTTPAdapter):
    """Transport adapter without retries, with a time-out on every read and connect, that reads whole answers up to the limit."""

    def __init__(self, timeout_seconds: float, connections: int) -> None:
        self._timeout_seconds = timeout_seconds
        super().__init__(pool_connections=1, pool_maxsize=connections, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Use our own connection class, over TLS only."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"https": _Pool}

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Use our own connection class behind a proxy too."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = {"https": _Pool}
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send once and read the whole answer. Raises AnswerTooLargeError besides what requests raises."""
        kwargs["timeout"] = self._timeout_seconds
        kwargs["stream"] = True
        response = super().send(request, *args, **kwargs)
        content = bytearray()
        for chunk in response.raw.stream(_CHUNK_BYTES, decode_content=True):
            content += chunk
            if len(content) > ANSWER_BYTES_MAX:
                response.raw.close()
                raise ResponseTooLargeError
        response.raw.release_conn()
        response.raw = io.BytesIO(bytes(content))
        leaving(response.headers)
        return response


def make_session(*, ca_file: str | None, timeout_seconds: float, connections: int, proxy_url: str | None) -> requests.Session:
    """Return the session all calls share. It ignores proxies, certificates and credentials of the process environment."""
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0
    session.verify = ca_file if ca_file is not None else True
    session.headers["User-Agent"] = "quotebot"
    if proxy_url is not None:
        session.proxies = {"https": proxy_url}
    adapter = _Adapter(timeout_seconds, connections)
    session.mount("https://", adapter)
    session.adapters.pop("http://")
    return session


def _shut_down(handle: socket.socket) -> None:
    try:
        handle.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # already closed by the other side
