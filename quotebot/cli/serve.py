"""`quotebot run` and `quotebot sandbox`: the two long-running commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import webbrowser
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ledger.audit.keyring import key_files
from quotebot.app.bot import run_bot
from quotebot.app.front import fork_ingress
from quotebot.app.installation import LedgerInUseError, begin_anew, require_ledger, storage_of
from quotebot.cli import exits, terminal
from quotebot.cli.children import OURSELVES, our_name, stop_on_signals, with_our_code, without_settings
from quotebot.cli.config import assignments
from quotebot.observability.exporters import open_observers
from quotebot.observability.logs import configure_logs
from quotebot.observability.systemd import Supervisor
from quotebot.sandbox.backstage import BotProcess, Console, LedgerFeed, Staff
from quotebot.sandbox.cluster import ClusterError, DatabaseServer
from quotebot.sandbox.salesforce.login import MY_DOMAIN
from quotebot.sandbox.slack.directory import OPS_CHANNEL
from quotebot.sandbox.slack.listing import SCOPES
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError, load_settings
from quotebot.settings_sources import FILE_NAME, FILE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quotebot.settings import Settings

BOT_CONNECT_SECONDS = 20.0
REPLICAS_MAX = 4  # with two connections each; Slack allows an app ten
Json = Annotated[bool, Parameter(name="--json", negative="")]


def run(
    *,
    standby: Annotated[bool, Parameter(negative="")] = False,
    new: Annotated[bool, Parameter(negative="")] = False,
    replica_name: str | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    json_output: Json = False,
) -> int:
    """Run the bot (needs SLACK_BOT_TOKEN and SLACK_APP_TOKEN).

    Parameters
    ----------
    standby
        While another bot is active on this ledger (in a database: one of this name), wait and take over when it ends; without it
        that is exit status 75.
    new
        Begin an empty ledger where one was lost; without it that is exit status 78. Quote numbers begin anew. Old keys stay.
    replica_name
        Name of this bot among several on one database; stronger than the setting replica_name.
    set_
        NAME=VALUE: a setting that is stronger than every file and the environment; may be given several times.
    json_output
        Write the log as lines of JSON on a terminal too; elsewhere it always is.
    """
    named = {} if replica_name is None else {"replica_name": replica_name}
    settings = load_settings({**assignments(set_), **named}, for_slack=True)
    if new:
        left = begin_anew(settings)
        exits.complain(
            f"A new, empty ledger begins at {storage_of(settings).place}. Its quote numbers begin anew: numbers that were "
            f"given out before appear twice. {'Left as it is: ' + ', '.join(left) + '.' if left else ''}".rstrip()
        )
    require_ledger(settings)
    watch = partial(watched, json_lines=json_output or not sys.stderr.isatty())
    ingress = fork_ingress(settings, watch)

    async def work() -> None:
        supervisor = Supervisor.of(os.environ)
        await run_bot(settings, stop_on_signals(), standby=standby, supervisor=supervisor, ingress=ingress)

    with watch(settings):
        asyncio.run(work())
    return exits.OK


@contextlib.contextmanager
def watched(settings: Settings, *, json_lines: bool) -> Iterator[None]:
    """Configure this process's log and observers for the block, and report the error that ends it."""
    observers = open_observers(settings, settings.secrets)
    facts = {} if settings.ledger_url is None else {"replica": settings.replica_name}
    configure_logs(json_lines=json_lines, secrets=settings.secrets, observers=observers.each, facts=facts)
    observers.complain()
    try:
        yield
    except (ConfigurationError, LedgerInUseError):
        raise  # expected and reported by the caller; nothing is broken
    except Exception as error:
        observers.tell("bot.died", error)
        raise
    finally:
        observers.close()


