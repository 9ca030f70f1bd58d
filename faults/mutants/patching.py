"""How a bug is planted: something is put in the place of what is there, and what is not there any more is said so at once."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from quotebot.app import installation

Plant = Callable[[], None]


def of(owner: object, name: str) -> Any:
    """Return what `owner` has under that name. Raises LookupError when it has nothing."""
    if not hasattr(owner, name):
        raise LookupError(f"{owner!r} has no {name}: the planted bug has to follow")
    return getattr(owner, name)


def put(owner: object, name: str, value: object) -> None:
    """Put `value` in the place of what `owner` has under that name. Raises LookupError when it has nothing."""
    of(owner, name)
    setattr(owner, name, value)


def sql(name: str, *changes: tuple[str, str]) -> Plant:
    """Return a bug that replaces texts, each there exactly once, in the statement of that name."""

    def plant() -> None:
        statements = of(installation, "_statements")()
        text = statements[name]
        for old, new in changes:
            if text.count(old) != 1:
                raise LookupError(f"{old!r} is in {name} {text.count(old)} times, not once: the planted bug has to follow")
            text = text.replace(old, new)
        altered = MappingProxyType({**statements, name: text})
        put(installation, "_statements", lambda: altered)

    return plant


def both(*plants: Plant) -> Plant:
    """Return a bug made of several changes."""

    def plant() -> None:
        for each in plants:
            each()

    return plant
