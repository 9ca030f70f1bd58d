"""File locks of a ledger: the write gate that serializes writing processes, and the lock of the one active bot.

The kernel frees both when the process ends, never while it is stopped: a stopped process still holds them, so there is no split
brain.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.ownership import SoleOwner

if TYPE_CHECKING:
    from types import TracebackType

_NAME_BYTES: Final = 64


class WriteGate:
    """Lock held around every write transaction and checkpoint. It also excludes the threads of this process from each other.

    The kernel wakes the next waiter when the lock is released, and the waiter wakes before the next batch of the former holder
    requests the lock: two busy processes measured 50 : 50 (SQLite's busy handler, which sleeps and polls, starved one of them).
    """

    __slots__ = ("_file", "_gate", "_name", "_path", "_thread")

    def __init__(self, path: Path, role: str) -> None:
        """Open the gate of the ledger at `path`. `role` ("bot", "cli") describes its holder to other processes."""
        self._thread = threading.Lock()  # the loop may release what the writer's thread has taken
        self._gate = os.open(_gate_path(path), os.O_CREAT | os.O_RDWR, 0o600)
        self._name = f"{os.getpid()} {role}\n".encode().ljust(_NAME_BYTES)
        self._path = os.fspath(path)  # as str: it is checked in every transaction
        self._file = _inode(self._path)

    def __enter__(self) -> None:
        """Take the gate for the block."""
        self.take()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the gate."""
        self.let_go()

    def take_if_free(self) -> bool:
        """Take the gate without waiting; false when another process or thread holds it."""
        if not self._thread.acquire(blocking=False):
            return False
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._thread.release()
            return False
        return True

    def take(self) -> None:
        """Wait for the gate, take it and write the holder's name into it."""
        self._thread.acquire()
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX)
        except BaseException:
            self._thread.release()
            raise
        with contextlib.suppress(OSError):  # a full disk: the name is for people, the lock decides
            os.pwrite(self._gate, self._name, 0)

    def let_go(self) -> None:
        """Release the gate. The name stays in the file: `gate_holder` checks the lock first."""
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._thread.release()

    def leads_elsewhere(self) -> bool:
        """Tell, inside the gate, whether another file replaced the ledger: the file this process has open is then outdated."""
        return self._file is not None and _inode(self._path) != self._file

    def close(self) -> None:
        """Close the gate's file."""
        os.close(self._gate)


def gate_holder(path: Path) -> str | None:
    """Return the process that is writing to the ledger at `path` ("4711 bot": pid and role), or None when there is none."""
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
        os.close(gate)  # also releases the lock: a writer waited for microseconds at most


class InstanceLock(SoleOwner):
    """The held lock of the one active bot. The kernel frees it when the process ends."""

    __slots__ = ("_descriptors",)

    def __init__(self, *descriptors: int) -> None:
        self._descriptors = descriptors

    def close(self) -> None:
        """Release the lock."""
        for descriptor in self._descriptors:
            os.close(descriptor)


def hold_instance_lock(path: Path) -> InstanceLock | None:
    """Take the lock of the one active bot of the ledger at `path`, or return None when another process holds it.

    It consists of two locks: on the lock file, whose content names the holder, and on the folder. Removing the lock file would
    allow a second, different lock; the folder cannot be removed while the ledger is in it.
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
    with contextlib.suppress(OSError):  # a full disk: the pid is for people, the lock decides
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return InstanceLock(lock, folder)


def _locked(descriptor: int) -> bool:
    """Take the lock of a file or folder; false when another process holds it. Where folders have no locks, the file's is enough."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOTSUP) or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    return True


def instance_holder(path: Path) -> int | None:
    """Return the pid of the process that last took the bot's lock, for messages about a lock known to be held.

    It only reads: trying the lock, even briefly, could make a starting bot fail.
    """
    try:
        return int(_instance_path(path).read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return None


def has_instance_lock_open(path: Path, pid: int) -> bool:
    """Tell whether a living process has the lock's file open, as its holder has. After a reboot any program may have its pid.

    True if it cannot be known: the process is another user's, the lock's file was removed, or the system has no `/proc`.
    """
    try:
        lock = _instance_path(path).stat()
        opened = list(Path("/proc", str(pid), "fd").iterdir())
    except OSError:
        return True
    return any(_is_file(each, lock) for each in opened)


def _is_file(path: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), wanted)
    except OSError:  # closed meanwhile
        return False


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino  # noqa: PTH116 -- a Path takes five times as long, inside the gate
    except FileNotFoundError:
        return None


def _gate_path(path: Path) -> Path:
    return path.with_name(path.name + ".gate")


def _instance_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")
