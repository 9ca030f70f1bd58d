"""Optional observers of the bot: an OpenTelemetry collector and Sentry.

Both receive a subset of the log's facts (`told` in logs.py). If an observer's package is missing, the bot works without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.observability.logs import Observer
    from quotebot.settings import Settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Observers:
    """The active observers, and a sentence for each that is configured but unavailable."""

    each: tuple[Observer, ...]
    missing: tuple[str, ...]

    def complain(self) -> None:
        """Log the unavailable observers and the reason."""
        for sentence in self.missing:
            log.warning("observer.missing", why=sentence)

    def tell(self, event: str, error: BaseException) -> None:
        """Report the error that ends the process."""
        for observer in self.each:
            observer.note({"event": event, "level": "critical"}, error)

    def close(self) -> None:
        """Send what is queued, for CLOSING_SECONDS per observer at most."""
        for observer in self.each:
            observer.close()


def open_observers(settings: Settings, secrets: Sequence[str]) -> Observers:
    """Return the configured observers. A package that is not installed does not stop the bot."""
    each: list[Observer] = []
    missing = []
    if settings.otlp_endpoint is not None:
        try:
            from quotebot.observability.tracing import open_tracing  # noqa: PLC0415 -- an extra that may not be installed
        except ImportError as error:
            missing.append(_sentence("OTEL_EXPORTER_OTLP_ENDPOINT", "traces", "otel", error))
        else:
            headers = settings.otlp_headers
            value = "" if headers is None else headers.get_secret_value()
            each.append(open_tracing(str(settings.otlp_endpoint), value, secrets))
    if settings.sentry_dsn is not None:
        try:
            from quotebot.observability.sentry import open_reports  # noqa: PLC0415 -- as above
        except ImportError as error:
            missing.append(_sentence("SENTRY_DSN", "errors", "sentry", error))
        else:
            try:
                each.append(open_reports(settings.sentry_dsn.get_secret_value(), secrets))
            except ValueError:
                missing.append("SENTRY_DSN is no address of a Sentry project; no errors are sent. Copy it again from its settings.")
    return Observers(tuple(each), tuple(missing))


def _sentence(variable: str, what: str, extra: str, error: ImportError) -> str:
    how = "pip install --require-hashes -r requirements.lock -r requirements-extras.lock"
    return f"{variable} is set, but {error.name} is not installed; no {what} are sent. Install the extra {extra}: {how}"
