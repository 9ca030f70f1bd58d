"""`quotebot drill`: named failures, run by faults/ in its own process. Production never imports faults."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Annotated, Final

from cyclopts import Parameter

from quotebot.cli.children import stop_on_signals, with_our_code

PLAYER: Final = "faults.drill"
KILLED: Final = 128  # plus the signal's number, as in shells


async def drill(*names: str, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Play failures against a local bot (touches nothing of this installation).

    Exit status: 0 all held, 1 some did not (their files are kept), 2 there is no such drill, 130 stopped.

    Parameters
    ----------
    names
        `list` shows them all; or names (FI-017 D-1), a priority (P0), or all.
    json_output
        Print JSON.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", PLAYER, *names, *(["--json"] if json_output else []), env=with_our_code()
    )
    asked, ended = asyncio.create_task(stop_on_signals().wait()), asyncio.create_task(process.wait())
    await asyncio.wait([asked, ended], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not ended.done():
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # it ends its own bot and world first
    status = await ended
    return status if status >= 0 else KILLED - status
