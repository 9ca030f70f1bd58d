"""Construction of the clients of external services: the only module that chooses concrete adapters."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import structlog

from adapters.http import closed_session
from adapters.pdf.renderer import PdfRenderer
from quotebot.app.document_folder import load_seller
from quotebot.app.installation import crm_mapping, load_rules, matrix, storage_of
from quotebot.dispatch.registry import HANDLERS
from quotebot.dispatch.services import Adapters, CallLog, EffectHandlers, Model, Pace, Pacer, ignored
from quotebot.execution.membership import Channels, Directory
from quotebot.settings import slack_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from slack_sdk.web.async_client import AsyncWebClient

    from adapters.salesforce.api import Salesforce
    from adapters.salesforce.calls import ApiUsage
    from adapters.salesforce.transport import Credentials
    from ledger.ledger import Ledger
    from quotebot.settings import Settings

NO_KEY: Final = "none"  # the library requires a key; a server without keys ignores it
# Idle connections are closed after this time: if the server closes one just as it is reused, the call's outcome is uncertain.
# It is longer than a channel's pacing (one message per second), so that the messages of a thread share a connection.
IDLE_SECONDS: Final = 1.5


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outside:
    """Clients of the external services: Slack's client for the socket and the surface, and the adapters for effects."""

    client: AsyncWebClient
    adapters: Adapters


async def connect_outside(stack: contextlib.AsyncExitStack, settings: Settings) -> Outside:
    """Return the clients with real connections; `stack` closes them. Raises ConfigurationError without a Slack token."""
    bot_token, _ = slack_tokens(settings)
    session = await stack.enter_async_context(closed_session(connector=aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS)))
    client = web_client(bot_token, settings, session)
    return Outside(client, build_adapters(stack, client, session, settings))


def web_client(bot_token: str, settings: Settings, session: aiohttp.ClientSession) -> AsyncWebClient:
    """Return Slack's client without its own retries and redirects."""
    from adapters.slack.api import BoundedWebClient  # noqa: PLC0415 -- the start imports Slack only when it needs it

    return BoundedWebClient(
        token=bot_token,
        base_url=str(settings.slack_api_url),
        session=session,
        retry_handlers=[],  # only the ledger retries: a retry by the SDK would post twice
    )


def build_adapters(
    stack: contextlib.AsyncExitStack, client: AsyncWebClient, session: aiohttp.ClientSession, settings: Settings
) -> Adapters:
    """Return the adapters, with the timeouts of their effect classes; `stack` closes those that need it."""
    from adapters.slack.api import SlackApi  # noqa: PLC0415 -- as above

    lines = matrix(settings)
    slack = SlackApi(
        client,
        session,
        response_url_hosts=settings.response_url_hosts,
        timeout_seconds=lines.of("slack.post").timeout_seconds,
        upload_timeout_seconds=lines.of("slack.file").timeout_seconds,
    )
    pdf = PdfRenderer(timeout_seconds=lines.of("pdf.render").timeout_seconds)
    stack.push_async_callback(pdf.close)
    return Adapters(
        slack=slack,
        pdf=pdf,
        artefacts=storage_of(settings).documents(),
        salesforce=connect_salesforce(stack, settings),
        model=connect_model(stack, settings),
    )


@contextlib.asynccontextmanager
async def open_handlers(settings: Settings, ledger: Ledger) -> AsyncIterator[EffectHandlers | None]:
    """Yield the effect handlers for the command line, to reconcile uncertain effects beside the bot; None without a Slack token."""
    if settings.slack_bot_token is None:
        yield None
        return
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(closed_session())
        client = web_client(settings.slack_bot_token.get_secret_value(), settings, session)
        yield build_handlers(settings, ledger, build_adapters(stack, client, session, settings))


def build_handlers(
    settings: Settings, ledger: Ledger, adapters: Adapters, observe_pdf: Callable[[float], object] = ignored
) -> EffectHandlers:
    """Return the effect handlers over these adapters; `observe_pdf` receives the seconds of each rendering."""
    return EffectHandlers(
        ledger,
        adapters,
        load_rules(settings),
        load_seller(settings),
        handlers=HANDLERS,
        settle_delay_seconds=settings.settle_delay_seconds,
        pacer=Pacer(ledger.clock, Pace(settings.slack_messages_at_once), storage_of(settings).paces(ledger)),
        channels=Channels(ledger.clock, adapters.slack, settings.shared_channels),
        directory=Directory(ledger, adapters.slack, enterprise_id=settings.enterprise_id),
        observe_pdf=observe_pdf,
    )


def connect_salesforce(stack: contextlib.AsyncExitStack, settings: Settings) -> Salesforce | None:
    """Return only the Salesforce client, or None if it is not configured; `stack` closes it."""
    url, client_id, lines = settings.salesforce_instance_url, settings.salesforce_client_id, matrix(settings)
    credentials = salesforce_credentials(settings)
    if url is None or client_id is None or credentials is None:
        return None
    from adapters.salesforce.api import Salesforce  # noqa: PLC0415 -- as above

    salesforce = Salesforce(
        url,
        client_id,
        credentials=credentials,
        mapping=crm_mapping(settings),
        ca_file=settings.salesforce_ca_file,
        timeout_seconds=lines.call_seconds_of("crm"),
        threads=lines.concurrency_of("crm"),
        watch=warn_allowance_short,
    )
    stack.push_async_callback(salesforce.close)
    return salesforce


def connect_model(stack: contextlib.AsyncExitStack, settings: Settings, http_client: Any = None) -> Model | None:
    """Return the model, or None if none is configured; `stack` closes it. `http_client` replaces the library's own client."""
    if settings.llm_base_url is None or settings.llm_model is None:
        return None
    from adapters.llm.api import Llm  # noqa: PLC0415 -- as above

    log, key = CallLog(), settings.llm_api_key
    llm = Llm(
        base_url=str(settings.llm_base_url),
        api_key=NO_KEY if key is None else key.get_secret_value(),
        model=settings.llm_model,
        on_call=log.note,
        timeout_seconds=matrix(settings).call_seconds_of("llm"),
        keep_text=settings.llm_keep_text,
        http_client=http_client,
    )
    stack.push_async_callback(llm.close)
    return Model(llm, log)


def warn_allowance_short(usage: ApiUsage) -> None:
    """Log that the org's allowance of API calls runs short; called in a worker thread."""
    what = "see who else calls the org, or ask for more; new quotes are written as long as there is any"
    log.warning("crm.allowance_short", used=usage.used, allowed=usage.allowed, do=what)


def salesforce_credentials(settings: Settings) -> Credentials | None:
    """Return the Salesforce credentials of this installation, or None if they are not configured."""
    from adapters.salesforce.transport import ClientCredentials, JwtBearer  # noqa: PLC0415 -- as above

    client_id, secret = settings.salesforce_client_id, settings.salesforce_client_secret
    username, key = settings.salesforce_username, settings.salesforce_private_key
    if client_id is None:
        return None
    if secret is not None:
        return ClientCredentials(client_id, secret.get_secret_value())
    if username is None or key is None:
        return None
    return JwtBearer(client_id, username, key.get_secret_value(), settings.salesforce_audience)
