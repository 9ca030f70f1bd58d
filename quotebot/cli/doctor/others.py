"""Checks of Slack, Salesforce and the model's server: login, permissions, reachability.

They post, write and subscribe to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from adapters.failures import AdapterError
from adapters.http import closed_session
from adapters.salesforce.describe import MappingFinding, findings, objects_of
from adapters.salesforce.transport import make_session
from adapters.slack.api import translated
from quotebot.app.clients import connect_model, connect_salesforce, web_client
from quotebot.cli.doctor.checks import OUTAGES, Seen, Site, bad, failed, fine, nothing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pydantic import SecretStr
    from slack_sdk.web.async_client import AsyncWebClient

    from adapters.salesforce.mapping import CrmMapping
    from quotebot.settings import Settings

SKEW_SECONDS_MAX: Final = 30.0
SCOPES: Final = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "chat:write",
        "commands",
        "files:read",
        "files:write",
        "groups:history",
        "im:history",
        "users:read",
    }
)
CHANNEL_SCOPES: Final = {  # without one of them the bot works with restrictions
    "channels:read": "quotes of public channels go to direct messages and are shown in full to few",
    "groups:read": "likewise those of private channels",
    "im:write": "a direct message, such as one to an approver, is not found again after a lost answer",
}
_NO_PREVIEWS: Final = (
    "a link to a record in Salesforce shows no quote (paste manifest.yml with your unfurl_domains, and reinstall the app)"
)
OPTIONAL_SCOPES: Final = {
    "users:read.email": "documents have no e-mail address of who prepared them",
    "links:read": _NO_PREVIEWS,
    "links:write": _NO_PREVIEWS,
}
NOT_CONFIGURED: Final = "it is not configured"
Question = Callable[[Site], Awaitable[Any]]
_NO_WAY: Final = ("network", "timeout")  # codes of a call without an answer


async def reachable(site: Site) -> Seen:
    """Call Slack's Web API without a token."""
    host = urlsplit(str(site.settings.slack_api_url)).netloc
    try:
        with translated("api.test"):
            async with _client(site) as client:
                await client.api_test()
    except AdapterError as error:
        if error.code in _NO_WAY:
            return bad(f"{host} cannot be reached ({_why(error.__cause__)})")
        words = f"{host} answers ({error.code})"
        return failed(error, words) if error.failure in OUTAGES else fine(words)
    return fine(f"{host} answers")


async def bot_token(site: Site) -> Seen:
    """Ask Slack for the owner of the bot token."""
    return await _ask(
        site, site.settings.slack_bot_token, _auth_test, lambda answer: fine(f"it is {answer['user']}'s in {answer['team']}")
    )


async def scopes(site: Site) -> Seen:
    """Compare the token's scopes, by Slack's answer, with those of the manifest."""

    def judge(given: set[str]) -> Seen:
        missing = sorted(SCOPES - given)
        without = "; ".join(
            f"{scope}, which is optional, missing: {what}" for scope, what in OPTIONAL_SCOPES.items() if scope not in given
        )
        return bad(f"{', '.join(missing)} missing") if missing else fine(without or "all of the manifest's")

    return await _judged_scopes(site, judge)


async def channel_scopes(site: Site) -> Seen:
    """Compare the token's scopes with those needed to find out who can read a channel."""

    def judge(given: set[str]) -> Seen:
        missing = [f"{scope} missing: {what}" for scope, what in CHANNEL_SCOPES.items() if scope not in given]
        return bad("; ".join(missing)) if missing else fine("Slack says who reads a channel")

    return await _judged_scopes(site, judge)


async def _judged_scopes(site: Site, judge: Callable[[set[str]], Seen]) -> Seen:
    def read(answer: Any) -> Seen:
        given = _header(answer, "x-oauth-scopes")
        if given is None:
            return nothing("Slack did not say which scopes the token has")
        return judge({scope.strip() for scope in given.split(",")})

    return await _ask(site, site.settings.slack_bot_token, _auth_test, read, refused=nothing)


async def clock(site: Site) -> Seen:
    """Compare this machine's clock with Slack's."""

    def read(answer: Any) -> Seen:
        date = _header(answer, "date")
        if date is None:
            return nothing("Slack did not say what time it is")
        skew = site.now_seconds() - parsedate_to_datetime(date).replace(tzinfo=UTC).timestamp()
        words = f"this clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} Slack's"
        return bad(words) if abs(skew) > SKEW_SECONDS_MAX else fine("this clock agrees with Slack's")

    return await _ask(site, site.settings.slack_bot_token, _auth_test, read, refused=nothing)


async def app_token(site: Site) -> Seen:
    """Request the address of a socket."""
    return await _ask(
        site, site.settings.slack_app_token, _socket_address, lambda _: fine("Slack gives it an address for a socket")
    )


async def socket(site: Site) -> Seen:
    """Connect to the socket's host and disconnect: a fully opened socket would receive users' commands."""
    found: list[str] = []

    def read(address: str) -> Seen:
        found.append(address)
        return fine(f"{urlsplit(address).hostname} can be reached")

    seen = await _ask(site, site.settings.slack_app_token, _socket_address, read, refused=nothing)
    if not found:
        return seen
    parts = urlsplit(found[0])
    secure = parts.scheme == "wss"
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if secure else 80), ssl=secure or None)
    except OSError as error:
        return bad(f"{parts.hostname} cannot be reached ({_why(error)})")
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return seen


