"""The operator's command line, run by the sandbox for its page: its only way to read or change the bot's ledger.

The world knows nothing of ledgers. It starts `quotebot ...` as an operator would, bounded in number and time, and passes on the
output.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

COMMAND_SECONDS = 30.0
LINE_BYTES_MAX = 8 * 2**20  # a picture of 200 commands with a dozen effects each is about 1 MB
END_SECONDS = 2.0
TIMED_OUT = 124  # exit status of timeout(1)


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of one command: its exit status, its stdout and its stderr."""

    status: int
    data: str
    words: str


class Console:
    """Runs `quotebot` commands while the bot runs: at most one that changes something at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._one_at_a_time = asyncio.Lock()

    async def run(self, *arguments: str) -> Ran:
        """Run one command to its end."""
        async with self._one_at_a_time:
            process = await self._start(*arguments)
            try:
                data, words = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
            except TimeoutError:
                return Ran(TIMED_OUT, "", f"`quotebot {' '.join(arguments)}` took longer than {COMMAND_SECONDS:g} s and was ended.")
            finally:
                await _end(process)
        return Ran(process.returncode or 0, data.decode(errors="replace"), words.decode(errors="replace").strip())

    async def lines(self, *arguments: str) -> AsyncGenerator[str, None]:
        """Yield a command's output, line by line, until it ends. Raises ConsoleError with its stderr if it fails.

        Closing the iterator ends the command.
        """
        process = await self._start(*arguments)
        assert process.stdout is not None  # noqa: S101 -- a pipe was requested
        assert process.stderr is not None  # noqa: S101 -- as above
        try:
            while line := await process.stdout.readline():
                yield line.decode(errors="replace")
            words = (await process.stderr.read()).decode(errors="replace").strip()
            if await process.wait():
                raise ConsoleError(words or f"`quotebot {' '.join(arguments)}` ended with status {process.returncode}.")
        finally:
            await _end(process)

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )


class ConsoleError(Exception):
    """A command failed; the message is its stderr."""


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
