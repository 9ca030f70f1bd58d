"""Logs: one structured line per fact, JSON for machines, plain on a terminal, secrets never."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_SECRETS: Final = re.compile(
    r"xox[abeprs]-[\w-]+|xapp-[\w-]+|Bearer\s+[\w.~+/=-]+|\bsk-[\w-]{8,}|\b00D\w{12,15}![\w.]+|https?://[^\s\"']*/(?:hooks|commands|actions)/[^\s\"']+"
)
REDACTED: Final = "[redacted]"


def redact(text: str) -> str:
    """Return `text` without anything shaped like a token, a session id or a response_url."""
    return _SECRETS.sub(REDACTED, text)


def configure_logs(*, json_lines: bool, level: int = logging.INFO) -> None:
    """Send every log line to stderr, libraries' included. Call once, in the process's own main."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    tail = [structlog.processors.format_exc_info] if json_lines else []
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail, _redacted, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("slack_sdk", "aiohttp.access", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("slack_bolt").setLevel(logging.ERROR)  # it warns that a token in the environment is not used


def _redacted(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = redact(value)
    return event
