"""Reports for Sentry (`quotebot[sentry]`): each error line of the log, including dead letters, and never a retry.

A report contains the kind of failure, its place in our code, and the references to find it here. It has no message, no variables
and no breadcrumbs: the text of an exception may quote user input. Sentry's own hooks into other libraries are off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sentry_sdk import Client
from sentry_sdk.transport import HttpTransport
from sentry_sdk.utils import event_from_exception

from quotebot import __version__
from quotebot.observability.logs import CLOSING_SECONDS, exported_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEVELS: Final = {"error": "error", "critical": "fatal"}
OPTIONS: Final[Mapping[str, Any]] = {
    "default_integrations": False,
    "auto_enabling_integrations": False,
    "auto_session_tracking": False,
    "send_client_reports": False,
    "include_local_variables": False,
    "include_source_context": False,
    "enable_backpressure_handling": False,
    "max_breadcrumbs": 0,
    "shutdown_timeout": CLOSING_SECONDS,
}
_OUR_OWN: Final = ("sentry_sdk", "urllib3")  # their errors about a report are not reported


class ErrorReports:
    """Reporter of error lines; the client sends them from its own thread."""

    def __init__(self, client: Any, secrets: Sequence[str]) -> None:
        self._client = client
        self._secrets = secrets

    def note(self, line: Mapping[str, object], error: BaseException | None) -> None:
        """Report an error line."""
        level, logger = LEVELS.get(str(line.get("level"))), str(line.get("logger", "quotebot"))
        if level is None or logger.startswith(_OUR_OWN):
            return
        self._client.capture_event(self.report(level, logger, line, error))

    def report(self, level: str, logger: str, line: Mapping[str, object], error: BaseException | None) -> dict[str, Any]:
        """Return a line as a Sentry event. Lines with the same event, class and kind of failure form one issue."""
        tags = exported_fields(line, self._secrets)
        kind = tags.get("category") or (type(error).__name__ if error is not None else "")
        event = {
            "level": level,
            "logger": logger,
            "message": str(line["event"]),
            "tags": {name: str(value) for name, value in sorted(tags.items())},
            "fingerprint": [str(line["event"]), str(tags.get("effect_class") or tags.get("action_kind") or logger), str(kind)],
        }
        return event if error is None else {**event, "exception": {"values": self._stack(error)}}

    def close(self) -> None:
        """Send what is queued, for CLOSING_SECONDS at most."""
        self._client.close(timeout=CLOSING_SECONDS)

    def _stack(self, error: BaseException) -> list[dict[str, Any]]:
        described, _ = event_from_exception(error, client_options=self._client.options)
        return [{**each, "value": None} for each in described["exception"]["values"]]


class Direct(HttpTransport):  # type: ignore[misc] # mypy does not look into the extra's packages
    """Sentry's transport without redirects and retries; it reads the status and headers of a response, but not the body."""

    def _request(self, method: str, endpoint_type: Any, body: Any, headers: Mapping[str, str]) -> Any:
        address = self._auth.get_api_url(endpoint_type)
        return self._pool.request(method, address, body=body, headers=headers, redirect=False, retries=False, preload_content=False)


def open_reports(dsn: str, secrets: Sequence[str]) -> ErrorReports:
    """Return a reporter to the project of a DSN. Raises ValueError if the DSN is invalid."""
    return ErrorReports(Client(dsn=dsn, transport=Direct, release=f"quotebot@{__version__}", **OPTIONS), (*secrets, dsn))