async def crm_login(site: Site) -> Seen:
    """Log in to Salesforce."""
    try:
        found = await crm_findings(site.settings)
    except AdapterError as error:
        return failed(error, str(error))
    return nothing("Salesforce is not configured: its writes wait, paused") if found is None else fine("it lets us in")


async def crm_fields(site: Site) -> Seen:
    """Compare the fields that the mapping writes with the org's fields and our permissions."""
    try:
        found = await crm_findings(site.settings)
    except AdapterError as error:
        return nothing(f"Salesforce does not tell ({error.code})")
    if found is None:
        return nothing("Salesforce is not configured")
    return bad("; ".join(f"{each.place}: {each.what}" for each in found)) if found else fine("the org agrees with the mapping")


async def crm_findings(settings: Settings) -> tuple[MappingFinding, ...] | None:
    """Return the differences between the org and the mapping; None if Salesforce is not configured. Raises AdapterError."""
    async with contextlib.AsyncExitStack() as stack:
        salesforce = connect_salesforce(stack, settings)
        if salesforce is None:
            return None
        whole = salesforce.mapping
        mirrors = {str(kind): part for kind, part in whole.mirrors.items() if kind in settings.crm_mirror}
        used = replace(whole, choice=whole.choice if settings.crm_opportunity_lookup else None, mirrors=mirrors)
        names = objects_of(used)
        described = await asyncio.gather(*(salesforce.describe(name) for name in names))
        return (*findings(used, dict(zip(names, described, strict=True))), *_unread_segments(whole, settings))


def _unread_segments(mapping: CrmMapping, settings: Settings) -> Iterator[MappingFinding]:
    """Yield a finding if the mapping names the field of an account's segment, and accounts are not mirrored."""
    accounts = mapping.mirrors.get("accounts")
    if accounts is None or "segment" not in accounts.facts or "accounts" in settings.crm_mirror:
        return
    why = "no account opens a segment: its prices need the approval that the policy says"
    fix = 'add "accounts" to the setting crm_mirror, or remove the field from the mapping'
    yield MappingFinding(f"{accounts.sobject}.{accounts.facts['segment']}", "it says the segment, and nobody reads it", why, fix)


async def model(site: Site) -> Seen:
    """Ask the model's server for its list of models; no model is called."""
    async with contextlib.AsyncExitStack() as stack:
        connected = connect_model(stack, site.settings)
        if connected is None:
            return nothing("no language model is configured: fixed rules read every message")
        host, name = urlsplit(str(site.settings.llm_base_url)).netloc, site.settings.llm_model
        try:
            listed = await connected.llm.models()
        except AdapterError as error:
            return failed(error, f"{host}: {error}")
        return fine(f"{host} has {name}") if name in listed else bad(f"{host} lets us in and does not list {name}")


async def one_retrier(site: Site) -> Seen:
    """Check that no library retries calls outside the ledger's control."""
    async with closed_session() as session:
        client = web_client("", site.settings, session)
        found = [type(handler).__name__ for handler in client.retry_handlers]
    with make_session(ca_file=None, timeout_seconds=1, connections=1) as requests_session:
        retries: Any = requests_session.get_adapter("https://")
        if retries.max_retries.total:
            found.append(f"requests ({retries.max_retries.total})")
    return bad(f"repeat by themselves: {', '.join(found)}") if found else fine("no library retries on its own")


async def _ask(
    site: Site, token: SecretStr | None, question: Question, read: Callable[[Any], Seen], refused: Callable[[str], Seen] = bad
) -> Seen:
    """Send a question to Slack and evaluate the answer. Another check covers whether Slack is reachable."""
    if token is None:
        return nothing(NOT_CONFIGURED)
    try:
        with translated("the check"):
            answer = await question(site)
    except AdapterError as error:
        if error.code in _NO_WAY:
            return nothing("Slack cannot be reached")
        if error.failure not in OUTAGES:
            return refused(f"Slack refused it ({error.code})")
        words = f"Slack is down or busy ({error.code})"
        return failed(error, words) if refused is bad else nothing(words)
    return read(answer)


@contextlib.asynccontextmanager
async def _client(site: Site) -> AsyncIterator[AsyncWebClient]:
    token = site.settings.slack_bot_token
    async with closed_session() as session:
        yield web_client(token.get_secret_value() if token else "", site.settings, session)


async def _auth_test(site: Site) -> Any:
    async with _client(site) as client:
        return await client.auth_test()


async def _socket_address(site: Site) -> str:
    token = site.settings.slack_app_token
    async with _client(site) as client:
        answer = await client.apps_connections_open(app_token=token.get_secret_value() if token else "")
        return str(answer["url"])


def _header(answer: Any, name: str) -> str | None:
    found = {str(header).lower(): value for header, value in answer.headers.items()}.get(name)
    return found[0] if isinstance(found, list) else found


def _why(error: BaseException | None) -> str:
    """Return the system's words for a failed connection."""
    return getattr(error, "strerror", None) or "the connection failed"
