"""Logs: one structured line per fact, as JSON for machines and as plain text on a terminal, always without secrets."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
import sys
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO
from urllib.parse import quote

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

_SHAPES: Final = re.compile(
    r"xox[abeprs]-[\w-]+|xapp-[\w-]+|Bearer\s+[\w.~+/=-]+|Basic\s+[A-Za-z0-9+/=]{8,}|\bsk-[\w-]{8,}|\b00D\w{12,15}![\w.]+"
    r"|wss?://[^\s\"']+"
)
_ADDRESS: Final = re.compile(r"https?://[^\s\"']+")  # one match per address, even if another begins inside it: linear time
SECRET_LINE_CHARACTERS: Final = 16  # a shorter line of a secret could be an ordinary word
_SECRET_PATHS: Final = ("/hooks/", "/commands/", "/actions/", "/upload/")
REDACTED: Final = "[redacted]"


class Observer(Protocol):
    """Interface of an observer of log lines (exporters.py). It runs inside the bot's work, so it must not block."""

    def note(self, line: Mapping[str, object], error: BaseException | None) -> None:
        """Process a written line and its error; nothing is redacted yet."""
        ...

    def close(self) -> None:
        """Send what is queued, within a short time."""
        ...


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without the given secrets and without anything shaped like a token, a session id or a response_url."""
    for spelling in _spellings(tuple(secrets)):
        text = text.replace(spelling, REDACTED)
    return _SHAPES.sub(REDACTED, _ADDRESS.sub(_without_secret_path, text))


def _without_secret_path(address: re.Match[str]) -> str:
    """Return an address, or the redaction mark if it holds a password or has text after one of Slack's secret paths."""
    found = address[0]
    with_password = "@" in found.split("/", 3)[2]
    return REDACTED if with_password or any(path in found[:-1] for path in _SECRET_PATHS) else found


@lru_cache(maxsize=8)
def _spellings(secrets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forms in which secrets appear in text, the longest first.

    They are the value itself, its quoting in Python and JSON, its encodings in addresses and headers, and each long line of a PEM
    key.
    """
    found: set[str] = set()
    for secret in filter(None, secrets):
        packed = base64.b64encode(secret.encode("utf-8", "surrogatepass")).decode()
        quoted = (repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
        found |= {secret, secret.strip(), *quoted, quote(secret, safe="", errors="replace"), packed}
        found |= {repr(quoted[0])[1:-1], json.dumps(quoted[1])[1:-1]}  # quoted twice: a string inside a string
        lines = (line.strip() for line in secret.splitlines())
        found |= {line for line in lines if len(line) >= SECRET_LINE_CHARACTERS and not line.startswith("-----")}
    return tuple(sorted(filter(None, found), key=lambda each: (-len(each), each)))


def configure_logs(
    *,
    json_lines: bool,
    level: int = logging.INFO,
    secrets: Iterable[str] | Callable[[], Iterable[str]] = (),
    observers: Sequence[Observer] = (),
    facts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Send every log line, including those of libraries, to stderr and the observers. Call once, in the process's own main.

    `facts` are fields of every line.
    `secrets` are values that must never be shown in any form, or a function that returns them at the first line.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *([lambda _, __, event: {**facts, **event}] if facts else []),
    ]
    shown = _shown(json_lines=json_lines, secrets=secrets)
    lines = sys.stderr
    structlog.configure(  # our lines bypass logging, which would double the time
        processors=[*shared, _observed_by(observers), *shown],
        logger_factory=lambda name="": _Lines(name, lines),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[_observed_by(observers), structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shown],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("slack_sdk", "aiohttp.access", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("slack_bolt").setLevel(logging.ERROR)  # it warns that a token in the environment is not used


@contextlib.contextmanager
def warnings_only(secrets: Iterable[str]) -> Iterator[None]:
    """Suppress log lines below warnings; warnings and errors go to stderr, without variables and secrets."""
    before, lines = structlog.get_config(), sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            *_shown(json_lines=False, secrets=secrets),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda name="": _Lines(name, lines),
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _shown(*, json_lines: bool, secrets: Iterable[str] | Callable[[], Iterable[str]]) -> list[Any]:
    """Return the last steps of every line: a traceback without variables, then redaction, because a traceback may quote secrets."""

    @cache
    def known() -> tuple[str, ...]:
        return tuple(secret for secret in (secrets() if callable(secrets) else secrets) if secret)

    def redacted(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for key, value in event.items():
            event[key] = _redacted(value, known())
        return event

    console = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    return [structlog.processors.format_exc_info, redacted, structlog.processors.JSONRenderer() if json_lines else console]


class _Lines:
    """Writer of the lines of the module `name`. A log that cannot be written (full disk, closed pipe) must not fail a command."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        self._stream = stream

    def msg(self, line: str) -> None:
        """Write one line."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


def _observed_by(observers: Sequence[Observer]) -> Any:
    """Return a step that passes each line to the observers. If an observer fails, the line is still written and names the error."""

    def observed(lines: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if not observers:
            return event
        record: logging.LogRecord | None = event.get("_record")  # set for lines of a library
        about = (
            {"logger": lines.name, "event": event["event"]} if record is None else {"logger": record.name, "event": "library.error"}
        )
        line = {**event, **about}
        for observer in observers:
            try:
                observer.note(line, _error_of(event.get("exc_info")))
            except Exception as error:  # noqa: BLE001 -- the work continues after any error of an observer's package
                event["not_observed"] = type(error).__name__
        return event

    return observed


def _error_of(given: object) -> BaseException | None:
    """Return the error of a line, in any of logging's three forms."""
    if isinstance(given, BaseException):
        return given
    found = given if isinstance(given, tuple) else sys.exc_info() if given else (None, None, None)
    return found[1] if isinstance(found[1], BaseException) else None


def _redacted(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {redact(key, secrets) if isinstance(key, str) else key: _redacted(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(item, secrets) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(repr(value), secrets)  # redacted here because the renderer would apply repr itself


CLOSING_SECONDS: Final = 1.0  # unsent data is dropped after this
TOLD: Final = frozenset(
    {
        *("action_kind", "source", "outcome", "quote_id", "quote_version", "correlation_id", "operation_id", "operation_key"),
        *("job", "cycle", "replica"),
        *("effect_id", "effect_class", "adapter", "category", "http_status", "already_there", "latency_ms"),
        *("attempt", "attempts", "max_attempts", "final_attempt", "retryable", "dead"),
    }
)
TEXT_MAX: Final = 200

Told = str | int | float | bool


def exported_fields(line: Mapping[str, object], secrets: Sequence[str]) -> dict[str, Told]:
    """Return the facts of a log line that may leave this machine."""
    found: dict[str, Told] = {}
    for name in TOLD & line.keys():
        value = line[name]
        if isinstance(value, str):
            found[name] = redact(value, secrets)[:TEXT_MAX]
        elif isinstance(value, int | float):
            found[name] = value
    return found
