"""Layer between SQLite and the file system: observes every write, sync and delete in one folder, and may answer with an error.

ctypes puts it under the SQLite that Python's sqlite3 module is linked to. So the production build of SQLite runs over it, with
production's threads, pragmas, locks and statements; there is no second SQLite, and production code is unchanged. The ledger's own
calls on its WAL (ledger/sqlite/wal.py) are observed and may fail in the same way.

The calls are SQLite's own (sqlite3_vfs and sqlite3_io_methods, https://www.sqlite.org/c3ref/io_methods.html). The WAL index is
shared memory: it is rebuilt after a power cut, so it need not be observed.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import gc
import os
import sqlite3
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ledger.sqlite import file as sqlite_file
from ledger.sqlite.wal import Wal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

OK: Final = 0
IOERR_READ: Final = 266
IOERR_WRITE: Final = 778
IOERR_FSYNC: Final = 1034
FULL: Final = sqlite3.SQLITE_FULL
BUSY: Final = sqlite3.SQLITE_BUSY

_OPEN_CREATE: Final = 0x4
_OPEN_JOURNALS: Final = 0x800 | 0x4000 | 0x80000  # main journal, super-journal, WAL
_SHM_LOCK: Final = 2
SECTOR: Final = 512  # bytes; the unit that a disk writes completely or not at all


class Call(StrEnum):
    """Kinds of file-system calls of SQLite that can be made to fail."""

    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    LOCK = "lock"  # of the database file, or of a slot of the WAL index


_OBSERVED: Final = frozenset({Call.WRITE, Call.TRUNCATE, Call.SYNC})


@dataclass(frozen=True, slots=True)
class Opened:
    """A file was opened; if there was none, an empty one exists now."""

    name: str


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes were written; `again`: by the ledger and not by SQLite, over a file's whole content."""

    name: str
    offset: int
    content: bytes
    again: bool = False


@dataclass(frozen=True, slots=True)
class Truncated:
    """A file has this size now."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    """A file was synced; with `folder` its folder's names too."""

    name: str
    folder: bool = False


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """A sync failed: the kernel reports the error once, and treats the unwritten data as written from then on."""

    name: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """A name was deleted; with `folder` the deletion is durable."""

    name: str
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file was renamed and replaced any file with the new name."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class MadeFolder:
    """A folder was made."""

    name: str


@dataclass(frozen=True, slots=True)
class SyncedFolder:
    """The names in a folder were synced ("" is the root of all paths)."""

    name: str


Event = Opened | Wrote | Truncated | Synced | SyncFailed | Deleted | Renamed | MadeFolder | SyncedFolder


class Unobservable(Exception):  # noqa: N818 -- the fact
    """This Python's SQLite cannot be reached."""


class _Vfs(Structure):
    _fields_ = (
        ("version", c_int),
        ("file_bytes", c_int),
        ("path_bytes_max", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("app_data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
        ("access", c_void_p),
        ("full_pathname", c_void_p),
        ("dl_open", c_void_p),
        ("dl_error", c_void_p),
        ("dl_sym", c_void_p),
        ("dl_close", c_void_p),
        ("randomness", c_void_p),
        ("sleep", c_void_p),
        ("current_time", c_void_p),
        ("last_error", c_void_p),
        ("current_time_int64", c_void_p),
        ("set_system_call", c_void_p),
        ("get_system_call", c_void_p),
        ("next_system_call", c_void_p),
    )


class _Methods(Structure):
    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", c_void_p),
        ("truncate", c_void_p),
        ("sync", c_void_p),
        ("file_size", c_void_p),
        ("lock", c_void_p),
        ("unlock", c_void_p),
        ("check_reserved_lock", c_void_p),
        ("file_control", c_void_p),
        ("sector_size", c_void_p),
        ("device_characteristics", c_void_p),
        ("shm_map", c_void_p),
        ("shm_lock", c_void_p),
        ("shm_barrier", c_void_p),
        ("shm_unmap", c_void_p),
        ("fetch", c_void_p),
        ("unfetch", c_void_p),
    )


_VFS_CALLS: Final[dict[str, Any]] = {
    "open": CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "delete": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int),
    "sleep": CFUNCTYPE(c_int, c_void_p, c_int),
}
_FILE_CALLS: Final[dict[str, Any]] = {
    "close": CFUNCTYPE(c_int, c_void_p),
    "read": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "write": CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64),
    "truncate": CFUNCTYPE(c_int, c_void_p, c_int64),
    "sync": CFUNCTYPE(c_int, c_void_p, c_int),
    "lock": CFUNCTYPE(c_int, c_void_p, c_int),
    "shm_lock": CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int),
}


@dataclass(slots=True)
class _Open:
    """A file that SQLite has open."""

    name: str
    real: dict[str, Any]
    names_folder: bool  # its first sync also syncs the folder (SQLite does so for journals and WALs it may have created)


