"""A PostgreSQL server of its own for one run: a new cluster in a folder, a Unix socket, every commit flushed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

DEBIAN: Final = Path("/usr/lib/postgresql")
SECONDS_MAX: Final = 60
USER: Final = "bench"  # in the database
ACCOUNTS: Final = ("postgres", "nobody")  # PostgreSQL refuses to run as root
CONNECTIONS: Final = 100
DURABLE: Final = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


def programs() -> Path | None:
    """Return the folder of the newest installed server's programs, or None."""
    found = [folder for folder in DEBIAN.glob("*/bin") if (folder / "initdb").exists()]
    if found:
        return max(found, key=lambda folder: int(folder.parent.name) if folder.parent.name.isdecimal() else 0)
    one = shutil.which("initdb")
    return Path(one).resolve().parent if one else None


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Make a cluster in a new folder, start it, and yield its connection string; stop it afterwards."""
    found = programs()
    if found is None:
        raise FileNotFoundError("PostgreSQL is not installed")
    folder.mkdir(mode=0o700)
    account = _account()
    if account:
        for above in (folder.parent, folder.parent.parent):  # the temporary folders of this run: to be passed through, not read
            above.chmod(above.stat().st_mode | 0o111)
        shutil.chown(folder, account)
    options: dict[str, Any] = {"cwd": folder, "env": {**os.environ, "LC_ALL": "C", "PGDATA": str(folder / "data")}}
    if account:
        options |= {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": []}
    settings = {"listen_addresses": "", "unix_socket_directories": folder, "max_connections": CONNECTIONS, **DURABLE}
    _run([found / "initdb", "--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", f"--username={USER}"], options)
    command: list[str | Path] = [found / "postgres", *(f"--{name}={value}" for name, value in settings.items())]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, text=True, **options) as server:
        try:
            _await_ready(server, [found / "pg_isready", "--quiet", f"--host={folder}"], folder / "log")
            yield f"host={folder} user={USER} dbname=postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # an immediate shutdown: nothing of it is kept


def _account() -> str | None:
    """Return the unprivileged account to run as, or None to run as this user."""
    if os.geteuid():
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ACCOUNTS if name in known), None)


def _run(command: list[str | Path], options: dict[str, Any]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, **options)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise RuntimeError(f"{Path(command[0]).name} failed with status {done.returncode}: {words[-1]}")


def _await_ready(server: subprocess.Popen[str], question: list[str | Path], log: Path) -> None:
    """Ask until the server takes connections. Raises RuntimeError if it ended, or is too slow."""
    until = time.monotonic() + SECONDS_MAX
    while subprocess.run(question, check=False).returncode:
        if server.poll() is not None or time.monotonic() > until:
            words = log.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            raise RuntimeError(f"PostgreSQL did not start: {words[-1]}")
        time.sleep(0.05)
