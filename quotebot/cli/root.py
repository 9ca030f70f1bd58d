"""The `quotebot` command: its groups, and the one place where errors become words and exit statuses.

Command modules import what they need when they run: `--help` must not pay for Slack, PDF or CRM libraries.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from quotebot import __version__
from quotebot.cli import (
    audit,
    backup,
    catalog,
    clock,
    completion,
    config,
    crm,
    dead,
    doctor,
    drill,
    exits,
    ledger,
    metrics,
    operate,
    ops,
    policy,
    quote,
    serve,
    slo,
    trace,
)
from quotebot.cli.printable import safe_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App(
    name="quotebot",
    help="Prices, approves and sends sales quotes in Slack; every command has exactly one business effect.",
    version=__version__,
    help_format="plaintext",  # rich's markdown costs a third of the start
    result_action="return_value",
)
app.command(serve.run)
app.command(serve.sandbox)
app.command(config.init)
app.command(config.app)
app.command(doctor.doctor)
app.command(quote.app)
app.command(catalog.app)
app.command(dead.app)
app.command(dead.replay)
app.command(trace.trace)
app.command(trace.why)
app.command(ops.app)
app.command(operate.pause)
app.command(operate.resume)
app.command(operate.gates)
app.command(crm.app)
app.command(clock.app)
app.command(policy.policy)
app.command(audit.app)
app.command(metrics.metrics)
app.command(slo.slo)
app.command(ledger.app)
app.command(backup.backup)
app.command(backup.restore)
app.command(drill.drill)
app.command(completion.completion)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    with safe_streams():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    if not _readable(sys.argv[1:] if arguments is None else arguments):
        exits.complain("An argument is not valid UTF-8. Nothing was done.")
        return exits.USAGE
    return _ended(arguments)


def _readable(arguments: Sequence[str]) -> bool:
    """Tell whether no argument has a half of a character: bytes that are no UTF-8, which no ledger and no terminal takes."""
    return not any("\ud800" <= character <= "\udfff" for argument in arguments for character in argument)


def _ended(arguments: Sequence[str] | None) -> int:
    try:
        status = app(arguments, exit_on_error=False, print_error=True)
        sys.stdout.flush()  # here and not at the interpreter's end, where a reader that went away becomes a traceback
    except CycloptsError:  # already printed
        return exits.USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _disk_status(error)
    except Exception as error:  # noqa: BLE001 -- re-raised unless a person can act on it
        return _status_of(error)
    return status if isinstance(status, int) else exits.OK


def _disk_status(error: OSError) -> int:
    """Turn a full disk under the output into words; any other error of the system is a bug, or says enough."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return _status_of(error)
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    exits.complain("The output could not be written: no space is left. What the command does was done; only its words are lost.")
    return exits.UNAVAILABLE


def _status_of(error: Exception) -> int:
    """Turn the errors people can act on into words; anything else is a bug and keeps its traceback."""
    from ledger.database import DatabaseError  # noqa: PLC0415 -- after the command has run, cost no longer matters
    from quotebot.opening import LedgerInUseError  # noqa: PLC0415 -- see root.py
    from quotebot.settings import ConfigurationError  # noqa: PLC0415 -- see root.py
    from quotebot.wire import IngressEndedError  # noqa: PLC0415 -- see root.py

    known: dict[type[Exception], int] = {
        ConfigurationError: exits.CONFIG,
        LedgerInUseError: exits.PENDING,
        DatabaseError: exits.UNAVAILABLE,
        IngressEndedError: exits.UNAVAILABLE,
    }
    for kind, status in known.items():
        if isinstance(error, kind):
            exits.complain(str(error))
            return status
    raise error
