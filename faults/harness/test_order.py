"""Which worker of a parallel run of the tests begins with what.

pytest-xdist hands out as many equal stretches of the list as there are workers; who is done takes from the others' ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Item = TypeVar("Item")


def dealt(begins: Sequence[Sequence[Item]], rest: Sequence[Item]) -> list[Item]:
    """Return the list whose stretches begin with these, one for each worker, and are filled up with the rest, in its order."""
    found: list[Item] = []
    left = sum(map(len, begins)) + len(rest)
    for number, begin in enumerate(begins):
        room = max(0, left // (len(begins) - number) - len(begin))
        found += [*begin, *rest[:room]]
        left -= len(begin) + len(rest[:room])
        rest = rest[room:]
    return [*found, *rest]


def spread(items: Iterable[Item], seconds: Callable[[Item], float], busy: Sequence[float]) -> list[list[Item]]:
    """Give each item, the longest first, to the worker that is free soonest; `busy`: how many seconds each has to do already."""
    free_at = list(busy)
    found: list[list[Item]] = [[] for _ in busy]
    for item in sorted(items, key=seconds, reverse=True):
        soonest = free_at.index(min(free_at))
        free_at[soonest] += seconds(item)
        found[soonest].append(item)
    return found
