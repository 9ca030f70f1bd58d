"""Sender of every Salesforce request: one shared login, one renewal of it, one deadline, and errors in our vocabulary.

simple-salesforce runs in its direct mode (a token and an instance), the only mode in which it never logs in by itself.

A token is verified before it is shared: the call that logs in sends the first request with it, alone. A session that is refused
permanently therefore costs one login and at most two requests, however many calls wait for it: they share the refusal.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import requests
import urllib3

from adapters.failures import AdapterError, Failure
from adapters.http import asked_wait_seconds, call_seconds
from adapters.salesforce.errors import TIMED_OUT, SalesforceRefusal, Target, login_refused, lost, refused
from adapters.salesforce.transport import CallCutError, Credentials, KeyUnusableError, LiveCall, ResponseTooLargeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping


WARNING_SHARE = 0.80  # from here on operators are notified
RESERVED_SHARE = 0.90  # from here on only interactive calls are sent
_USAGE = re.compile(r"(?:^|[,;\s])api-usage=([0-9]{1,12})/([0-9]{1,12})(?:$|[,;\s])")


@dataclass(frozen=True, slots=True)
class ApiUsage:
    """Calls of the last 24 hours, by every client of the org, and the org's allowance."""

    used: int
    allowed: int

    @property
    def share(self) -> float:
        """Used fraction of the allowance: 0..1, above 1 when exceeded."""
        return self.used / self.allowed

    @property
    def warns(self) -> bool:
        """True if operators should be notified."""
        return self.share >= WARNING_SHARE

    @property
    def reserved(self) -> bool:
        """True if the remaining calls are reserved for interactive work."""
        return self.share >= RESERVED_SHARE


def read_usage(headers: Mapping[str, str]) -> ApiUsage | None:
    """Parse the header `Sforce-Limit-Info: api-usage=25/100000`; None when it is missing or unreadable."""
    found = _USAGE.search(headers.get("Sforce-Limit-Info", ""))
    if found is None or int(found.group(2)) == 0:
        return None
    return ApiUsage(int(found.group(1)), int(found.group(2)))


T = TypeVar("T")
SESSION_REFUSED = "INVALID_SESSION_ID"
NOT_THERE = frozenset({"NOT_FOUND"})
_MULTIPLE_CHOICES = 300
_CORRELATION_CHARACTERS_MAX = 128


@dataclass(frozen=True, slots=True)
class RestRequest:
    """One REST call below the API version."""

    method: str
    path: str
    target: Target
    body: bytes | None = None
    params: dict[str, str] | None = None


@dataclass(slots=True)
class Trip:
    """One call of ours, of one or more HTTP exchanges under one deadline."""

    correlation_id: str
    target: Target
    write: LiveCall | None = field(default=None)  # the write whose outcome is not known yet