async def sandbox(
    *,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 8765,
    data: Path | None = None,
    bot: Annotated[bool, Parameter(negative="--no-bot")] = True,
    headless: bool = False,
    language: Literal["en", "de"] = "en",
    postgres: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=(0, 1), metavar="[URL]", negative="")] = None,
    replicas: Annotated[int, Parameter(validator=Number(gte=1, lte=REPLICAS_MAX))] = 1,
    json_output: Json = False,
) -> int:
    """Try the bot in a local Slack, Salesforce and LLM, without an account.

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
    language
        The language of the bot; the page itself is in English.
    postgres
        Keep the bot's ledger in PostgreSQL: in the empty database at URL, or on a server that starts and ends with the sandbox.
    replicas
        Run so many bots on the ledger, which must be in PostgreSQL.
    json_output
        Print the address of the page and the environment as one line of JSON, as soon as the sandbox is ready.
    """
    if replicas > 1 and postgres is None:
        return exits.complain("Several bots share a ledger in PostgreSQL only. Nothing was started. Add --postgres.", exits.USAGE)
    async with contextlib.AsyncExitStack() as cleanup:
        folder = data or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="quotebot-sandbox-")))
        if any((folder / name).exists() for name in ("bot/ledger.db", "postgres")):
            return exits.complain(
                f"{folder} holds the ledger of an earlier sandbox, whose Slack is gone. Nothing was started. Use an empty folder.",
                exits.USAGE,
            )
        try:
            # A process of root starts the database's server as another user, who must be able to enter the folder.
            mode = 0o711 if postgres == () else 0o700
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
            if data is None:
                folder.chmod(mode)
            world = World(folder, scopes=SCOPES, limited=True)
        except OSError as error:
            return exits.complain(
                f"{folder} cannot be used ({error.strerror}). Nothing was started. Name another folder with --data.", exits.USAGE
            )
        try:
            ledger = {} if postgres is None else await _start_database(world, folder, cleanup, *postgres)
        except ClusterError as error:
            return exits.complain(f"{error} Nothing was started.", exits.UNAVAILABLE)
        try:
            await world.start(port=port)
        except OSError as error:
            return exits.complain(
                f"The sandbox cannot listen on 127.0.0.1:{port} ({error.strerror}). Nothing was started. Try --port 0.",
                exits.UNAVAILABLE,
            )
        try:
            given = {**ledger, "QUOTEBOT_LANGUAGE": language}
            number = replicas if bot else 0
            return await _run_world(world, folder, given, replicas=number, headless=headless, json_output=json_output)
        finally:
            await world.stop()


async def _start_database(
    world: World, folder: Path, cleanup: contextlib.AsyncExitStack, address: str | None = None
) -> dict[str, str]:
    """Start a database server, or use the one at `address`; return the settings that put the ledger there. Raises ClusterError."""
    changed = world.slack.changes.bump
    database = DatabaseServer.own(folder / "postgres", changed) if address is None else DatabaseServer(None, address, changed)
    await database.start()
    cleanup.push_async_callback(database.stop)
    world.backstage.database = database
    return {"QUOTEBOT_LEDGER_URL": database.url, "QUOTEBOT_LEDGER_DURABILITY": "local"}


