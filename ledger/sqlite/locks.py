"""The file locks of a ledger: the write gate every writing process queues at, and the lock of the one active bot.

The kernel frees both at death, never at a pause: a stopped process still holds them, so there is no split brain.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_NAME_BYTES: Final = 64


class WriteGate:
    """Held around every write transaction and checkpoint.

    The kernel wakes the next waiter when the lock is let go, and a batch takes longer to come back than a waiter to wake up: two
    busy processes measured 50 : 50 (SQLite's own waiting, which sleeps and looks again, starved one of them).
    """

    __slots__ = ("_file", "_gate", "_name", "_path")

    def __init__(self, path: Path, role: str) -> None:
        """Open the gate of the ledger at `path`. `role` ("bot", "cli") is what others read about its holder."""
        self._gate = os.open(_gate_path(path), os.O_CREAT | os.O_RDWR, 0o600)
        self._name = f"{os.getpid()} {role}\n".encode().ljust(_NAME_BYTES)
        self._path = os.fspath(path)  # as text: it is looked at in every transaction
        self._file = _inode(self._path)

    def __enter__(self) -> None:
        """Take it for the block."""
        self.take()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let it go."""
        self.let_go()

    def take_if_free(self) -> bool:
        """Take it ahead of `take`, which then need not wait; false when somebody else has it."""
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self) -> None:
        """Wait for the gate, take it and write down who holds it."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # a full disk: the name is for people, the lock is what counts
            os.pwrite(self._gate, self._name, 0)

    def let_go(self) -> None:
        """Let the next one in. The name stays: whoever reads it looks at the lock first."""
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def leads_elsewhere(self) -> bool:
        """Tell, inside the gate, whether another file has taken the ledger's place since: whoever has the old one open is late."""
        return self._file is not None and _inode(self._path) != self._file

    def close(self) -> None:
        """Close the file."""
        os.close(self._gate)


def gate_holder(path: Path) -> str | None:
    """Say who is writing to the ledger at `path` right now ("4711 bot": pid and role), or None when nobody is."""
    try:
        gate = os.open(_gate_path(path), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(gate, _NAME_BYTES, 0).decode().strip() or None
    else:
        return None
    finally:
        os.close(gate)  # lets go of the lock too: a writer who came meanwhile waited for microseconds


class InstanceLock:
    """The lock of the one active bot, while it is held. The kernel frees it at death."""

    __slots__ = ("_descriptors",)

    def __init__(self, *descriptors: int) -> None:
        self._descriptors = descriptors

    def close(self) -> None:
        """Free the lock."""
        for descriptor in self._descriptors:
            os.close(descriptor)


def hold_instance_lock(path: Path) -> InstanceLock | None:
    """Take the lock of the one active bot of the ledger at `path`, or return None when another holds it.

    It is two locks: of the lock file, whose content names the holder, and of the folder. Who removes the lock file makes room for
    another one, which is another lock; the folder cannot be removed while the ledger is in it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _locked(folder):
            os.close(folder)
            return None
        lock = os.open(_instance_path(path), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        os.close(folder)
        raise
    if not _locked(lock):
        os.close(lock)
        os.close(folder)
        return None
    with contextlib.suppress(OSError):  # a full disk: the pid is for people, the lock is what counts
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return InstanceLock(lock, folder)


def _locked(descriptor: int) -> bool:
    """Take the lock of a file or folder; false when another has it. Where folders have no locks, the file's has to do."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP) or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    return True


def instance_holder(path: Path) -> int | None:
    """Return the pid of the process that took the bot's lock last, for messages about a lock known to be held.

    It only reads: to try the lock, even for a moment, could turn a starting bot away.
    """
    try:
        return int(_instance_path(path).read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return None


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 -- a Path takes five times as long, inside the gate
    except FileNotFoundError:
        return None


def _gate_path(path: Path) -> Path:
    return path.with_name(path.name + ".gate")


def _instance_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")
