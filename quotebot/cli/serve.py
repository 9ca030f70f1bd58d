"""`quotebot run` and `quotebot sandbox`: the two long-running commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path  # noqa: TC003 -- cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from quotebot.app.bot import run_bot
from quotebot.app.first_start import begin_anew, require_ledger
from quotebot.app.front.process import fork_ingress
from quotebot.app.installation import LedgerInUseError
from quotebot.cli import exits
from quotebot.cli.config import assignments
from quotebot.cli.signals import stop_on_signals
from quotebot.cli.world import serve_world
from quotebot.observability.exporters import open_observers
from quotebot.observability.logs import configure_logs
from quotebot.observability.systemd import Supervisor
from quotebot.settings import ConfigurationError, load_settings, slack_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quotebot.settings import Settings


def run(
    *,
    standby: Annotated[bool, Parameter(negative="")] = False,
    new: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
) -> int:
    """Run the bot until SIGTERM or Ctrl-C. Needs SLACK_BOT_TOKEN and SLACK_APP_TOKEN.

    Parameters
    ----------
    standby
        While another bot is active on this ledger, wait and take over when it ends; without it that is exit status 75.
    new
        Begin an empty ledger where one was lost; without it that is exit status 78. Quote numbers begin anew. Old keys stay.
    set_
        NAME=VALUE: a setting that is stronger than every file and the environment; may be given several times.
    """
    settings = load_settings(assignments(set_), for_slack=True)
    slack_tokens(settings)
    if new:
        left = begin_anew(settings)
        exits.complain(
            f"A new, empty ledger begins at {settings.ledger_path.absolute()}. Its quote numbers begin anew: numbers that were "
            f"given out before appear twice. {'Left as it is: ' + ', '.join(left) + '.' if left else ''}".rstrip()
        )
    require_ledger(settings)
    ingress = fork_ingress(settings, watched)

    async def work() -> None:
        supervisor = Supervisor.of(os.environ)
        await run_bot(settings, stop_on_signals(), standby=standby, supervisor=supervisor, ingress=ingress)

    with watched(settings):
        asyncio.run(work())
    return exits.OK


@contextlib.contextmanager
def watched(settings: Settings) -> Iterator[None]:
    """Configure this process's log and observers for the block, and report the error that ends it."""
    observers = open_observers(settings, settings.secrets)
    configure_logs(json_lines=not sys.stderr.isatty(), secrets=settings.secrets, observers=observers.each)
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
    return await serve_world(port=port, data=data, with_bot=bot, headless=headless)