@functools.cache
def library() -> ctypes.CDLL:
    """Return the SQLite that this process has loaded for its sqlite3 module. Raises Unobservable."""
    try:
        mapped = Path("/proc/self/maps").read_text("utf-8").splitlines()
    except OSError as error:
        raise Unobservable(f"this system does not say which SQLite is loaded ({sys.platform})") from error
    paths = sorted({line.split()[-1] for line in mapped if "libsqlite3" in line})
    if not paths:
        raise Unobservable("this Python has SQLite built in: there is no library to stand under")
    loaded = ctypes.CDLL(paths[0])  # the same file is the same library: it is not loaded twice
    loaded.sqlite3_libversion.restype = c_char_p
    if len(paths) > 1 or loaded.sqlite3_libversion().decode() != sqlite3.sqlite_version:
        raise Unobservable(f"it is not clear which SQLite is the one in use: {', '.join(paths)}")
    loaded.sqlite3_vfs_find.restype = POINTER(_Vfs)
    return loaded


class WatchedFolder:
    """Context manager that observes SQLite's files in `folder`, and may make calls fail. Open and close connections inside it.

    `observer` gets each completed call, on SQLite's threads, with the file's name in the folder. `fault` is called before each call
    of the kinds `failing`, by default of all kinds. If a write is refused, its first half may have reached the file. With `hurry`
    SQLite's sleeps while it waits for a lock return at once. Python's other SQLite files are unaffected.
    """

    def __init__(
        self,
        folder: Path,
        *,
        observer: Callable[[Event], object] | None = None,
        fault: Callable[[Call, str], int] | None = None,
        failing: Collection[Call] = tuple(Call),
        hurry: bool = False,
    ) -> None:
        self._folder = os.path.realpath(folder)
        self._tell: Callable[[Event], object] = observer or (lambda _event: None)
        self._fault = fault
        self._failing = frozenset(failing) if fault is not None else frozenset()
        # A call through Python costs more than most calls themselves: unobserved ones go straight to the original.
        self._asked = self._failing | (frozenset() if observer is None else _OBSERVED)
        self._library = library()
        self._usual = self._library.sqlite3_vfs_find(None)
        self._vfs = _Vfs.from_buffer_copy(self._usual.contents)
        self._vfs.name = f"quotebot-{id(self)}".encode()
        self._vfs.next = None
        self._open_files: dict[int, _Open] = {}  # by their address in SQLite
        self._tables: dict[int, tuple[_Methods, dict[str, Any]]] = {}  # by the address of the original methods
        self._kept: list[Any] = []  # referenced by SQLite
        self._error: Exception | None = None
        self._real_open = _VFS_CALLS["open"](self._vfs.open)
        self._real_delete = _VFS_CALLS["delete"](self._vfs.delete)
        self._vfs.open = self._pointer(_VFS_CALLS["open"], self._open)
        self._vfs.delete = self._pointer(_VFS_CALLS["delete"], self._delete)
        if hurry:
            self._vfs.sleep = self._pointer(_VFS_CALLS["sleep"], lambda _vfs, microseconds: microseconds)  # done, without sleeping

    def __enter__(self) -> Self:
        """Make this layer SQLite's default VFS."""
        self._library.sqlite3_vfs_register(ctypes.byref(self._vfs), 1)
        sqlite_file.Wal = self._wal  # type: ignore[attr-defined,assignment] # called as the class is
        gc.freeze()  # older objects need not be scanned at the end
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove this layer.

        Raises an observer's error, and RuntimeError if a file is still open: it would point to freed memory.
        """
        sqlite_file.Wal = Wal  # type: ignore[attr-defined] # as it was
        self._library.sqlite3_vfs_unregister(ctypes.byref(self._vfs))
        if self._open_files:
            gc.collect()  # a traceback may have kept a cursor, and thereby its connection
        gc.unfreeze()
        if self._open_files:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # SQLite points here for as long as the process lives
        if error is not None:
            return
        if self._error is not None:
            raise self._error
        if self._open_files:
            raise RuntimeError(f"still open in SQLite: {sorted(file.name for file in self._open_files.values())}")

    def _pointer(self, prototype: Any, function: Callable[..., int]) -> int | None:
        """Return the address of a C function that calls this one; an exception becomes an I/O error, and is raised at the end."""

        def guarded(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except Exception as error:  # noqa: BLE001 -- it must not vanish in C; __exit__ raises it
                self._error = self._error or error
                return sqlite3.SQLITE_IOERR

        callback = prototype(guarded)
        self._kept.append(callback)
        return ctypes.cast(callback, c_void_p).value

    def _name(self, path: int | None) -> str | None:
        """Return the file's name if the path is in the observed folder."""
        if not path:
            return None
        folder, name = os.path.split(os.fsdecode(ctypes.string_at(path)))
        return name if folder == self._folder else None

    def _refused(self, call: Call, name: str) -> int:
        return OK if self._fault is None or call not in self._failing else self._fault(call, name)

    def _wal(self, path: Path) -> Wal:
        """Open a WAL as production does; one in the observed folder also reports its calls and can be made to fail."""
        return _WatchedWal(path, self._refused, self._tell) if os.path.realpath(path.parent) == self._folder else Wal(path)

    # ------------------------------------------------------------------------------------------- called by SQLite

    def _open(self, _vfs: int, path: int | None, file: int, flags: int, out_flags: int) -> int:
        # The pointer itself is passed on: SQLite keeps it for as long as the file is open.
        code: int = self._real_open(ctypes.addressof(self._usual.contents), path, file, flags, out_flags)
        name = self._name(path)
        if code != OK or name is None:
            return code
        methods = c_void_p.from_address(file)
        assert methods.value is not None  # noqa: S101 -- an open file has its methods
        if methods.value not in self._tables:
            self._tables[methods.value] = self._table(_Methods.from_address(methods.value))
        ours, real = self._tables[methods.value]
        methods.value = ctypes.addressof(ours)
        self._open_files[file] = _Open(name, real, names_folder=bool(flags & _OPEN_CREATE and flags & _OPEN_JOURNALS))
        self._tell(Opened(name))
        return OK

    def _table(self, real: _Methods) -> tuple[_Methods, dict[str, Any]]:
        """Return a copy of a file's methods with the observed ones replaced, and the originals of those."""
        watched: dict[str, tuple[Call | None, Callable[..., int]]] = {
            "close": (None, self._close),
            "write": (Call.WRITE, self._write),
            "truncate": (Call.TRUNCATE, self._truncate),
            "sync": (Call.SYNC, self._sync),
            "read": (Call.READ, partial(self._pass, Call.READ)),
            "lock": (Call.LOCK, partial(self._pass, Call.LOCK)),
            "shm_lock": (Call.LOCK, self._shm_lock),
        }
        ours = _Methods.from_buffer_copy(real)
        originals: dict[str, Any] = {}
        for name, (call, function) in watched.items():
            if (call is None or call in self._asked) and getattr(real, name):  # a journal has no shared memory to lock
                originals[name] = _FILE_CALLS[name](getattr(real, name))
                setattr(ours, name, self._pointer(_FILE_CALLS[name], function))
        return ours, originals

    def _delete(self, _vfs: int, path: int | None, sync_folder: int) -> int:
        code: int = self._real_delete(ctypes.addressof(self._usual.contents), path, sync_folder)
        name = self._name(path)
        if code == OK and name is not None:
            self._tell(Deleted(name, bool(sync_folder)))
        return code

    def _close(self, address: int) -> int:
        return int(self._open_files.pop(address).real["close"](address))

    def _pass(self, call: Call, address: int, *arguments: int) -> int:
        file = self._open_files[address]
        return self._refused(call, file.name) or int(file.real[call](address, *arguments))

    def _write(self, address: int, buffer: int, size: int, offset: int) -> int:
        file = self._open_files[address]
        refused = self._refused(Call.WRITE, file.name)
        if refused:
            size = size // 2 // SECTOR * SECTOR
            if not size:
                return refused
        code: int = file.real["write"](address, buffer, size, offset)
        if code == OK:
            self._tell(Wrote(file.name, offset, ctypes.string_at(buffer, size)))
        return refused or code

    def _truncate(self, address: int, size: int) -> int:
        code = self._pass(Call.TRUNCATE, address, size)
        if code == OK:
            self._tell(Truncated(self._open_files[address].name, size))
        return code

    def _sync(self, address: int, flags: int) -> int:
        file = self._open_files[address]
        code = self._pass(Call.SYNC, address, flags)
        if code == OK:
            names_folder, file.names_folder = file.names_folder, False
            self._tell(Synced(file.name, names_folder))
        else:
            self._tell(SyncFailed(file.name))
        return code

    def _shm_lock(self, address: int, slot: int, slots: int, flags: int) -> int:
        file = self._open_files[address]
        code = self._refused(Call.LOCK, file.name) if flags & _SHM_LOCK else OK
        return code or int(file.real["shm_lock"](address, slot, slots, flags))


class _WatchedWal(Wal):
    """The ledger's own calls on its WAL, past the same fault and observer."""

    def __init__(self, path: Path, refused: Callable[[Call, str], int], tell: Callable[[Event], object]) -> None:
        self._name = path.name
        self._refused = refused
        self._tell = tell
        self._ask()
        super().__init__(path)
        tell(SyncedFolder(""))

    def flush(self) -> None:
        self._ask()
        super().flush()
        self._tell(Synced(self._name))

    def write_again(self) -> None:
        self._tell(Wrote(self._name, 0, self.content(), again=True))
        super().write_again()

    def _ask(self) -> None:
        if self._refused(Call.SYNC, self._name):
            self._tell(SyncFailed(self._name))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
