"""Payload codec: the JSON form in which the ledger stores and hashes a command, derived from the fields of its payload class.

The canonical form is JSON-ready (strings, whole numbers, lists, no floats) and carries its schema version `v`, so that the hash of
a command never depends on key order, whitespace, aliases or transport. Every field is stored under its own name unless `names`
gives another; tests/quotebot/commands/test_registry.py pins the bytes, the hash and the key of each schema.

A stored payload is never rewritten. `from_stored` reads the current schema and, through one pure upcaster per step, older ones: a
command reserved before a deploy is executed after it. A payload of a newer build waits for that build.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Final, Literal, Self, Union, get_args, get_origin, get_type_hints

from quotebot.domain.extraction.remarks import Remark
from quotebot.domain.pricing.price_requests import (
    Changes,
    PriceRequest,
    canonical_changes,
    canonical_request,
    parse_changes,
    parse_request,
)

Stored = Mapping[str, Any]


class NeedsNewerBuild(Exception):  # noqa: N818 -- named after the fact: nothing is wrong with the command
    """Command recorded by a newer build. This build must leave it unchanged and let it wait."""

    def __init__(self, kind: str, version: object) -> None:
        super().__init__(f"{kind} with payload schema {version} was recorded by a newer build; it waits for that build.")
        self.kind = kind
        self.version = version


class StoredPayload:
    """Base of the payload classes, which are frozen dataclasses."""

    __slots__ = ()

    kind: ClassVar[str]
    schema: ClassVar[int] = 1
    names: ClassVar[Mapping[str, str]] = {}  # stored name of a field, where it differs
    upcasters: ClassVar[Mapping[int, Callable[[Stored], Stored]]] = {}  # schema version -> the form of the next version

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        payload: Any = type(self)
        content = {name: _encoded(getattr(self, field)) for field, name, _ in _layout(payload)}
        return {"v": self.schema, **content}

    @classmethod
    def parse(cls, stored: Stored) -> Self:
        """Rebuild from the canonical form of this schema version. Raises KeyError or ValueError for another form."""
        payload: Any = cls
        return cls(**{field: _decoded(hint, stored[name]) for field, name, hint in _layout(payload)})

    @classmethod
    def from_stored(cls, stored: Stored) -> Self:
        """Rebuild from the canonical form of this or an older schema version.

        Raises NeedsNewerBuild for a newer schema, ValueError for one without an upcaster.
        """
        version = stored.get("v")
        if not isinstance(version, int) or version > cls.schema:
            raise NeedsNewerBuild(cls.kind, version)
        while version < cls.schema:
            upcast = cls.upcasters.get(version)
            if upcast is None:
                raise ValueError(f"{cls.kind} with payload schema {version} is too old for this build")
            stored = upcast(stored)
            version += 1
        return cls.parse(stored)


_CODECS: Final[Mapping[Any, tuple[Callable[[Any], object], Callable[[Any], Any]]]] = {
    PriceRequest: (canonical_request, parse_request),
    Changes: (canonical_changes, parse_changes),
    Remark: (lambda remark: [remark.code, remark.excerpt, remark.meaning], lambda stored: Remark(*stored)),
}


@functools.cache
def _layout(payload: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return the field, the stored name and the type of each field."""
    hints = get_type_hints(payload)
    return tuple((field.name, payload.names.get(field.name, field.name), hints[field.name]) for field in fields(payload))


def _encoded(value: object) -> object:
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, StoredPayload):
        return value.canonical()
    codec = _CODECS.get(type(value))
    return value if codec is None else codec[0](value)


def _decoded(hint: Any, stored: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if stored is None else _decoded(arguments[0], stored)
    if origin is Literal:
        if stored not in arguments:
            raise ValueError(f"unknown value {stored!r}; known are {', '.join(arguments)}")
        return stored
    if origin is tuple:
        return tuple(_decoded(arguments[0], item) for item in stored)
    if hint in _CODECS:
        return _CODECS[hint][1](stored)
    return hint.from_stored(stored) if issubclass(hint, StoredPayload) else hint(stored)
