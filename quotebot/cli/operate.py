"""`quotebot resume` and `quotebot policy`: classes of effects."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from quotebot.cli import exits, opened, tables


async def resume(effect_class: str) -> int:
    """Let a paused class of effects work again, once its cause (an expired login, say) is mended.

    Parameters
    ----------
    effect_class
        The class, e.g. crm.create.
    """
    async with opened.existing_ledger() as ledger:
        resumed = await ledger.resume(effect_class, opened.operator())
    if not resumed:
        exits.complain(f"{effect_class} is not paused; nothing was changed.")
        return exits.NOTHING_MATCHED
    print(f"{effect_class} resumed; the running bot picks its effects up within a second.")
    return exits.OK


def policy(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print the retry matrix.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    from adapters.policies import POLICIES  # noqa: PLC0415 -- see root.py

    rows = [
        {
            "class": name,
            "semantics": line.semantics,
            "retries": line.retries,
            "backoff": line.backoff.words,
            "jitter": line.jitter,
            "timeout_seconds": line.timeout_seconds,
            "max_age_seconds": line.max_age_seconds,
        }
        for name, line in POLICIES.items()
    ]
    if json_output:
        print(json.dumps({"schema_version": 1, "policies": rows}, indent=2))
        return exits.OK
    tables.print_table(
        ("Class", "Semantics", "Retries", "Jitter", "Time-out", "Max age", "Backoff"),
        (
            (
                str(row["class"]),
                str(row["semantics"]),
                str(row["retries"]),
                str(row["jitter"]),
                f"{row['timeout_seconds']:g} s",
                f"{float(str(row['max_age_seconds'])) / 3600:g} h",
                str(row["backoff"]),
            )
            for row in rows
        ),
    )
    return exits.OK
