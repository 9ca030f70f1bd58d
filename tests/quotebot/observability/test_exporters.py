"""Tests of the exports to a collector and Sentry, with their real packages: enough to diagnose, and no person's text."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import brotli
import pytest
from structlog.testing import capture_logs

from ledger.keys import trace_id
from quotebot.observability.exporters import Observers, open_observers
from quotebot.observability.logs import TOLD, exported_fields
from quotebot.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOT_HERE: Final = "the extra's packages are not installed (pip install opentelemetry-exporter-otlp-proto-http sentry-sdk)"
LINE: Final[dict[str, object]] = {"event": "operation.completed", "level": "info", "timestamp": "2026-11-21T10:00:01.500000Z"}
COMMAND: Final = {**LINE, "correlation_id": "c-7f91ab12", "action_kind": "quote.create", "outcome": "applied", "latency_ms": 500}
EFFECT: Final = {
    **LINE,
    "correlation_id": "c-7f91ab12",
    "effect_class": "crm.create",
    "effect_id": 118,
    "latency_ms": 40,
    "attempt": 1,
}
DELIVERED: Final = {**EFFECT, "event": "effect.delivered", "already_there": False}
RETRY: Final = {**EFFECT, "event": "effect.retry", "level": "warning", "category": "transient", "http_status": 503}
DEAD: Final = {**EFFECT, "event": "dead_letter", "level": "error", "category": "validation", "dead": True}
CANARY: Final = "canary-swordfish"
SHAPED: Final = "xoxb-1234-canary"
SMALL: Final = {"OTEL_BSP_MAX_QUEUE_SIZE": "50", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "25"}
UNPACKED: Final[dict[str | None, Callable[[bytes], bytes]]] = {None: bytes, "gzip": gzip.decompress, "br": brotli.decompress}
BEGIN: Final = "from quotebot.observability.exporters import open_observers; from quotebot.settings import Settings; import sys; "
PROGRAM: Final = f"""
import logging, sys, structlog
from quotebot.observability.exporters import open_observers
from quotebot.settings import Settings
from quotebot.observability.logs import configure_logs

settings = Settings()
observers = open_observers(settings, ("{CANARY}", *settings.secrets))
configure_logs(json_lines=True, observers=observers.each)
log = structlog.get_logger("test")
customer = {{"correlation_id": "c-7f91ab12", "customer": "{CANARY}", "error": "{CANARY}", "latency_ms": 5}}
log.info("operation.completed", action_kind="quote.create", source="{SHAPED}", outcome="{CANARY}", **customer)
log.warning("effect.retry", effect_class="crm.create", category="transient", **customer)
log.error("dead_letter", effect_class="crm.create", category="validation", effect_id=118, last_error="{CANARY}", **customer)
def failing(word="{CANARY}"):
    raise RuntimeError(word)
try:
    failing()
except RuntimeError as error:
    log.exception("effect.internal_error", **customer)
    logging.getLogger("library").exception("it said %s", "{CANARY}")
    observers.tell("bot.died", error)
observers.close()
"""


@contextmanager
def collector(*, answering: bool = True) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Serve a collector and a Sentry on loopback; yields its address and the posts. Without `answering` it keeps requests open."""
    got: list[tuple[str, bytes]] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, UNPACKED[self.headers.get("Content-Encoding")](body)))
            if not answering:
                over.wait()
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:  # the client disconnected before our answer
            return

    server = Server(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", got
    finally:
        over.set()
        server.shutdown()
        serving.join()
        server.server_close()


def run(checkout: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=checkout,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def both_at(address: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}", "SENTRY_DSN": f"http://public@{address}/1"}


def spans_of(*lines: dict[str, object]) -> list[Any]:
    exported = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=NOT_HERE)
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=NOT_HERE)
    from quotebot.observability.tracing import Tracing  # noqa: PLC0415 -- an extra

    exporter = exported.InMemorySpanExporter()
    tracing = Tracing(exporter, ())
    for line in lines:
        tracing.note(line, None)
    tracing.close()
    return sorted(exporter.get_finished_spans(), key=lambda span: (span.parent is not None, span.end_time, span.name))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (DELIVERED, {"correlation_id", "effect_class", "effect_id", "latency_ms", "attempt", "already_there"}),
        ({"customer": "Acme", "error": "Acme is wrong", "target": "0Q0", "slack_user": "U0REP", "exception": "..."}, set()),
        ({"quote_id": None, "category": ["a"], "source": {"a": 1}}, set()),
    ],
)
def test_only_known_names_and_numbers_are_exported(line: dict[str, object], expected: set[str]) -> None:
    assert set(exported_fields(line, ())) == expected <= TOLD


