"""`quotebot run` and `quotebot sandbox`: the two long-running commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from quotebot.cli import exits

if TYPE_CHECKING:
    from quotebot.sandbox.world import World

BOT_CONNECT_SECONDS = 20.0
BOT_STOP_SECONDS = 12.0


async def run() -> int:
    """Run the bot until SIGTERM or Ctrl-C. Needs SLACK_BOT_TOKEN and SLACK_APP_TOKEN."""
    from quotebot.app import run_bot  # noqa: PLC0415 -- see root.py
    from quotebot.settings import load_settings, slack_tokens  # noqa: PLC0415 -- see root.py
    from quotebot.telemetry import configure_logs  # noqa: PLC0415 -- see root.py

    settings = load_settings()
    secret = settings.salesforce_client_secret
    secrets = (*slack_tokens(settings), *(() if secret is None else (secret.get_secret_value(),)))
    configure_logs(json_lines=not sys.stderr.isatty(), secrets=secrets)
    await run_bot(settings, _stop_on_signals())
    return exits.OK


async def sandbox(
    *,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 8765,
    data: Path | None = None,
    bot: Annotated[bool, Parameter(negative="--no-bot")] = True,
    headless: bool = False,
) -> int:
    """Start a whole local world (Slack, Salesforce, an LLM) with a web page, and the bot connected to it. No account needed.

    Parameters
    ----------
    port
        Where the page is served, on 127.0.0.1; 0 takes any free port.
    data
        Keep the files of this world here (an empty folder); without it they are removed at the end.
    bot
        With --no-bot only the world starts, and the environment that makes `quotebot run` connect to it is printed.
    headless
        Do not open a browser.
    """
    from quotebot.sandbox.world import World  # noqa: PLC0415 -- see root.py

    with contextlib.ExitStack() as cleanup:
        folder = data or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="quotebot-sandbox-")))
        if (folder / "bot" / "ledger.db").exists():
            exits.complain(
                f"{folder} holds the ledger of an earlier sandbox, whose Slack is gone. Nothing was started. Use an empty folder."
            )
            return exits.USAGE
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            world = World(folder)
        except OSError as error:
            exits.complain(f"{folder} cannot be used ({error.strerror}). Nothing was started. Name another folder with --data.")
            return exits.USAGE
        try:
            await world.start(port=port)
        except OSError as error:
            exits.complain(f"The sandbox cannot listen on 127.0.0.1:{port} ({error.strerror}). Nothing was started. Try --port 0.")
            return exits.UNAVAILABLE
        try:
            return await _serve_world(world, folder, with_bot=bot, headless=headless)
        finally:
            await world.stop()


async def _serve_world(world: World, folder: Path, *, with_bot: bool, headless: bool) -> int:
    environment = {**world.environment(), "QUOTEBOT_DATA_DIR": str(folder / "bot"), "QUOTEBOT_SELLER_NAME": "Sandbox Software Ltd"}
    stop = _stop_on_signals()
    if not with_bot:
        for name, value in environment.items():
            print(f"export {name}='{value}'")
        print(f"Sandbox ready: {world.url} (without a bot)", flush=True)
        await stop.wait()
        return exits.OK
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "quotebot", "run", env={**os.environ, **environment})
    try:
        await _until_connected(world, process, stop)
        if process.returncode is not None:
            exits.complain(f"The bot ended with status {process.returncode} before it connected. The sandbox stops.")
            return exits.UNEXPECTED
        print(f"Sandbox ready: {world.url}", flush=True)
        print(f"Its ledger: QUOTEBOT_DATA_DIR={folder / 'bot'} quotebot dead list", file=sys.stderr)
        if not headless and sys.stdout.isatty():
            import webbrowser  # noqa: PLC0415 -- only on a terminal

            webbrowser.open(world.url)
        ended = asyncio.create_task(process.wait())
        await asyncio.wait([ended, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not stop.is_set():
            exits.complain(f"The bot ended with status {process.returncode}; the world stays up. Ctrl-C ends it.")
            await stop.wait()
    finally:
        await _end(process)
    return exits.OK


async def _until_connected(world: World, process: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    deadline = asyncio.get_running_loop().time() + BOT_CONNECT_SECONDS
    while not world.socket.connections and process.returncode is None and not stop.is_set():
        if asyncio.get_running_loop().time() > deadline:
            exits.complain("The bot has not connected yet; the page shows when it does.")
            return
        await asyncio.sleep(0.05)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), BOT_STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
