"""Programs of the suites (`python -m faults.suites.crash_points ...`) as forks of a server that has imported every suite.

A fork equals the process that a command line starts: it has its own arguments, environment, session, streams and exit status. There
is one fork server for each requested PYTHONHASHSEED.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from faults.harness.fork_server import Order, shared_fork_server

if TYPE_CHECKING:
    from collections.abc import Mapping

WARM: Final = "faults.harness.programs:get_warm"
PROGRAMS: Final = (
    "faults.suites.mutants",
    "faults.mutants.model",
    "faults.suites.reaching",
    "faults.suites.simulate",
    "faults.suites.crash_points",
)


def run(
    program: str, *arguments: str, seconds: float, hash_seed: str | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the `main` of a module and return its status and output. Raises TimeoutError; the program is killed then.

    `hash_seed` is its PYTHONHASHSEED (None: as in any other process). `environment` is its whole environment, by default this
    process's own.
    """
    with TemporaryDirectory(prefix="quotebot-program-") as folder:
        printed, said = Path(folder, "stdout"), Path(folder, "stderr")
        sees = dict(os.environ if environment is None else environment)
        order = Order((program, str(printed), *arguments), sees, str(said), "faults.harness.programs:main")
        status = asyncio.run(_ended(order, hash_seed, seconds))
        return subprocess.CompletedProcess((program, *arguments), status, printed.read_text("utf-8"), said.read_text("utf-8"))


async def _ended(order: Order, hash_seed: str | None, seconds: float) -> int:
    async with shared_fork_server(WARM, hash_seed) as mother:
        return await asyncio.wait_for((await mother.spawn(order)).wait(), seconds)


def get_warm() -> None:
    """Import every program, and run once the part that most of them start with."""
    for program in PROGRAMS:
        import_module(program)
    from faults.lab.setting import silence  # noqa: PLC0415 -- needed only in the fork server
    from faults.lab.warm_up import warm_up  # noqa: PLC0415 -- as above

    silence()
    warm_up()


def main() -> None:
    """Become the program: redirect stdout to the file, then call its `main`."""
    program, printed, *arguments = sys.argv[1:]
    file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.close(file)
    sys.argv = [program, *arguments]
    sys.exit(import_module(program).main(arguments))
