"""Reader of a ruleset's document in YAML. Every scalar stays text, so no number becomes a float.

That also keeps `on:` a key and `NO` a region, which YAML 1.1 would turn into true and false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from quotebot.domain.catalogue.reader import LEVELS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

_OPENING: Final = ("SequenceStartEvent", "MappingStartEvent")
_CLOSING: Final = ("SequenceEndEvent", "MappingEndEvent")
Path = tuple[str | int, ...]


class YamlError(ValueError):
    """Invalid document; `line` (from 1) is the place of the error, as far as it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(text: str) -> tuple[object, dict[Path, int]]:
    """Return the document and the line of each part of it. Raises YamlError."""
    lines: dict[Path, int] = {}
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        _check(yaml.parse(text, loader))  # before any recursion: on a stack overflow libyaml ends the process
        root = yaml.compose(text, loader)
        return (None if root is None else _plain(root, (), lines, set())), lines
    except yaml.MarkedYAMLError as error:
        raise YamlError(str(error.problem), None if error.problem_mark is None else error.problem_mark.line + 1) from error
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise YamlError("it is nested too deeply") from error


def _check(events: Iterable[Any]) -> None:
    """Raise YamlError if a document is nested too deeply or has an anchor or alias. Events arrive one by one."""
    level = 0
    for event in events:
        name = type(event).__name__
        if getattr(event, "anchor", None) is not None:
            raise YamlError("anchors and aliases are not read: write the value out", event.start_mark.line + 1)
        level += (name in _OPENING) - (name in _CLOSING)
        if level > LEVELS_MAX:
            raise YamlError(f"it is nested deeper than {LEVELS_MAX} levels", event.start_mark.line + 1)


def _plain(node: Any, path: Path, lines: dict[Path, int], seen: set[int]) -> Any:
    line: int = node.start_mark.line + 1
    if id(node) in seen:  # an alias: a few nested ones can expand to a document of any size
        raise YamlError("anchors and aliases are not read: write the value out", line)
    seen.add(id(node))
    lines[path] = line
    if node.id == "scalar":
        return node.value
    if node.id == "sequence":
        return [_plain(each, (*path, index), lines, seen) for index, each in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar" or key.value in found:
            what = f"the key {key.value!r} is there twice" if key.id == "scalar" else "a key must be a word"
            raise YamlError(what, key.start_mark.line + 1)
        found[key.value] = _plain(value, (*path, key.value), lines, seen)
    return found
