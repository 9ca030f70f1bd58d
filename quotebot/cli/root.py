"""The `quotebot` command: its groups, and the one place that turns errors into messages and exit statuses.

Commands are registered by import path and imported when they run: `--help` must not pay for Slack, PDF or CRM libraries.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from quotebot import __version__
from quotebot.cli import exits
from quotebot.cli.printable import safe_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

# Import path -> help. Cyclopts imports a command's module when the command is given, which keeps `--help` fast.
COMMANDS: Final = {
    "quotebot.cli.serve:run": "Run the bot (needs SLACK_BOT_TOKEN and SLACK_APP_TOKEN)",
    "quotebot.cli.serve:sandbox": "Try the bot in a local Slack, Salesforce and LLM, without an account",
    "quotebot.cli.config:init": "Write a first quotebot.toml and print how to connect to Slack",
    "quotebot.cli.config:app": "Show and check the settings",
    "quotebot.cli.doctor.table:doctor": "Check the installation and suggest fixes",
    "quotebot.cli.quote:app": "Create and manage quotes",
    "quotebot.cli.catalog:app": "Import, compare and activate products and prices",
    "quotebot.cli.approval_policy:app": "Import, check and preview the approval policy",
    "quotebot.cli.report:app": "Report discounts, cycle times, wins and losses, approvals and pipeline",
    "quotebot.cli.document:app": "Preview and check the customer document",
    "quotebot.cli.dead:app": "List, inspect and resolve failed jobs",
    "quotebot.cli.replay:replay": "Retry failed jobs (what is done already is not done again)",
    "quotebot.cli.trace:trace": "Show everything about one request",
    "quotebot.cli.trace:why": "Explain what a job is waiting for",
    "quotebot.cli.ops:app": "List recorded commands, retry or cancel them",
    "quotebot.cli.operate:pause": "Pause a kind of work until it is resumed",
    "quotebot.cli.operate:resume": "Resume paused work (one job is tried first)",
    "quotebot.cli.operate:gates": "List paused work and why",
    "quotebot.cli.operate:replicas": "List the running bots of this ledger",
    "quotebot.cli.crm:app": "Check and reconcile the Salesforce connection",
    "quotebot.cli.clock:app": "Check and confirm this machine's clock",
    "quotebot.cli.policy:policy": "Print the retry rules in force (* marks changed ones)",
    "quotebot.cli.audit:app": "Verify, read and export the audit trail",
    "quotebot.cli.metrics:metrics": "Print metrics in Prometheus' text format",
    "quotebot.cli.metrics:slo": "Check service levels; exits 1 on a miss",
    "quotebot.cli.ledger:app": "Inspect, maintain and move the ledger",
    "quotebot.cli.ledger:backup": "Back up the ledger and verify the copy (the bot may run)",
    "quotebot.cli.ledger:restore": "Restore a backup (stop the bot first)",
    "quotebot.cli.drill:drill": "Play failures against a local bot (touches nothing of this installation)",
}

# Headings of the help, in order, and the commands under each.
GROUPS: Final = {
    "Run": ("run", "sandbox", "init"),
    "Quotes": ("quote", "catalog", "approval-policy", "document", "report"),
    "Operate": ("dead", "replay", "ops", "pause", "resume", "gates", "crm", "backup", "restore", "ledger"),
    "Diagnose": ("doctor", "trace", "why", "audit", "metrics", "slo", "replicas", "drill"),
    "Configure": ("config", "policy", "clock"),
}

app = App(
    name="quotebot",
    help="Quote, approve and track deals in Slack. Run `quotebot sandbox` to try it.",
    version=__version__,
    help_format="plaintext",  # rich's markdown takes a third of the start time
    result_action="return_value",
)
_GROUP_OF: Final = {
    name: group for at, (title, names) in enumerate(GROUPS.items()) for group in (Group(title, sort_key=at),) for name in names
}
for _path, _help in COMMANDS.items():
    _module, _, _attribute = _path.rpartition(":")
    _name = _module.rpartition(".")[2] if _attribute == "app" else _attribute
    _name = _name.replace("_", "-")
    app.command(_path, name=_name, help=_help, group=_GROUP_OF.get(_name, "Commands"))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    with safe_streams():
        given = sys.argv[1:] if arguments is None else arguments
        # a lone surrogate: invalid UTF-8, which neither the ledger nor a terminal accepts
        if any("\ud800" <= character <= "\udfff" for argument in given for character in argument):
            return exits.complain("An argument is not valid UTF-8.", exits.USAGE)
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
    """Report a full disk under the output, and what this user may not open; any other system error goes to `_status_of`."""
    if isinstance(error, PermissionError) and error.filename is not None:
        folder, _, _ = str(error.filename).rpartition("/")
        place = error.filename if os.access(folder or "/", os.X_OK) else folder
        return exits.complain(
            f"This user may not open {place}. Run the command as the bot's user, or give that user what it lacks (chown).",
            exits.UNAVAILABLE,
        )
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
    from ledger.database import DatabaseError, MovedError  # noqa: PLC0415 -- after the command has run, cost no longer matters
    from quotebot.app.installation import IngressEndedError, LedgerInUseError  # noqa: PLC0415 -- see root.py
    from quotebot.settings import ConfigurationError  # noqa: PLC0415 -- see root.py

    known: dict[type[Exception], int] = {
        exits.UsageError: exits.USAGE,
        ConfigurationError: exits.CONFIG,
        LedgerInUseError: exits.PENDING,
        MovedError: exits.CONFIG,
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
