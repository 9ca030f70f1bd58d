"""Seeding of a bug: an attribute or a text is replaced, and a missing one raises an error at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from quotebot.app import installation

Plant = Callable[[], None]


def of(owner: object, name: str) -> Any:
    """Return the attribute `name` of `owner`. Raises LookupError if there is none."""
    if not hasattr(owner, name):
        raise LookupError(f"{owner!r} has no {name}: the planted bug has to follow")
    return getattr(owner, name)


def put(owner: object, name: str, value: object) -> None:
    """Replace the attribute `name` of `owner` by `value`. Raises LookupError if there is none."""
    of(owner, name)
    setattr(owner, name, value)


def patch(owner: object, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """Return a decorator that makes a bug: the function replaces an attribute, and gets the original as its first argument."""

    def decorate(change: Callable[..., Any]) -> Plant:
        @functools.wraps(change)
        def plant() -> None:
            honest = of(owner, name)

            def patched(*arguments: Any, **named: Any) -> Any:
                return change(honest, *arguments, **named)

            put(owner, name, patched)

        return plant

    return decorate


def sql(name: str, *changes: tuple[str, str]) -> Plant:
    """Return a bug that replaces texts, each of which occurs exactly once, in the statement of that name."""

    def plant() -> None:
        altered = MappingProxyType(replaced(of(installation, "_statements")(), name, *changes))
        put(installation, "_statements", lambda: altered)

    return plant


def replaced(statements: Mapping[str, str], name: str, *changes: tuple[str, str]) -> dict[str, str]:
    """Return the statements with these texts of one of them replaced. Raises LookupError unless each occurs exactly once."""
    text = statements[name]
    for old, new in changes:
        if text.count(old) != 1:
            raise LookupError(f"{old!r} is in {name} {text.count(old)} times, not once: the planted bug has to follow")
        text = text.replace(old, new)
    return {**statements, name: text}


def both(*plants: Plant) -> Plant:
    """Return a bug that consists of several changes."""

    def plant() -> None:
        for each in plants:
            each()

    return plant
