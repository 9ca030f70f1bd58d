"""The local world of `quotebot sandbox`: its folder, its port, the bot as a child process, and their shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import webbrowser
from pathlib import Path

from quotebot.cli import exits, terminal
from quotebot.cli.children import OURSELVES, our_name, with_our_code, without_settings
from quotebot.cli.signals import stop_on_signals
from quotebot.sandbox.backstage import Staff
from quotebot.sandbox.bot_process import BotProcess, Console, LedgerFeed
from quotebot.sandbox.salesforce.login import MY_DOMAIN
from quotebot.sandbox.slack.directory import OPS_CHANNEL
from quotebot.sandbox.slack.listing import SCOPES
from quotebot.sandbox.world import World
from quotebot.settings_sources import FILE_NAME, FILE_VARIABLE

BOT_CONNECT_SECONDS = 20.0


async def serve_world(*, port: int, data: Path | None, with_bot: bool, headless: bool) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit status."""
    with contextlib.ExitStack() as cleanup:
        folder = data or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="quotebot-sandbox-")))
        if (folder / "bot" / "ledger.db").exists():
            exits.complain(
                f"{folder} holds the ledger of an earlier sandbox, whose Slack is gone. Nothing was started. Use an empty folder."
            )
            return exits.USAGE
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            world = World(folder, scopes=SCOPES, limited=True)
        except OSError as error:
            exits.complain(f"{folder} cannot be used ({error.strerror}). Nothing was started. Name another folder with --data.")
            return exits.USAGE
        try:
            await world.start(port=port)
        except OSError as error:
            exits.complain(f"The sandbox cannot listen on 127.0.0.1:{port} ({error.strerror}). Nothing was started. Try --port 0.")
            return exits.UNAVAILABLE
        try:
            return await _run_world(world, folder, with_bot=with_bot, headless=headless)
        finally:
            await world.stop()


async def _run_world(world: World, folder: Path, *, with_bot: bool, headless: bool) -> int:
    settings = folder / FILE_NAME  # an empty file: while it is named, neither .env nor quotebot.toml of the current folder is read
    settings.touch(mode=0o600)
    environment = {
        FILE_VARIABLE: str(settings.absolute()),
        **world.environment(),
        **world.model_environment(),
        "QUOTEBOT_DATA_DIR": str((folder / "bot").absolute()),
        "QUOTEBOT_SELLER_NAME": "Sandbox Software Ltd",
        "QUOTEBOT_OPS_CHANNEL": OPS_CHANNEL,
        "QUOTEBOT_CLI_OPERATORS": json.dumps([terminal.user()]),  # its page acts in the names of its people
    }
    stop = stop_on_signals()
    if not with_bot:
        for name in sorted(os.environ.keys() - without_settings(os.environ).keys() - environment.keys()):
            print(f"unset {name}")
        for name, value in environment.items():
            print(f"export {name}='{value}'")
        print(f"# For other clients of Salesforce: {world.salesforce.plain_url}, or https://{MY_DOMAIN} with")
        print(f"# HTTPS_PROXY={world.salesforce.proxy_url} REQUESTS_CA_BUNDLE={world.salesforce.ca_file}")
        print(f"Sandbox ready: {world.url} (without a bot)", flush=True)
        await stop.wait()
        return exits.OK
    environment = {**without_settings(with_our_code()), **environment}
    keeper = BotProcess(
        (*OURSELVES, "run"),
        environment,
        is_connected=lambda: world.socket.connections > 0,
        changed=world.slack.changes.bump,
        complain=exits.complain,
    )
    console = Console(OURSELVES, environment)
    world.backstage.staff = Staff(keeper, console, LedgerFeed(console))
    await keeper.start()
    try:
        await _until_connected(world, keeper, stop)
        if keeper.exit_status is not None:
            exits.complain(f"The bot ended with status {keeper.exit_status} before it connected. The sandbox stops.")
            return exits.UNEXPECTED
        print(f"Sandbox ready: {world.url}", flush=True)
        exits.complain(f"Its ledger, from another terminal: QUOTEBOT_DATA_DIR={folder / 'bot'} {our_name()} dead list")
        if not headless and sys.stdout.isatty():
            webbrowser.open(world.url)
        await keeper.keep(stop)
    finally:
        await keeper.stop()
    return exits.OK


async def _until_connected(world: World, keeper: BotProcess, stop: asyncio.Event) -> None:
    deadline = asyncio.get_running_loop().time() + BOT_CONNECT_SECONDS
    while not world.socket.connections and keeper.exit_status is None and not stop.is_set():
        if asyncio.get_running_loop().time() > deadline:
            exits.complain("The bot has not connected yet; the page shows when it does.")
            return
        await asyncio.sleep(0.05)