async def _run_world(world: World, folder: Path, given: dict[str, str], *, replicas: int, headless: bool, json_output: bool) -> int:
    settings = folder / FILE_NAME  # an empty file: while it is named, neither .env nor quotebot.toml of the current folder is read
    settings.touch(mode=0o600)
    environment = {
        FILE_VARIABLE: str(settings.absolute()),
        **world.environment(),
        **world.model_environment(),
        "QUOTEBOT_DATA_DIR": str((folder / "bot").absolute()),
        **world.seller_environment(),
        "QUOTEBOT_OPS_CHANNEL": OPS_CHANNEL,
        **given,
        "QUOTEBOT_CLI_OPERATORS": json.dumps([terminal.user()]),  # its page acts in the names of its people
    }
    stop = stop_on_signals()
    ready = json.dumps({"schema_version": 1, "url": world.url, "bot": replicas > 0, "environment": environment}, sort_keys=True)
    if not replicas and json_output:
        print(ready, flush=True)
        await stop.wait()
        return exits.OK
    if not replicas:
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
    keepers = _processes(world, folder, environment, replicas)
    console = Console(OURSELVES, environment)
    world.backstage.staff = Staff(keepers, console, LedgerFeed(console))
    try:
        ended = await _start_bots(list(keepers.values()), folder, stop)
        if ended is not None:
            database = world.backstage.database
            given_one = database is not None and not database.is_own
            return exits.complain(
                f"The bot ended with status {ended} before it connected. The sandbox stops."
                f"{' It needs an empty database that accepts its login.' if given_one else ''}",
                exits.UNEXPECTED,
            )
        # The address comes last, after an empty line.
        named = "".join(f"{name}='{given[name]}' " for name in ("QUOTEBOT_LEDGER_URL",) if name in given)
        exits.complain(
            f"Inspect, from another terminal: QUOTEBOT_DATA_DIR={folder / 'bot'} {named}{our_name()} dead list\nStop with Ctrl-C.\n"
        )
        print(ready if json_output else f"Sandbox ready: {world.url}", flush=True)
        if not headless and sys.stdout.isatty():
            webbrowser.open(world.url)
        await asyncio.gather(*(keeper.keep(stop) for keeper in keepers.values()))
    finally:
        await asyncio.gather(*(keeper.stop() for keeper in keepers.values()))
    return exits.OK


def _processes(world: World, folder: Path, environment: dict[str, str], replicas: int) -> dict[str, BotProcess]:
    """Return the bots' processes by name. Each of several has a data folder and an app-level token of its own."""

    def process(name: str, of_its_own: dict[str, str]) -> BotProcess:
        token = {**environment, **of_its_own}["SLACK_APP_TOKEN"]
        return BotProcess(
            (*OURSELVES, "run"),
            {**environment, **of_its_own},
            is_connected=lambda: world.socket.is_connected(token),
            changed=world.slack.changes.bump,
            complain=exits.complain,
            name="The bot" if replicas == 1 else f"Bot {name}",
        )

    if replicas == 1:
        return {"main": process("main", {})}
    names = ascii_lowercase[:replicas]
    return {
        name: process(
            name,
            {
                "QUOTEBOT_REPLICA_NAME": name,
                "SLACK_APP_TOKEN": f"{environment['SLACK_APP_TOKEN']}-{name}",
                "QUOTEBOT_DATA_DIR": str((folder / _folder_of(names.index(name))).absolute()),
            },
        )
        for name in names
    }


def _folder_of(number: int) -> str:
    """Return the data folder of a bot, counted from 0."""
    return "bot" if number == 0 else f"bot-{ascii_lowercase[number]}"


async def _start_bots(keepers: Sequence[BotProcess], folder: Path, stop: asyncio.Event) -> int | None:
    """Start the first bot, which makes the schema and the audit's key, then the others. Returns the status of one that ended."""
    for number, keeper in enumerate(keepers):
        other = folder / _folder_of(number)
        if number:
            other.mkdir(mode=0o700)
            for key in key_files(folder / _folder_of(0)):
                shutil.copy(key, other)
        await keeper.start()
        if number == 0:
            await _until_connected(keeper, stop)
    await asyncio.gather(*(_until_connected(keeper, stop) for keeper in keepers))
    return next((keeper.exit_status for keeper in keepers if keeper.exit_status is not None), None)


async def _until_connected(keeper: BotProcess, stop: asyncio.Event) -> None:
    deadline = asyncio.get_running_loop().time() + BOT_CONNECT_SECONDS
    while keeper.standing.state == "starting" and not stop.is_set():
        if asyncio.get_running_loop().time() > deadline:
            exits.complain("The bot has not connected yet; the page shows when it does.")
            return
        await asyncio.sleep(0.05)
