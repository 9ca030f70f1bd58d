"""A `quotebot` command as a fork of the fork server (faults/harness/fork_server.py), each stream in its own file."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from faults.harness.fork_server import Order, shared_fork_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def run(arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run one command as its own process. Raises TimeoutError."""
    with TemporaryDirectory(prefix="quotebot-forked-") as folder:
        streams = [Path(folder, "stdout"), Path(folder, "stderr")]
        order = Order((str(cwd), *map(str, streams), *arguments), environment, str(streams[1]), "tests.forked:main")
        status = asyncio.run(_ended(order, seconds))
        printed, said = (stream.read_text("utf-8") for stream in streams)
    return subprocess.CompletedProcess(arguments, status, printed, said)


async def _ended(order: Order, seconds: float) -> int:
    async with shared_fork_server() as mother:
        spawned = await mother.spawn(order)
        return await asyncio.wait_for(spawned.wait(), seconds)


def main() -> None:
    """Run the command in the fork."""
    folder, printed, said, *arguments = sys.argv[1:]
    os.chdir(folder)
    for path, end in ((printed, 1), (said, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, end)
        os.close(file)
    sys.argv = ["quotebot", *arguments]
    from quotebot.__main__ import main as command  # noqa: PLC0415 -- needed only in the fork

    command()
