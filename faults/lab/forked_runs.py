"""Parallel work in forks of this process, which end at once when this process is stopped."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, TypeVar

from faults.lab.processes import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

INTERRUPTED: Final = 130
Asked = TypeVar("Asked")
Done = TypeVar("Done")


def beside(work: Callable[[Asked], Done], asked: Sequence[Asked], at_once: int) -> Generator[Done]:
    """Yield each result as its work ends; with `at_once` 1, in this process and in order."""
    if at_once == 1:
        yield from map(work, asked)
        return
    with get_context("fork").Pool(at_once, initializer=_begin) as pool:  # leaving it ends the running forks
        yield from pool.imap_unordered(work, asked)
        pool.close()  # the forks end by themselves: a SIGTERM just before a fork waits for work would be missed
        pool.join()


@contextmanager
def no_traceback_of_ctrl_c() -> Iterator[None]:
    """Exit with status 130 on Ctrl-C, as a shell does, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))  # with SIGTERM, and it removes its files in memory
    end_with_parent()
