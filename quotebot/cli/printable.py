"""Safe output: no text from other systems controls the terminal, and no error shows variables or secrets."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import TYPE_CHECKING, Any

from adapters.failures import UNPRINTABLE

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from types import TracebackType

BMP_MAX = 0xFFFF
QUICK = frozenset({"--help", "-h", "--version", "completion"})  # they log nothing, so they skip the import


def printable(text: str) -> str:
    """Return a text with every control character, direction mark and line separator escaped as in JSON.

    Line feeds and tabs stay. JSON stays the same JSON.
    """
    return UNPRINTABLE.sub(_escaped, text)


@contextlib.contextmanager
def safe_streams() -> Iterator[None]:
    """Pass all output of the block, including tracebacks and logs, through `printable`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_SafeStream(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _SafeStream:
    """Text stream that makes its output printable.

    rich unwraps it by `rich_proxied_file`: the help's own styles pass. Other output of rich is captured and then printed here.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= BMP_MAX:
        return f"\\u{code:04x}"
    high, low = divmod(code - BMP_MAX - 1, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


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
    except (ConfigurationError, OSError):
        return ()