class SalesforceCalls:
    """Request sender. Safe to share between tasks; `threads` exchanges run at once, the others wait within their own deadline."""

    def __init__(
        self,
        instance_url: str,
        credentials: Credentials,
        *,
        api_version: str,
        timeout_seconds: float,
        session: requests.Session,
        threads: int,
        executor: Executor | None = None,
        watch: Callable[[ApiUsage], None] | None = None,
    ) -> None:
        """`watch` receives the usage of the org's allowance each time it begins to run short, in a worker thread."""
        self._instance_url = instance_url
        self._credentials = credentials
        self._api_version = api_version
        self._timeout_seconds = timeout_seconds
        self._session = session
        self._threads = executor or ThreadPoolExecutor(threads, thread_name_prefix="salesforce")
        self._watch = watch or (lambda _usage: None)
        self._live: set[LiveCall] = set()
        self._token: str | None = None
        self._renewing = asyncio.Lock()
        self._refusals = 0  # renewals that ended with a refused session or with none
        self._refusal: AdapterError | None = None
        self._ended: str | None = None  # the last session that could not be renewed
        self._closed = False
        self.usage: ApiUsage | None = None
        self._spared: ApiUsage | None = None  # the usage report for which background work has already paused

    def note_usage(self, usage: ApiUsage) -> None:
        """Keep the usage that an answer reported. The watcher is called when it runs short, and again only after a recovery."""
        before, self.usage = self.usage, usage
        if usage.warns and not (before is not None and before.warns):
            self._watch(usage)

    def spare_usage(self) -> bool:
        """Return whether the org's allowance is nearly used up; true at most once per usage report."""
        spared = self._spared
        usage, self._spared = self.usage, self.usage
        return usage is not None and usage is not spared and usage.reserved

    async def within_deadline(self, trip: Trip, work: Awaitable[T], *, seconds: float | None = None) -> T:
        """Await the work for at most `seconds`, and never beyond the call's deadline (see `call_seconds`). Raises AdapterError."""
        limit = call_seconds(self._timeout_seconds)
        limit = limit if seconds is None else min(seconds, limit)
        try:
            async with asyncio.timeout(limit):
                return await work
        except TimeoutError as error:
            sent = trip.write is not None and trip.write.sent
            raise lost(TIMED_OUT, f"no answer within {limit:g} s", trip.target, sent=sent) from error

    async def authorised(self, request: RestRequest, trip: Trip) -> Any:
        """Send one request with a session; when it has expired, renew it once and send once more. Raises AdapterError."""
        token = self._token
        if token is None:
            return await self._first_to_use(request, trip, None)
        try:
            return await self._exchange(request, token, trip)
        except AdapterError as error:
            if error.code != SESSION_REFUSED:
                raise
        trip.write = None  # refused before any work
        return await self._first_to_use(request, trip, token)

    async def rows(
        self, query: str, trip: Trip, *, seconds: float | None = None, deleted_too: bool = False
    ) -> list[dict[str, Any]]:
        """Return the first page of a query's (SOQL) records, within the deadline. Raises AdapterError.

        `deleted_too` includes records in the recycle bin.
        """
        request = RestRequest("GET", "queryAll" if deleted_too else "query", trip.target, params={"q": query})
        found = await self.within_deadline(trip, self.authorised(request, trip), seconds=seconds)
        rows = found.get("records") if isinstance(found, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise lost("unreadable", "its answer holds no records", trip.target, sent=True)
        return rows

    async def record(
        self, place: str, names: Iterable[str], target: Target, trip: Trip, *, gone: frozenset[str] = NOT_THERE
    ) -> dict[str, Any] | None:
        """Return fields of the record at this path; None when it does not exist (one of the codes `gone`). Raises AdapterError."""
        fields = ",".join(dict.fromkeys(("Id", *names)))
        try:
            found = await self.authorised(RestRequest("GET", place, target, params={"fields": fields}), trip)
        except AdapterError as error:
            if error.code in gone:
                return None
            raise
        if not isinstance(found, dict) or not isinstance(found.get("Id"), str):
            raise lost("unreadable", "its answer is not a record", target, sent=True)
        return found

    async def close(self) -> None:
        """Cancel running calls and end the threads. Calls after this fail as transient."""
        self._closed = True
        for call in tuple(self._live):
            call.cut()
        await asyncio.to_thread(self._threads.shutdown, wait=True)
        self._session.close()

    async def _first_to_use(self, request: RestRequest, trip: Trip, expired: str | None) -> Any:
        """Send with a session other than `expired`: the first caller logs in and verifies it by its request, others wait."""
        refusals = self._refusals
        async with self._renewing:
            waited_in_vain = self._refusals != refusals or (expired is not None and expired == self._ended)
            if waited_in_vain and self._refusal is not None:
                raise AdapterError(  # a copy for this call, which sent nothing
                    self._refusal.failure,
                    self._refusal.code,
                    str(self._refusal),
                    http_status=self._refusal.http_status,
                    retry_after_seconds=self._refusal.retry_after_seconds,
                )
            if self._token is None or self._token == expired:
                return await self._renewed(request, trip, expired)
            token = self._token
        return await self._exchange(request, token, trip)

    async def _renewed(self, request: RestRequest, trip: Trip, expired: str | None) -> Any:
        """Log in, then send the request. The session is shared only if this request is not refused because of the session.

        A new session that is refused at once would be refused again: the org accepts none of this app's sessions, although the
        login succeeded. Another login would not help, so a permanent refusal costs one login and at most two requests.
        """
        self._token = None
        try:
            call = LiveCall()
            token = await self._in_thread(call, partial(self._log_in, call))
        except AdapterError as error:
            self._share(error, expired)
            raise
        try:
            answer = await self._exchange(request, token, trip)
        except AdapterError as error:
            if error.code == SESSION_REFUSED:
                self._share(error, expired)
            else:
                self._token = token
            raise
        except asyncio.CancelledError:
            self._token = token  # not refused: keep the session
            raise
        self._token = token
        return answer

    def _share(self, refusal: AdapterError, expired: str | None) -> None:
        """Record the refusal for the calls that wait for a session, so that they do not log in again."""
        self._refusals += 1
        self._ended = expired
        self._refusal = refusal

    async def _exchange(self, request: RestRequest, token: str, trip: Trip) -> Any:
        call = LiveCall()
        if request.target.writes:
            trip.write = call
        return await self._in_thread(call, partial(self._send, request, token, trip.correlation_id, call))

    async def _in_thread(self, call: LiveCall, work: Callable[[], T]) -> T:
        """Run blocking work on our own threads; a deadline or a cancellation shuts its socket down, so the thread ends too."""
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

    def _send(self, request: RestRequest, token: str, correlation_id: str, call: LiveCall) -> Any:
        """Send one request, in a worker thread. Raises AdapterError."""
        # Imported at first use: the import takes about 170 ms and tens of megabytes.
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
        request_id = re.sub(r"[^\x21-\x7e]", "_", correlation_id)[:_CORRELATION_CHARACTERS_MAX]
        headers = {"X-Request-Id": request_id, "Sforce-Call-Options": "client=quotebot"}
        ask = partial(
            client.restful, request.path, method=request.method, params=request.params, data=request.body, headers=headers
        )
        try:
            return self._guarded(ask, request.target, call)
        except SalesforceError as error:
            refusal = SalesforceRefusal.read(error.status, error.content)
            raise refused(refusal, request.target, retry_after_seconds=asked_wait_seconds(call.answer_headers)) from error
        finally:
            usage = read_usage(call.answer_headers)
            if usage is not None:
                self.note_usage(usage)

    def _log_in(self, call: LiveCall) -> str:
        """Get a token, in a worker thread. Raises AdapterError."""
        target = Target("log in")
        try:
            login = self._credentials.request()
        except KeyUnusableError as error:
            message = f"Could not log in to Salesforce: {error}. Nothing was sent. Set another key, then resume the CRM."
            raise AdapterError(Failure.AUTH, "private_key_unusable", message) from error
        url = f"{self._instance_url}/services/oauth2/token"
        ask = partial(self._session.post, url, data=dict(login.form), headers=dict(login.headers))
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
        """Run one exchange and translate errors of the network and the library; refusals pass through."""
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
            raise lost(TIMED_OUT, "no answer in time", target, sent=call.sent) from error
        except requests.exceptions.SSLError as error:
            what = "the secure connection failed (if this stays, check the trusted certificates)"
            raise lost("tls", what, target, sent=call.sent) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            what = "the connection broke before the answer" if call.sent else "no connection"
            raise lost("network", what, target, sent=call.sent) from error
        except ResponseTooLargeError as error:
            raise lost("unreadable", "its answer is too large", target, sent=True) from error
        except (ValueError, TypeError, RecursionError) as error:
            if not call.sent:
                raise AdapterError(Failure.INTERNAL, "bad_request", f"Could not build the request to {target.deed}.") from error
            raise lost("unreadable", "its answer cannot be read", target, sent=call.sent) from error


def _shut_down() -> AdapterError:
    message = "The Salesforce client is shut down. Nothing was sent; another try is safe."
    return AdapterError(Failure.TRANSIENT, "closed", message)


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def soql_text(text: str) -> str:
    """Return the text as a literal, including the quotes."""
    return _soql("{}", text)


def soql_beginning(text: str) -> str:
    """Return a LIKE literal that matches values beginning with the text; its own % and _ are escaped."""
    return _soql("'{:like}%'", text)


def soql_containing(text: str) -> str:
    """Return a LIKE literal that matches values containing the text; its own % and _ are escaped."""
    return _soql("'%{:like}%'", text)


def _soql(literal: str, text: str) -> str:
    from simple_salesforce.format import format_soql  # noqa: PLC0415 -- slow to import

    return str(format_soql(literal, _CONTROL.sub(" ", text)))


def soql_moment(modstamp: str, *, back_seconds: float = 0.0) -> str:
    """Return a timestamp in Salesforce's format (2026-11-21T10:31:00.000+0000) as a UTC literal, `back_seconds` earlier.

    Raises ValueError if it is not a timestamp.
    """
    moment = datetime.fromisoformat(modstamp).astimezone(UTC) - timedelta(seconds=back_seconds)
    return moment.isoformat(timespec="milliseconds")
