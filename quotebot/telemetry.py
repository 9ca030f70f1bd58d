"""Logs: one structured line per fact, JSON for machines, plain on a terminal, secrets never."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence

_SHAPES: Final = re.compile(
    r"xox[abeprs]-[\w-]+|xapp-[\w-]+|Bearer\s+[\w.~+/=-]+|Basic\s+[A-Za-z0-9+/=]{8,}|\bsk-[\w-]{8,}|\b00D\w{12,15}![\w.]+"
    r"|wss?://[^\s\"']+"
)
_ADDRESS: Final = re.compile(r"https?://[^\s\"']+")  # one match per address, however often it begins anew: linear time
_SECRET_PATHS: Final = ("/hooks/", "/commands/", "/actions/", "/upload/")
REDACTED: Final = "[redacted]"


class Observer(Protocol):
    """Somebody else who is told of every line (observers.py). Called in the middle of the bot's work: it must not wait."""

    def note(self, line: Mapping[str, object], error: BaseException | None) -> None:
        """Take note of a line as it was written, and of the error it is about; nothing is redacted yet."""
        ...

    def close(self) -> None:
        """Send what waits, soon."""
        ...


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without the given secrets and without anything shaped like a token, a session id or a response_url."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return _SHAPES.sub(REDACTED, _ADDRESS.sub(_without_secret_path, text))


def _without_secret_path(address: re.Match[str]) -> str:
    """Return an address as it is, or redacted where its path is a secret of Slack's that more follows on."""
    found = address[0]
    return REDACTED if any(path in found[:-1] for path in _SECRET_PATHS) else found


def hashed(request_id: str) -> str:
    """Return what a log may show of a request id: the raw one opens a person's dialog."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:12]


def configure_logs(
    *, json_lines: bool, level: int = logging.INFO, secrets: Iterable[str] = (), observers: Sequence[Observer] = ()
) -> None:
    """Send every log line to stderr, libraries' included, and tell the observers. Call once, in the process's own main.

    `secrets` are values that must never be shown, whatever they look like.
    """
    known = tuple(secret for secret in secrets if secret)

    def redacted(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for key, value in event.items():
            event[key] = _redacted(value, known)
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if json_lines
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
    )
    shown: list[Any] = [structlog.processors.format_exc_info, redacted, renderer]  # a traceback quotes what it likes
    lines = sys.stderr
    structlog.configure(  # ours do not pass through logging, which takes as long again
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


class _Lines:
    """Writes the lines of the module `name`. A log that cannot be written (full disk, closed pipe) costs nobody their command."""

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
    """Return a step that tells the observers. One that fails costs nobody the line, which says so."""

    def observed(lines: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if not observers:
            return event
        record: logging.LogRecord | None = event.get("_record")  # a library's
        about = (
            {"logger": lines.name, "event": event["event"]} if record is None else {"logger": record.name, "event": "library.error"}
        )
        line = {**event, **about}
        for observer in observers:
            try:
                observer.note(line, _error_of(event.get("exc_info")))
            except Exception as error:  # noqa: BLE001 -- whatever a watcher's package does: the work goes on
                event["not_observed"] = type(error).__name__
        return event

    return observed


def _error_of(given: object) -> BaseException | None:
    """Return the error that a line was written with, in any of logging's three ways."""
    if isinstance(given, BaseException):
        return given
    found = given if isinstance(given, tuple) else sys.exc_info() if given else (None, None, None)
    return found[1] if isinstance(found[1], BaseException) else None


def _redacted(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {key: _redacted(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item, secrets) for item in value]
    return value