def test_exported_values_are_redacted_and_truncated() -> None:
    assert exported_fields({"source": f"a {SHAPED} {CANARY}", "category": "x" * 999}, (CANARY,)) == {
        "source": "a [redacted] [redacted]",
        "category": "x" * 200,
    }


def test_nothing_is_imported_for_it_unless_asked_and_a_missing_package_stops_nothing(checkout: Path) -> None:
    look = "print(open_observers(Settings(), ()), [name for name in sys.modules if name.startswith(('opentelemetry', 'sentry'))])"
    assert run(checkout, BEGIN + look).stdout.strip() == "Observers(each=(), missing=()) []"
    without = "sys.modules['opentelemetry'] = sys.modules['sentry_sdk'] = None; found = open_observers(Settings(), ()); "
    said = run(checkout, BEGIN + without + "print(found.each, *found.missing, sep='\\n')", **both_at("127.0.0.1:9")).stdout
    assert said.splitlines()[0] == "()"
    assert [line.partition(",")[0] for line in said.splitlines()[1:]] == ["OTEL_EXPORTER_OTLP_ENDPOINT is set", "SENTRY_DSN is set"]
    assert said.count("Install the extra") == 2


def test_span_holds_the_key_of_its_command_and_the_trace_id_of_the_log() -> None:
    (span,) = spans_of({**DELIVERED, "operation_key": "ab" * 32, "max_attempts": 7, "final_attempt": False, "dead": False})
    assert span.attributes["quotebot.operation_key"] == "ab" * 32
    counts = [span.attributes[f"quotebot.{name}"] for name in ("attempt", "max_attempts", "final_attempt", "dead")]
    assert counts == [1, 7, False, False]
    assert f"{span.context.trace_id:032x}" == trace_id("c-7f91ab12")


def test_a_commands_span_begins_when_it_arrived_and_holds_its_attempts() -> None:
    command, first, second = spans_of(COMMAND, RETRY, {**DELIVERED, "timestamp": "2026-11-21T10:00:02Z"})
    assert (command.name, first.name, second.name) == ("command quote.create", "crm.create", "crm.create")
    assert command.end_time - command.start_time == 500_000_000
    assert {span.parent.span_id for span in (first, second)} == {command.context.span_id}
    assert {span.context.trace_id for span in (command, first, second)} == {command.context.trace_id}
    assert (first.status.is_ok, second.status.is_ok, first.attributes["quotebot.http_status"]) == (False, True, 503)


def test_replay_in_another_process_shares_its_trace_and_another_command_does_not() -> None:
    (before,), (after,) = spans_of(RETRY), spans_of(DELIVERED)
    (other,) = spans_of({**COMMAND, "correlation_id": "c-00000001"})
    assert before.context.trace_id == after.context.trace_id != other.context.trace_id
    assert before.context.span_id != after.context.span_id


def test_a_line_of_no_command_makes_no_span_and_a_dead_letter_one_without_length() -> None:
    (dead,) = spans_of({**LINE, "event": "bot.started"}, {**COMMAND, "event": "command.repeated"}, DEAD)
    assert (dead.name, dead.start_time, dead.attributes["quotebot.dead"]) == ("dead_letter", dead.end_time, True)


