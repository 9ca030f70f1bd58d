"""Identity of the person at the terminal: the system user of the process, independent of the environment."""

from __future__ import annotations

import os
import pwd

from quotebot.cli import dead_letter_tables
from quotebot.settings import load_settings


def user() -> str:
    """Return the name of the real user id, or "uid 10001" for an id without a name.

    Any user may set LOGNAME and USER. Under sudo, the result is the user that sudo switched to.
    """
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def operator(name: str | None) -> str:
    """Return the actor of an operator action, for the audit: `--as NAME`, or the terminal user without it.

    Raises ValueError if the terminal user may not act under another name, or for a name that would mislead.
    """
    if name is not None:
        require_operator()
    return dead_letter_tables.checked_actor(name, user())


def require_operator() -> None:
    """Raise ValueError unless the settings allow the terminal user to act in another person's name."""
    if user() not in load_settings().cli_operators:
        raise ValueError(
            f"--as is for operators at the terminal, and the system user {user()} is none of them: "
            f'QUOTEBOT_CLI_OPERATORS names them, e.g. ["{user()}"]. Leave --as out to act under your own name'
        )
