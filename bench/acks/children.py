"""Processes of the benchmark: the real bot, as shipped, and the applications for comparison."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from bench.acks.slack import Shot, Slack

T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[2]
BOT: Final = "quotebot"
START_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.1
UNFINISHED: Final = """
SELECT 1 FROM operations WHERE state IN ('reserved', 'in_progress', 'failed_retryable')
UNION ALL SELECT 1 FROM effects WHERE state IN ('pending', 'in_flight', 'uncertain') AND class NOT LIKE 'crm.%' LIMIT 1
"""

# Each flush takes longer, as on a slower disk. The bot is unchanged.
SLOW_FSYNC: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static void held(void) { usleep(1000 * atoi(getenv("BENCH_FSYNC_MS"))); }
int fsync(int fd) { held(); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { held(); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"""


def run_and_end(measuring: Coroutine[Any, Any, T]) -> T:
    """Run a benchmark. SIGTERM ends it as SIGINT does, and with it the processes that it started."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    return asyncio.run(measuring)


def slow_fsync_library(folder: Path) -> Path | None:
    """Compile the library that delays flushes; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = folder / "slow_fsync.c", folder / "slow_fsync.so"
    source.write_text(SLOW_FSYNC, encoding="utf-8")
    done = subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=False, capture_output=True)
    return library if done.returncode == 0 else None


@asynccontextmanager
async def child(slack: Slack, name: str, command: Sequence[str], log: Path, **environment: str) -> AsyncIterator[int]:
    """Run one application until the end of the block; yields its process id. Raises RuntimeError if it does not connect."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            *command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
    try:
        for _ in range(int(START_SECONDS / LOOK_SECONDS)):
            if slack.connected(name) or process.returncode is not None:
                break
            await asyncio.sleep(LOOK_SECONDS)
        if not slack.connected(name):
            raise RuntimeError(f"{name} did not connect: {_end_of(log)}")
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process and its children have used; 0 if the kernel does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(cpu_seconds(int(child)) for child in children)


def app(slack: Slack, name: str, folder: Path) -> AbstractAsyncContextManager[int]:
    """Return a context manager that runs an application that only acknowledges."""
    return child(slack, name, ["-m", "bench.acks.apps", name, slack.url], folder / f"{name}.log")


class Bot:
    """The real bot's process, and its ledger, read from outside the bot."""

    def __init__(self, slack: Slack, folder: Path, name: str = BOT) -> None:
        self._slack = slack
        self._folder = folder
        self.name = name
        self.ledger = folder / name / "ledger.db"

    def running(self, *, without: Sequence[str] = (), **environment: str) -> AbstractAsyncContextManager[int]:
        """Return a context manager that runs the bot, `without` some speed mechanisms (without.py).

        `environment` takes precedence over the settings of the benchmark.
        """
        settings = {
            "SLACK_API_URL": f"{self._slack.url}/api/",
            "SLACK_BOT_TOKEN": "xoxb-bench",
            "SLACK_APP_TOKEN": f"xapp-{self.name}",
            "QUOTEBOT_DATA_DIR": str(self.ledger.parent),
            "QUOTEBOT_COMMANDS_PER_MINUTE": "100000",  # one person stands for many
        }
        log = self._folder / f"{self.name}.log"
        module = ["bench.acks.without", ",".join(without)] if without else ["quotebot"]
        return child(self._slack, self.name, ["-m", *module, "run"], log, **{**settings, **environment})

    def run(self, *arguments: str) -> None:
        """Run a command of the terminal on the bot's ledger. Raises CalledProcessError if it fails."""
        settings = {"QUOTEBOT_DATA_DIR": str(self.ledger.parent), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-P", "-m", "quotebot", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, env={**os.environ, **settings})

    async def quiet(self) -> bool:
        """Wait until everything that was acknowledged is done; false if that took too long."""
        for _ in range(int(QUIET_SECONDS / LOOK_SECONDS)):
            if not self.rows(UNFINISHED):
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Read from the ledger's file."""
        with closing(sqlite3.connect(f"{self.ledger.as_uri()}?mode=ro", uri=True)) as reader:
            return reader.execute(sql).fetchall()

    def problems(self, shots: Sequence[Shot], refused: str) -> list[str]:
        """Return the untrue acknowledgements: a promised command must be recorded once, a refused one not at all."""
        recorded = {str(row[0]) for row in self.rows("SELECT source_request_id FROM deliveries")}
        promised = [shot for shot in shots if shot.text is not None and shot.text != refused]
        lost = sum(shot.request_id not in recorded for shot in promised)
        denied = sum(shot.request_id in recorded for shot in shots if shot.text == refused)
        found = [f"{lost} acknowledged and not recorded"] if lost else []
        return found + ([f"{denied} refused and yet recorded"] if denied else [])