def test_both_get_what_happened_over_http_and_no_canary(checkout: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=NOT_HERE)
    pytest.importorskip("sentry_sdk", reason=NOT_HERE)
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: PLC0415 -- an extra

    with collector() as (address, got):
        done = run(checkout, PROGRAM, **both_at(address), OTEL_EXPORTER_OTLP_HEADERS="api-key=canary-key")
    assert (done.returncode, "Traceback" in done.stderr.replace("Traceback (most recent call last):\\n", "")) == (0, False), (
        done.stderr
    )
    bodies = {path: b"".join(body for at, body in got if at == path) for path, _ in got}
    assert set(bodies) == {"/v1/traces", "/api/1/envelope/"}
    spans = ExportTraceServiceRequest.FromString(bodies["/v1/traces"]).resource_spans[0].scope_spans[0].spans
    assert sorted(span.name for span in spans) == ["command quote.create", "crm.create", "dead_letter", "effect.internal_error"]
    reports = [json.loads(line) for line in bodies["/api/1/envelope/"].splitlines() if b'"fingerprint"' in line]
    assert sorted(report["message"] for report in reports) == ["bot.died", "dead_letter", "effect.internal_error", "library.error"]
    (internal,) = [report for report in reports if report["message"] == "effect.internal_error"]
    (thrown,) = internal["exception"]["values"]
    assert (thrown["type"], thrown["stacktrace"]["frames"][-1]["function"]) == ("RuntimeError", "failing")
    assert internal["tags"]["correlation_id"] == "c-7f91ab12"
    assert [path for path, body in bodies.items() if b"canary" in body] == []


def test_one_that_does_not_answer_delays_no_line_and_the_end_by_two_seconds_at_most(checkout: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=NOT_HERE)
    pytest.importorskip("sentry_sdk", reason=NOT_HERE)
    from quotebot.observability.logs import CLOSING_SECONDS  # noqa: PLC0415 -- beside its use

    many = (
        "began = time.monotonic()\nfor _ in range(300): log.info('operation.completed', **customer)\nwritten = time.monotonic()\n"
    )
    timed = PROGRAM.replace("import logging", "import logging, time").replace("def failing", f"{many}def failing")
    with collector(answering=False) as (address, got):
        done = run(checkout, f"{timed}print(written - began, time.monotonic() - written)", **both_at(address), **SMALL)
        assert (done.returncode, len(got) >= 2) == (0, True), done.stderr
    writing, closing = (float(word) for word in done.stdout.split())
    assert (done.stderr.count("operation.completed"), "opentelemetry" in done.stderr) == (301, False)
    assert writing < 5 * CLOSING_SECONDS  # 300 spans, more than the queue holds; none of them blocks
    assert closing < 2 * CLOSING_SECONDS + 3  # and a slow machine


def test_a_collector_that_is_away_is_said_once_and_so_is_its_return() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace.export", reason=NOT_HERE)
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=NOT_HERE)
    from quotebot.observability.tracing import Quietly  # noqa: PLC0415 -- an extra

    class Scripted:
        results: Final = iter(map(sdk.SpanExportResult, (1, 1, 0, 0, 1)))

        def export(self, spans: object) -> object:
            return (spans, next(self.results))[1]

    quietly = Quietly(Scripted())
    with capture_logs() as lines:
        for _ in range(5):
            quietly.export(())
    assert [line["event"] for line in lines] == ["tracing.away", "tracing.back", "tracing.away"]


def test_an_observer_that_fails_costs_nobody_the_line(checkout: Path) -> None:
    program = """
import structlog
from quotebot.observability.logs import configure_logs
class Broken:
    def note(self, line, error): raise OSError("no")
    def close(self): ...
configure_logs(json_lines=True, observers=(Broken(),))
structlog.get_logger("test").info("kept", quote_id="Q-1")
"""
    done = run(checkout, program)
    line = json.loads(done.stderr)
    assert (line["event"], line["quote_id"], line["not_observed"]) == ("kept", "Q-1", "OSError")


def test_an_address_that_is_none_stops_nothing_and_is_not_repeated() -> None:
    pytest.importorskip("sentry_sdk", reason=NOT_HERE)
    found = open_observers(Settings(SENTRY_DSN="xoxb-not-a-dsn"), ())
    assert found == Observers(
        (), ("SENTRY_DSN is no address of a Sentry project; no errors are sent. Copy it again from its settings.",)
    )
