"""How a command starts another one: with the code it runs itself, wherever one stands and however it was installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS: Final = ("QUOTEBOT_", "SLACK_", "SALESFORCE_", "OTEL_", "SENTRY_", "OPENAI_", "CREDENTIALS_DIRECTORY")  # as they begin
OURSELVES: Final = (sys.executable, "-P", "-m", "quotebot")  # -P: a folder named ledger where one stands is not ours


def with_our_code() -> dict[str, str]:
    """Return this process's environment, in which a child finds the packages that this process has."""
    code = str(Path(__file__).resolve().parent.parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without any variable that configures a bot or whoever watches one."""
    return {name: value for name, value in environment.items() if not name.startswith(SETTINGS)}


def our_name() -> str:
    """Return what people type to run us from where they stand: the installed command, or the script of the checkout."""
    script = Path(__file__).resolve().parent.parent.parent / "run"
    if Path(sys.argv[0]).stem == "quotebot" or not script.is_file():
        return "quotebot"
    return "./run" if Path.cwd() == script.parent else str(script)
