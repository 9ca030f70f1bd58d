"""Salesforce: one immutable Quote record with its lines per quote version, written once however often it is asked for.

simple-salesforce speaks the protocol in its direct mode (a token and an instance), the one mode in which it never logs in again
on its own. The login, the single refresh, the deadline and the classification of errors are here.
"""

from __future__ import annotations

import asyncio
import base64
import re
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3

from adapters.failures import AdapterError, Failure
from adapters.retry_after import asked_wait_seconds
from adapters.salesforce_errors import Refusal, Target, login_refused, lost, refused
from adapters.salesforce_graph import (
    HASH_FIELD,
    KEY_FIELD,
    SalesforceLine,
    SalesforceQuote,
    checked_key,
    graph_body,
    read_graph,
)
from adapters.salesforce_transport import AnswerTooLargeError, CallCutError, LiveCall, make_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Salesforce", "SalesforceLine", "SalesforceQuote", "SalesforceRecord"]

T = TypeVar("T")
_OK = 200
_MULTIPLE_CHOICES = 300
_CORRELATION_CHARACTERS_MAX = 128


@dataclass(frozen=True, slots=True)
class SalesforceRecord:
    """The Quote record in Salesforce. `created` is false when it was already there under our key with our hash."""

    record_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class _Request:
    """One REST call below the API version."""

    method: str
    path: str
    target: Target
    body: bytes | None = None
    params: dict[str, str] | None = None


@dataclass(slots=True)
class _Trip:
    """One call of ours, of one or more HTTP exchanges under one deadline."""

    correlation_id: str
    target: Target
    write: LiveCall | None = field(default=None)  # the exchange whose fate is not known yet


