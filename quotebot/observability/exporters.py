"""Who else is told of the bot's work, where an installation asks for it: an OpenTelemetry collector, Sentry.

Both are told what the log says, and less of it (observing.py). A package that is missing is no reason not to work.
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
    """Who is told, and a sentence for each that is configured and cannot be."""

    each: tuple[Observer, ...]
    missing: tuple[str, ...]

    def complain(self) -> None:
        """Say in the log who is not told, and why."""
        for sentence in self.missing:
            log.warning("observer.missing", why=sentence)

    def tell(self, event: str, error: BaseException) -> None:
        """Tell of the process's end."""
        for observer in self.each:
            observer.note({"event": event, "level": "critical"}, error)

    def close(self) -> None:
        """Send what waits, for CLOSING_SECONDS each at most."""
        for observer in self.each:
            observer.close()


def open_observers(settings: Settings, secrets: Sequence[str]) -> Observers:
    """Return those that the settings ask for. A package that is not installed is no reason not to work."""
    each: list[Observer] = []
    missing = []
    if settings.otlp_endpoint is not None:
        try:
            from quotebot.observability.tracing import open_tracing  # noqa: PLC0415 -- an extra: not everybody has its packages
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
