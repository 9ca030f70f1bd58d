"""Tests of a full disk: no acknowledged command is lost, people are notified, and work continues once there is space."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MOUNT: Final = 'mount -t tmpfs -o size=96m none "$0" && exec "$@"'  # room for the ballast, and as much again
OWN_DISK: Final = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT)


async def can_mount(folder: Path) -> str | None:
    """Return why a process may not mount its own disk here; None if it may."""
    try:
        probe = await asyncio.create_subprocess_exec(*OWN_DISK, str(folder), "true", stderr=asyncio.subprocess.PIPE)
    except FileNotFoundError as error:
        return str(error)
    _, refusal = await probe.communicate()
    return refusal.decode().strip() if probe.returncode else None


@pytest.mark.timeout(120)
async def test_full_disk_loses_nothing_acknowledged_notifies_users_and_ends_with_room(tmp_path: Path) -> None:
    disk = tmp_path / "bot"
    disk.mkdir()
    if why := await can_mount(disk):
        pytest.skip(f"this machine does not let a process mount a disk of its own: {why}")
    played = await asyncio.create_subprocess_exec(
        *OWN_DISK,
        str(disk),
        sys.executable,
        "-m",
        "faults.suites.full_disk",
        str(tmp_path),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await played.communicate()
    assert played.returncode == 0, out.decode()[-4000:]
    assert b"were acknowledged on the way, and done" in out
