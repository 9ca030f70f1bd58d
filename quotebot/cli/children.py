"""Child processes with this process's own code, for any kind of installation, and the stop signals of long-running commands."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS: Final = ("QUOTEBOT_", "SLACK_", "SALESFORCE_", "OTEL_", "SENTRY_", "OPENAI_", "CREDENTIALS_DIRECTORY")  # name prefixes
OURSELVES: Final = (sys.executable, "-P", "-m", "quotebot")  # -P: a folder named ledger in the current folder is not ours


def with_our_code() -> dict[str, str]:
    """Return this process's environment with a PYTHONPATH on which a child finds the same packages."""
    code = str(Path(__file__).resolve().parent.parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without any variable that configures a bot or its observers."""
    return {name: value for name, value in environment.items() if not name.startswith(SETTINGS)}


def our_name() -> str:
    """Return the command to run us from the current folder: the installed command, or the script of the checkout."""
    script = Path(__file__).resolve().parent.parent.parent / "run"
    if Path(sys.argv[0]).stem == "quotebot" or not script.is_file():
        return "quotebot"
    return "./run" if Path.cwd() == script.parent else str(script)


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
