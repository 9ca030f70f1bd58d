"""Programs of the suites (`python -m faults.suites.crash_points ...`) as forks of a server that has imported every suite.

The fork is what a command line would start: a process with its own arguments, environment, session, streams and status. There is a
zygote for each PYTHONHASHSEED that is asked for.
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
    """Run the `main` of a module and return how it ended. Raises TimeoutError; nothing of it runs on then.

    `hash_seed` is its PYTHONHASHSEED, None: as of any other process. `environment` is all it sees; unless told, ours.
    """
    with TemporaryDirectory(prefix="quotebot-program-") as folder:
        printed, said = Path(folder, "stdout"), Path(folder, "stderr")
        sees = os.environ if environment is None else environment
        order = Order((program, str(printed), *arguments), dict(sees), str(said), "faults.harness.programs:main")
        status = asyncio.run(_ended(order, hash_seed, seconds))
        return subprocess.CompletedProcess((program, *arguments), status, printed.read_text("utf-8"), said.read_text("utf-8"))


async def _ended(order: Order, hash_seed: str | None, seconds: float) -> int:
    async with shared_fork_server(WARM, hash_seed) as mother:
        spawned = await mother.spawn(order)
        return await asyncio.wait_for(spawned.wait(), seconds)


def get_warm() -> None:
    """Import every program, and do once what most of them begin with."""
    for program in PROGRAMS:
        import_module(program)
    from faults.lab.setting import silence  # noqa: PLC0415 -- of the zygote alone: who asks for a program need not import any
    from faults.lab.warm_up import warm_up  # noqa: PLC0415 -- as above

    silence()
    warm_up()


def main() -> None:
    """Become the program."""
    program, printed, *arguments = sys.argv[1:]
    file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.close(file)
    sys.argv = [program, *arguments]
    sys.exit(import_module(program).main(arguments))
