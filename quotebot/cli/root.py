"""The `quotebot` command: its groups, and the one place that turns errors into messages and exit statuses.

Commands are registered by import path and imported when they run: `--help` must not pay for Slack, PDF or CRM libraries.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, CycloptsError, Parameter

from quotebot import __version__
from quotebot.cli import exits
from quotebot.cli.printable import safe_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

# Import path -> help. Cyclopts imports a command's module when the command is given, which keeps `--help` fast.
COMMANDS: Final = {
    "quotebot.cli.serve:run": "Run the bot until SIGTERM or Ctrl-C. Needs SLACK_BOT_TOKEN and SLACK_APP_TOKEN.",
    "quotebot.cli.serve:sandbox": (
        "Start a whole local world (Slack, Salesforce, an LLM) with a web page, and the bot connected to it. No account needed."
    ),
    "quotebot.cli.config:init": (
        "Write a first quotebot.toml, every setting in it as a comment, and print how to connect the bot to Slack."
    ),
    "quotebot.cli.config:app": "See what is configured.",
    "quotebot.cli.doctor.table:doctor": (
        "Look at everything the bot needs, and say what is wrong, why that matters and what to do. Nothing is changed."
    ),
    "quotebot.cli.quote:app": "Make, change and look at quotes from the terminal; each request id has one effect.",
    "quotebot.cli.catalog:app": "What is sold and for how much: import, compare, check and activate versions of the ruleset.",
    "quotebot.cli.approval_policy:app": "Who has to approve what: import, compare, check and preview the approval policy.",
    "quotebot.cli.report:app": "Numbers for a deal desk: discounts, cycle times, wins and losses, approvals, pipeline, exports.",
    "quotebot.cli.document:app": "See and check the document that customers get: preview, lint, template.",
    "quotebot.cli.dead:app": "Look at what was given up (dead letters), and decide about it.",
    "quotebot.cli.replay:replay": (
        "Put dead letters back to work: the same row under the same key, so that nothing already done is done again."
    ),
    "quotebot.cli.trace:trace": "Show one user action everywhere: how it came, what was decided, what is pending, what was tried.",
    "quotebot.cli.trace:why": "Say what a row is waiting for, and what can be done about it.",
    "quotebot.cli.ops:app": "Look at the commands that the ledger remembers, and cancel what has not begun.",
    "quotebot.cli.operate:pause": (
        "Hold a class of effects, or a family of classes, until somebody resumes it. What is under way is finished; ages stop."
    ),
    "quotebot.cli.operate:resume": (
        "Let a paused class of effects work again, once its cause (an expired login, say) is mended. One effect goes first."
    ),
    "quotebot.cli.operate:gates": "List the classes of effects that are held or only tried, with cause, reason and how much waits.",
    "quotebot.cli.crm:app": "See whether Salesforce takes what is written to it.",
    "quotebot.cli.clock:app": "See whether the bot trusts this machine's clock, and confirm that it is right.",
    "quotebot.cli.policy:policy": "Print the retry matrix in force; what the configuration has changed is marked with *.",
    "quotebot.cli.audit:app": "Prove that the audit is whole, read it, and hand proof of a quote to somebody else.",
    "quotebot.cli.metrics:metrics": (
        "Print the numbers that the ledger holds, and those of the running bot, in Prometheus' text format."
    ),
    "quotebot.cli.metrics:slo": (
        "Hold the numbers of the ledger and of the running bot against what is promised; status 1 when something is missed."
    ),
    "quotebot.cli.ledger:app": "Look after the ledger's file.",
    "quotebot.cli.ledger:backup": (
        "Copy the ledger as it is at this moment, prove the copy, and write its manifest. The bot may run and is not held up."
    ),
    "quotebot.cli.ledger:restore": (
        "Put the ledger back to a backup. No bot may run on it; what was recorded since the backup is lost here."
    ),
    "quotebot.cli.drill:drill": (
        "Play named failures against a local world and the real bot, and say what held. Nothing of this installation is touched."
    ),
}

app = App(
    name="quotebot",
    help="Prices, approves and sends sales quotes in Slack; every command has exactly one business effect.",
    version=__version__,
    help_format="plaintext",  # rich's markdown takes a third of the start time
    result_action="return_value",
)
for _path, _help in COMMANDS.items():
    _module, _, _attribute = _path.rpartition(":")
    _name = _module.rpartition(".")[2] if _attribute == "app" else _attribute
    app.command(_path, name=_name.replace("_", "-"), help=_help)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    with safe_streams():
        given = sys.argv[1:] if arguments is None else arguments
        # a lone surrogate: invalid UTF-8, which neither the ledger nor a terminal accepts
        if any("\ud800" <= character <= "\udfff" for argument in given for character in argument):
            return exits.complain("An argument is not valid UTF-8. Nothing was done.", exits.USAGE)
        return _ended(arguments)


def _ended(arguments: Sequence[str] | None) -> int:
    try:
        status = app(arguments, exit_on_error=False, print_error=True)
        sys.stdout.flush()  # here, because at the interpreter's exit a closed pipe becomes a traceback
    except CycloptsError:  # already printed
        return exits.USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _disk_status(error)
    except Exception as error:  # noqa: BLE001 -- re-raised unless a person can act on it
        return _status_of(error)
    return status if isinstance(status, int) else exits.OK


def _disk_status(error: OSError) -> int:
    """Report a full disk under the output; any other system error goes to `_status_of`."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return _status_of(error)
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exits.complain(
        "The output could not be written: no space is left. What the command does was done; only its words are lost.",
        exits.UNAVAILABLE,
    )


def _status_of(error: Exception) -> int:
    """Report errors that people can act on; any other error is a bug and keeps its traceback."""
    from ledger.database import DatabaseError  # noqa: PLC0415 -- after the command has run, cost no longer matters
    from quotebot.app.installation import IngressEndedError, LedgerInUseError  # noqa: PLC0415 -- see root.py
    from quotebot.settings import ConfigurationError  # noqa: PLC0415 -- see root.py

    known: dict[type[Exception], int] = {
        exits.UsageError: exits.USAGE,
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


@app.command
def completion(
    shell: Literal["bash", "zsh", "fish"], *, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False
) -> int:
    """Print the completion script of a shell. Written where that shell looks for it, it works in the next one.

    bash: quotebot completion bash > ~/.local/share/bash-completion/completions/quotebot.
    zsh: quotebot completion zsh > a folder of $fpath, as _quotebot.
    fish: quotebot completion fish > ~/.config/fish/completions/quotebot.fish.

    Parameters
    ----------
    shell
        Whose.
    json_output
        Print JSON.
    """
    script = app.generate_completion(prog_name="quotebot", shell=shell)
    if json_output:
        import json  # noqa: PLC0415 -- see COMMANDS

        print(json.dumps({"schema_version": 1, "script": script}, indent=2))
    else:
        print(script, end="")
    return exits.OK
