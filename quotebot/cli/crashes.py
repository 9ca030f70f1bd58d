"""Logs and tracebacks of a command: no variables, no secrets, no terminal control characters."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from quotebot.cli.printable import printable

if TYPE_CHECKING:
    from types import TracebackType

QUICK = frozenset({"--help", "-h", "--version", "completion"})  # they log nothing, so they skip the import


def install() -> None:
    """Install the error reporting of this process. Call once, in the process's own main."""
    sys.excepthook = report
    if len(sys.argv) > 1 and not QUICK.intersection(sys.argv[1:]):
        import logging  # noqa: PLC0415 -- see root.py

        from quotebot.observability.logs import configure_logs  # noqa: PLC0415 -- see root.py

        configure_logs(json_lines=False, level=logging.WARNING, secrets=_known_secrets)


def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that no command expected."""
    from quotebot.observability.logs import redact  # noqa: PLC0415 -- see root.py

    text = "".join(traceback.format_exception(kind, error, trace))
    print(printable(redact(text, _known_secrets())), end="", file=sys.stderr)


def _known_secrets() -> tuple[str, ...]:
    from quotebot.settings import ConfigurationError, load_settings  # noqa: PLC0415 -- see root.py

    try:
        return load_settings().secrets
    except ConfigurationError:
        return ()
