"""Order of the tests in a parallel run: which worker starts with which tests.

pytest-xdist splits the list into as many equal stretches as there are workers; a worker that has finished takes tests from the ends
of the others' stretches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pytest

Item = TypeVar("Item")


def dealt(begins: Sequence[Sequence[Item]], rest: Sequence[Item]) -> list[Item]:
    """Return a list whose stretches start with these items, one stretch per worker; the rest fills them up in its order."""
    found: list[Item] = []
    left = sum(map(len, begins)) + len(rest)
    for number, begin in enumerate(begins):
        room = max(0, left // (len(begins) - number) - len(begin))
        found += [*begin, *rest[:room]]
        left -= len(begin) + len(rest[:room])
        rest = rest[room:]
    return [*found, *rest]


def spread(items: Iterable[Item], seconds: Callable[[Item], float], busy: Sequence[float]) -> list[list[Item]]:
    """Assign each item, longest first, to the worker that is free soonest. `busy`: seconds of work that each already has."""
    free_at = list(busy)
    found: list[list[Item]] = [[] for _ in busy]
    for item in sorted(items, key=seconds, reverse=True):
        soonest = free_at.index(min(free_at))
        free_at[soonest] += seconds(item)
        found[soonest].append(item)
    return found


def seconds_of(item: pytest.Item) -> float:
    """Return the seconds that a test takes according to its `takes` marker; 0 without one."""
    mark = item.get_closest_marker("takes")
    return 0.0 if mark is None else float(mark.args[0])
