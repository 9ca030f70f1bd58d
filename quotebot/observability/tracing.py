"""Traces for OpenTelemetry (`quotebot[otel]`): one per command from its arrival on, with a span per attempt of its effects.

The spans are built from log lines after the fact. A trace's id is derived from the reference that people see (c-7f91ab12), so an
attempt after a restart, or a replay a week later, belongs to the same trace without any stored state.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import RandomIdGenerator, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.util.re import parse_env_headers

from adapters.reporting import reporting_session
from quotebot import __version__
from quotebot.observability.logs import CLOSING_SECONDS, exported_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXPORT_SECONDS: Final = 5.0
ATTEMPTS: Final = frozenset({"effect.delivered", "effect.retry", "effect.doubt", "effect.failed", "effect.superseded"})
FAILED: Final = frozenset({"effect.retry", "effect.doubt", "effect.failed"})

log = structlog.get_logger(__name__)


class Tracing:
    """Converter of log lines to spans; the exporter sends them from its own thread."""

    def __init__(self, exporter: Any, secrets: Sequence[str]) -> None:
        ours = Resource({"service.name": "quotebot", "service.version": __version__})
        self._ids = _Ids()
        self._lock = threading.Lock()
        self._secrets = secrets
        self._provider = TracerProvider(
            resource=ours.merge(OTELResourceDetector().detect()),  # OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("quotebot", __version__)

    def note(self, line: Mapping[str, object], error: BaseException | None) -> None:
        """Create a span for a line about a command or one of its effects; for an error line, a span without duration."""
        del error
        event, reference = str(line.get("event")), line.get("correlation_id")
        if not isinstance(reference, str):
            return
        if event == "operation.completed":
            self._span(f"command {line.get('action_kind')}", line, reference, root=True)
        elif event in ATTEMPTS:
            self._span(str(line.get("effect_class")), line, reference, failed=event in FAILED)
        elif line.get("level") in ("error", "critical"):
            self._span(event, {**line, "latency_ms": 0}, reference, failed=True)

    def close(self) -> None:
        """Send what is queued; a collector that does not answer within CLOSING_SECONDS is abandoned."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True, name="tracing.close")
        closing.start()
        closing.join(CLOSING_SECONDS)

    def _span(self, name: str, line: Mapping[str, object], reference: str, *, root: bool = False, failed: bool = False) -> None:
        ended = _nanoseconds(str(line["timestamp"]))
        took = line.get("latency_ms")
        began = ended - round(took * 1_000_000) if isinstance(took, int | float) else ended
        attributes = {f"quotebot.{key}": value for key, value in exported_fields(line, self._secrets).items()}
        trace_id, root_id = ids_of(reference)
        with self._lock:
            self._ids.root = (trace_id, root_id) if root else None
            span = self._tracer.start_span(
                name,
                context=None if root else _inside(trace_id, root_id),
                kind=SpanKind.CONSUMER if root else SpanKind.CLIENT,
                attributes=attributes,
                start_time=began,
            )
        if failed:
            span.set_status(Status(StatusCode.ERROR, str(attributes.get("quotebot.category", name))))
        span.end(ended)


class _Ids(RandomIdGenerator):  # type: ignore[misc] # mypy does not look into the extra's packages
    """Id generator: the ids of a command's own span come from its reference; all others are random."""

    root: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        """Return the id of the trace."""
        return int(super().generate_trace_id()) if self.root is None else self.root[0]

    def generate_span_id(self) -> int:
        """Return the id of the span."""
        return int(super().generate_span_id()) if self.root is None else self.root[1]


class Quietly:
    """Exporter that logs once when the collector becomes unreachable, and once when it is reachable again."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._away = False

    def export(self, spans: Sequence[Any]) -> Any:
        """Send a batch; a failed batch is dropped."""
        result = self._exporter.export(spans)
        away = result is not SpanExportResult.SUCCESS
        if away != self._away:
            self._away = away
            log.info("tracing.away" if away else "tracing.back", spans=len(spans))
        return result

    def shutdown(self) -> None:
        """Stop an export in progress."""
        self._exporter.shutdown()


def open_tracing(endpoint: str, headers: str, secrets: Sequence[str]) -> Tracing:
    """Return the tracing to a collector by OTLP over HTTP.

    `endpoint` is the collector's base address, `headers` has the format of OTel's variable.
    """
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # Quietly logs failures
    exporter = OTLPSpanExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/traces",
        headers=parse_env_headers(headers, liberal=True),
        timeout=EXPORT_SECONDS,
        session=reporting_session(),
    )
    return Tracing(Quietly(exporter), secrets)


def ids_of(reference: str) -> tuple[int, int]:
    """Return the ids of a command's trace and of its own span."""
    digest = hashlib.sha256(f"quotebot {reference}".encode()).digest()  # its beginning is keys.trace_id, which the log names
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def _inside(trace_id: int, span_id: int) -> Any:
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(parent))


def _nanoseconds(timestamp: str) -> int:
    moment = datetime.fromisoformat(timestamp)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