class Salesforce:
    """The client. Safe to share between tasks; `threads` calls run at once and the others wait within their own deadline.

    `instance_url` is the org's own https address (https://acme.my.salesforce.com), `ca_file` a PEM file to trust instead of the
    public authorities, `timeout_seconds` the deadline of one whole call, login included. Proxies of the process environment are
    ignored; name one with `proxy_url`. `session` and `executor` replace our own connections and threads.
    """

    def __init__(
        self,
        instance_url: str,
        client_id: str,
        client_secret: str,
        *,
        ca_file: str | None = None,
        api_version: str = "65.0",
        timeout_seconds: float = 20.0,
        threads: int = 4,
        proxy_url: str | None = None,
        session: requests.Session | None = None,
        executor: Executor | None = None,
    ) -> None:
        parts = urlsplit(instance_url)
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise ValueError(
                "the Salesforce instance URL must be an https address without credentials, such as https://acme.my.salesforce.com"
            )
        if ca_file is not None and not Path(ca_file).is_file():
            raise ValueError(f"the certificate file for Salesforce does not exist: {ca_file}")
        self._instance_url = f"https://{parts.netloc}"
        self._client_id = client_id
        self._client_secret = client_secret
        self._api_version = api_version
        self._timeout_seconds = timeout_seconds
        self._session = session or make_session(
            ca_file=ca_file, timeout_seconds=timeout_seconds, connections=threads, proxy_url=proxy_url
        )
        self._threads = executor or ThreadPoolExecutor(threads, thread_name_prefix="salesforce")
        self._live: set[LiveCall] = set()
        self._token: str | None = None
        self._login_lock = asyncio.Lock()
        self._closed = False

    async def create_quote(self, quote: SalesforceQuote, *, correlation_id: str) -> SalesforceRecord:
        """Write the quote and its lines, all or nothing. Repeating it under the same key and hash finds what is there.

        Raises AdapterError: VALIDATION before anything is sent for a bad key or more than 499 lines, CONFLICT when the key holds
        another content, otherwise what Salesforce answered.
        """
        body = graph_body(quote, self._api_version)
        trip = _Trip(correlation_id, Target("write the quote", "Quote", quote.key, writes=True))
        return await self._within_deadline(trip, self._create(quote, body, trip))

    async def find_quote(self, key: str, content_hash: str, *, correlation_id: str) -> SalesforceRecord | None:
        """Look for the quote of that key; None when it is absent. Raises AdapterError, CONFLICT when it holds another content."""
        trip = _Trip(correlation_id, Target("read the quote", "Quote", checked_key(key)))
        return await self._within_deadline(trip, self._find(key, content_hash, trip))

    async def writable_fields(self, sobject: str) -> frozenset[str]:
        """Return the names of the fields of an object that our login may fill in. Raises AdapterError."""
        trip = _Trip("describe", Target("read the fields", sobject))
        found = await self._within_deadline(
            trip, self._authorised(_Request("GET", f"sobjects/{sobject}/describe", trip.target), trip)
        )
        fields = found.get("fields") if isinstance(found, dict) else None
        if not isinstance(fields, list):
            raise lost("unreadable", "its answer names no fields", trip.target, sent=True)
        return frozenset(str(field["name"]) for field in fields if isinstance(field, dict) and field.get("createable") is True)

    async def close(self) -> None:
        """Cut what is running and end the threads. Calls after this fail as transient."""
        self._closed = True
        for call in tuple(self._live):
            call.cut()
        await asyncio.to_thread(self._threads.shutdown, wait=True)
        self._session.close()

    async def _create(self, quote: SalesforceQuote, body: bytes, trip: _Trip) -> SalesforceRecord:
        request = _Request("POST", "composite/graph", trip.target, body)
        answer = await self._authorised(request, trip)
        try:
            result = read_graph(answer, quote)
        except ValueError as error:
            raise lost("unreadable", "its answer is not one to our request", trip.target, sent=True) from error
        if result.quote_id is not None:
            return SalesforceRecord(result.quote_id, created=True)
        trip.write = None  # rolled back as a whole
        refusal = result.refusal or Refusal(_OK, "PROCESSING_HALTED")
        if refusal.code != "DUPLICATE_VALUE":
            raise refused(refusal, replace(trip.target, sobject=result.sobject, values=result.values), rolled_back=True)
        found = await self._find(quote.key, quote.content_hash, trip)
        if found is None:
            message = (
                f"Salesforce says that {result.sobject} of {quote.key} is a duplicate (DUPLICATE_VALUE) but holds no quote under "
                "that key. Nothing was written; another try is safe."
            )
            raise AdapterError(Failure.TRANSIENT, refusal.code, message, http_status=refusal.status)
        return found

    async def _find(self, key: str, content_hash: str, trip: _Trip) -> SalesforceRecord | None:
        target = Target("read the quote", "Quote", key)
        path = f"sobjects/Quote/{KEY_FIELD}/{key}"
        try:
            found = await self._authorised(_Request("GET", path, target, params={"fields": f"Id,{HASH_FIELD}"}), trip)
        except AdapterError as error:
            if error.code == "NOT_FOUND":
                return None
            raise
        if not isinstance(found, dict) or not isinstance(found.get("Id"), str):
            raise lost("unreadable", "its answer is not a record", target, sent=True)
        if found.get(HASH_FIELD) == content_hash:
            return SalesforceRecord(found["Id"], created=False)
        message = (
            f"Salesforce already holds another content under the key {key} (record {found['Id']}): its {HASH_FIELD} differs "
            "from ours. Nothing was written. Look at the record before replaying it."
        )
        raise AdapterError(Failure.CONFLICT, "content_differs", message)

    async def _within_deadline(self, trip: _Trip, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await work
        except TimeoutError as error:
            sent = trip.write is not None and trip.write.sent
            what = f"no answer within {self._timeout_seconds:g} s"
            raise lost("timeout", what, trip.target, sent=sent) from error

    async def _authorised(self, request: _Request, trip: _Trip) -> Any:
        """Send one request with a token; when the session has expired, log in once more and send it once more."""
        token = await self._valid_token(None)
        try:
            return await self._exchange(request, token, trip)
        except AdapterError as error:
            if error.code != "INVALID_SESSION_ID":
                raise
        trip.write = None  # refused at the door
        return await self._exchange(request, await self._valid_token(token), trip)

    async def _valid_token(self, rejected: str | None) -> str:
        """Return a token other than `rejected`; whoever comes first logs in and the others wait for it."""
        async with self._login_lock:
            if self._token is None or self._token == rejected:
                self._token = None
                call = LiveCall()
                self._token = await self._in_thread(call, partial(self._log_in, call))
            return self._token

    async def _exchange(self, request: _Request, token: str, trip: _Trip) -> Any:
        call = LiveCall()
        if request.target.writes:
            trip.write = call
        return await self._in_thread(call, partial(self._send, request, token, trip.correlation_id, call))

    async def _in_thread(self, call: LiveCall, work: Callable[[], T]) -> T:
        """Run blocking work on our own threads; a deadline or a cancellation cuts its socket, so the thread ends too."""
        if self._closed:
            raise _shut_down()
        future = self._threads.submit(call.run, work)
        self._live.add(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            call.cut()
            raise
        except CallCutError as error:  # it was still waiting for a thread when the client was closed
            raise _shut_down() from error
        finally:
            self._live.discard(call)

    def _send(self, request: _Request, token: str, correlation_id: str, call: LiveCall) -> Any:
        """Send one request, in a worker thread. Raises AdapterError."""
        # Imported at first use: it takes a sixth of a second and tens of megabytes.
        from simple_salesforce.api import Salesforce as RestClient  # noqa: PLC0415 -- slow to import
        from simple_salesforce.exceptions import SalesforceError  # noqa: PLC0415 -- slow to import

        client = RestClient(
            session_id=token,
            instance_url=self._instance_url,
            version=self._api_version,
            session=self._session,
            parse_float=Decimal,
            object_pairs_hook=dict,
        )
        headers = {"X-Request-Id": _header_value(correlation_id), "Sforce-Call-Options": "client=quotebot"}
        ask = partial(
            client.restful, request.path, method=request.method, params=request.params, data=request.body, headers=headers
        )
        try:
            return self._guarded(ask, request.target, call)
        except SalesforceError as error:
            refusal = Refusal.read(error.status, error.content)
            raise refused(refusal, request.target, retry_after_seconds=asked_wait_seconds(call.answer_headers)) from error

    def _log_in(self, call: LiveCall) -> str:
        """Get a token by client credentials, in a worker thread. Raises AdapterError."""
        target = Target("log in")
        credentials = base64.b64encode(f"{self._client_id}:{self._client_secret}".encode()).decode("ascii")
        ask = partial(
            self._session.post,
            f"{self._instance_url}/services/oauth2/token",
            data={"grant_type": "client_credentials"},
            headers={"Authorization": f"Basic {credentials}"},
        )
        response = self._guarded(ask, target, call)
        try:
            content = response.json()
        except (ValueError, RecursionError):
            content = None
        if response.status_code >= _MULTIPLE_CHOICES:
            raise login_refused(response.status_code, content, retry_after_seconds=asked_wait_seconds(call.answer_headers))
        token = content.get("access_token") if isinstance(content, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise lost("unreadable", "its answer holds no token", target, sent=True)
        return token

    def _guarded(self, ask: Callable[[], T], target: Target, call: LiveCall) -> T:
        """Run one exchange and translate what the network and the library can do to it; refusals pass through."""
        try:
            return ask()
        except requests.exceptions.TooManyRedirects as error:
            message = (
                f"Salesforce redirected the request to {target.deed} elsewhere, which is never followed. Nothing was written. "
                "Set the instance URL to the org's own address, then replay it."
            )
            raise AdapterError(Failure.VALIDATION, "redirect", message) from error
        except requests.exceptions.JSONDecodeError as error:
            raise lost("unreadable", "its answer is not JSON", target, sent=True) from error
        except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise lost("timeout", "no answer in time", target, sent=call.sent) from error
        except requests.exceptions.SSLError as error:
            what = "the secure connection failed (if this stays, check the trusted certificates)"
            raise lost("tls", what, target, sent=call.sent) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            what = "the connection broke before the answer" if call.sent else "no connection"
            raise lost("network", what, target, sent=call.sent) from error
        except AnswerTooLargeError as error:
            raise lost("unreadable", "its answer is too large", target, sent=True) from error
        except (ValueError, TypeError, RecursionError) as error:
            if not call.sent:
                raise AdapterError(Failure.INTERNAL, "bad_request", f"Could not build the request to {target.deed}.") from error
            raise lost("unreadable", "its answer cannot be read", target, sent=call.sent) from error


def _shut_down() -> AdapterError:
    message = "The Salesforce client is shut down. Nothing was sent; another try is safe."
    return AdapterError(Failure.TRANSIENT, "closed", message)


def _header_value(correlation_id: str) -> str:
    return re.sub(r"[^\x21-\x7e]", "_", correlation_id)[:_CORRELATION_CHARACTERS_MAX]
