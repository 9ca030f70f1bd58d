"""`quotebot doctor`: the problems of this installation, with reasons and remedies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quotebot.cli import exits
from quotebot.cli.config import assignments
from quotebot.cli.doctor.checks import TROUBLES, Result, Site, State, examine, exit_status
from quotebot.cli.doctor.table import CHECKS, SETTINGS
from quotebot.cli.tables import print_table
from quotebot.settings import ConfigurationError, load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.cli.doctor.checks import Check


async def doctor(
    *,
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    offline: Annotated[bool, Parameter(negative="")] = False,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Look at everything the bot needs, and say what is wrong, why that matters and what to do. Nothing is changed.

    Exit status 0: all is well. Otherwise that of the gravest trouble: 78 for the configuration, 69 for the machine or the network,
    3 for the contents of the ledger.

    Parameters
    ----------
    only
        The id of a check, or how ids begin (slack); may be given several times.
    offline
        Ask neither Slack nor Salesforce.
    set_
        NAME=VALUE: a setting that is stronger than every file and the environment; may be given several times.
    json_output
        Print JSON.
    """
    chosen = [check for check in CHECKS if not only or any(_covers(name, check) for name in only)]
    unknown = [name for name in only if not any(_covers(name, check) for check in CHECKS)]
    if unknown:
        exits.complain(f"There is no check {unknown[0]}. There is: {', '.join(check.id for check in CHECKS)}")
        return exits.USAGE
    results: Sequence[Result]
    try:
        results = await examine(Site(load_settings(assignments(set_))), chosen, offline=offline)
    except ConfigurationError as error:  # without settings no other check can run
        results = [Result(SETTINGS, State.ERROR, "; ".join(str(error).splitlines()[:-1]))]
    if json_output:
        print(json.dumps({"schema_version": 1, "checks": [_public(each) for each in results]}, indent=2))
    else:
        _tell(results)
    return exit_status(results)


def _covers(name: str, check: Check) -> bool:
    return check.id == name or check.id.startswith(f"{name}.")


def _public(result: Result) -> dict[str, object]:
    check = result.check
    return {
        "id": check.id,
        "state": result.state,
        "found": result.words,
        "what": check.what,
        "why": check.why,
        "fix": check.fix,
        "exit_status": check.exit_status,
    }


def _tell(results: Sequence[Result]) -> None:

    print_table(("CHECK", "STATE", "FOUND"), [(each.check.id, each.state.value, each.words) for each in results])
    troubles = [each for each in results if each.state in TROUBLES]
    for each in troubles:
        print(f"\n{each.check.id}: {each.words}\n  What: {each.check.what}.\n  Why:  {each.check.why}\n  Fix:  {each.check.fix}")
    print(f"\n{len(troubles)} of {len(results)} need somebody." if troubles else f"\nAll {len(results)} are well or not needed.")
