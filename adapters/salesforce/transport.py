"""HTTP transport to Salesforce: OAuth token requests, and a session without retries or redirects, whose sockets can be shut down.

Logins use client credentials or a signed assertion (JWT bearer), never a password; adapters/salesforce/calls.py sends them.

requests has no total deadline (its time-outs are per read, so a slow server outlasts them) and a thread cannot be cancelled.
So every call holds a duplicate handle of its socket; `cut` shuts the socket down and the thread ends at once.
"""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import requests
import urllib3
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ASSERTION_SECONDS = 180  # Salesforce rejects assertions valid for more than about three minutes
KEY_BITS_MIN = 2048
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"

T = TypeVar("T")
ANSWER_BYTES_MAX = 8 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class KeyUnusableError(ValueError):
    """The private key cannot be used for signing; the message gives the reason and never contains the key."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Form fields and headers of a request to /services/oauth2/token. Both hold secrets."""

    form: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Consumer key and secret of the connected app; Salesforce runs as the user that the app names."""

    client_id: str
    client_secret: str = field(repr=False)

    def request(self) -> TokenRequest:
        """Return the token request with HTTP Basic authentication, so that the form does not contain the secret."""
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode("ascii")
        return TokenRequest({"grant_type": "client_credentials"}, {"Authorization": f"Basic {basic}"})


@dataclass(frozen=True, slots=True)
class JwtBearer:
    """User name and an assertion signed with the private key whose certificate the connected app holds. No secret is sent.

    `private_key` is PEM text of an RSA key without a passphrase; `audience` is https://login.salesforce.com, for a sandbox org
    https://test.salesforce.com; `now` returns Unix seconds: the assertion expires ASSERTION_SECONDS later.
    """

    client_id: str
    username: str
    private_key: str = field(repr=False)
    audience: str = "https://login.salesforce.com"
    now: Callable[[], float] = field(repr=False, default=time.time)

    def request(self) -> TokenRequest:
        """Return the token request with a fresh assertion. Raises KeyUnusableError."""
        claims = {
            "iss": self.client_id,
            "sub": self.username,
            "aud": self.audience,
            "exp": int(self.now()) + ASSERTION_SECONDS,
        }
        return TokenRequest({"grant_type": _JWT_GRANT, "assertion": signed(claims, self.private_key)})


Credentials = ClientCredentials | JwtBearer  # `request` builds the token request of one login; it runs in a worker thread


def signed(claims: Mapping[str, object], private_key: str) -> str:
    """Return the claims as a JWT signed with RS256, the only algorithm Salesforce accepts. Raises KeyUnusableError."""
    try:
        key = load_pem_private_key(private_key.strip().encode(), password=None)
    except (ValueError, TypeError) as error:  # TypeError: it has a passphrase
        raise KeyUnusableError("the private key is not a PEM key without a passphrase") from error
    if not isinstance(key, RSAPrivateKey) or key.key_size < KEY_BITS_MIN:
        raise KeyUnusableError(f"the private key is not an RSA key of at least {KEY_BITS_MIN} bits")
    parts = [_part({"alg": "RS256", "typ": "JWT"}), _part(claims)]
    signature = key.sign(".".join(parts).encode(), PKCS1v15(), SHA256())
    return ".".join((*parts, _base64url(signature)))


def _part(content: Mapping[str, object]) -> str:
    return _base64url(json.dumps(content, separators=(",", ":")).encode())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


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


def make_session(*, ca_file: str | None, timeout_seconds: float, connections: int) -> requests.Session:
    """Return the session all calls share. It ignores proxies, certificates and credentials of the process environment."""
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0
    session.verify = ca_file if ca_file is not None else True
    session.headers["User-Agent"] = "quotebot"
    adapter = _Adapter(timeout_seconds, connections)
    session.mount("https://", adapter)
    session.adapters.pop("http://")
    return session


def _shut_down(handle: socket.socket) -> None:
    try:
        handle.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # already closed by the other side
