"""`quotebot pause`, `resume` and `gates`: hold and release of classes of effects."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from adapters.policies import POLICIES
from ledger.gates import family
from quotebot.app.installation import storage_of
from quotebot.cli import exits, tables, terminal
from quotebot.cli.terminal import bot_runs

if TYPE_CHECKING:
    from ledger.database import Row
    from ledger.ledger import Ledger
    from ledger.ownership import LockHolder


Json = Annotated[bool, Parameter(name="--json", negative="")]


async def pause(
    name: str, *, reason: str, actor: Annotated[str | None, Parameter(name="--as")] = None, json_output: Json = False
) -> int:
    """Pause a kind of work until it is resumed.

    Parameters
    ----------
    name
        A class, e.g. crm.create, or a family, e.g. crm.
    reason
        The reason, for the audit and for other operators.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    json_output
        Print JSON.
    """
    try:
        who = terminal.operator(actor)
    except ValueError as error:
        return exits.complain(f"{error}. Nothing was paused.", exits.USAGE)
    if not reason.strip():
        return exits.complain("--reason needs words: they are what the audit will say. Nothing was paused.", exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        if not await _known(ledger, name):
            return _unknown(name)
        paused = await ledger.pause(name, who, reason.strip())
    if json_output:
        tables.print_json({"name": name, "outcome": "paused" if paused else "held already"})
    elif paused:
        print(f"{name} is paused; what is owed waits. To go on: quotebot resume {name}")
    else:
        exits.complain(f"{name} was held already; nothing was changed. See: quotebot gates")
    return exits.OK


async def resume(
    effect_class: str, *, actor: Annotated[str | None, Parameter(name="--as")] = None, json_output: Json = False
) -> int:
    """Resume paused work (one job is tried first).

    Parameters
    ----------
    effect_class
        A class, e.g. crm.create, or a family, e.g. crm.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    json_output
        Print JSON.
    """
    try:
        who = terminal.operator(actor)
    except ValueError as error:
        return exits.complain(f"{error}. Nothing was resumed.", exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        if not await _known(ledger, effect_class):
            return _unknown(effect_class)
        resumed = await ledger.resume(effect_class, who)
        runs = await bot_runs(ledger)
    if json_output:
        tables.print_json({"name": effect_class, "outcome": "resumed" if resumed else "not paused", "bot_runs": runs})
        return exits.OK if resumed else exits.NOTHING_MATCHED
    if not resumed:
        return exits.complain(f"{effect_class} is not paused; nothing was changed.", exits.NOTHING_MATCHED)
    when = (
        "the running bot tries one effect within a second, then the others; see `quotebot gates`"
        if runs
        else "no bot is running here: start it with `quotebot run`"
    )
    print(f"{effect_class} resumed; {when}.")
    return exits.OK


async def gates(*, json_output: Json = False) -> int:
    """List paused work and why.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    async with terminal.existing_ledger() as ledger:
        now = ledger.clock.now_ms()
        found: list[dict[str, Any]] = await ledger.database.read(
            lambda tx: [
                {
                    **{name: row[name] for name in ("name", "state", "cause", "reason", "held_by", "held_at", "until_at")},
                    "waiting": sum(each["waiting"] for each in tx.all("waiting_of_gate", name=row["name"])),
                }
                for row in tx.all("all_gates")
                if row["state"] != "flowing"
            ]
        )
    if json_output:
        tables.print_json({"gates": found})
    elif not found:
        exits.complain("No class is held.")
    else:
        tables.print_table(
            ("Class", "State", "Cause", "Since", "Until", "Waiting", "By", "Reason"),
            [
                (
                    row["name"],
                    row["state"],
                    row["cause"] or "-",
                    "-" if row["held_at"] is None else f"{tables.age_words(now - row['held_at'])} ago",
                    _until(row, now),
                    str(row["waiting"]),
                    row["held_by"] or "-",
                    row["reason"] or "-",
                )
                for row in found
            ],
        )
    return exits.OK


def _until(row: dict[str, Any], now: int) -> str:
    if row["state"] != "held":
        return "an effect got an answer"
    if row["until_at"] is None:
        return f"quotebot resume {row['name']}"
    return tables.time_words(row["until_at"]) if row["until_at"] > now else "the next claim"


def _names() -> list[str]:
    """Return every class of the retry matrix, and every family."""
    return [*POLICIES, *sorted({family(name) for name in POLICIES} - set(POLICIES))]


async def _known(ledger: Ledger, name: str) -> bool:
    """Return true if there is such a class or family, or a gate left from a build that had it."""
    return name in _names() or await ledger.database.read(lambda tx: tx.one("gate", name=name)) is not None


def _unknown(name: str) -> int:
    close = get_close_matches(name, _names(), n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return exits.complain(
        f"There is no class or family {name}.{meant} There are: {', '.join(_names())}. Nothing was changed.", exits.USAGE
    )


async def replicas(*, json_output: Json = False) -> int:
    """List the running bots of this ledger. A file has one; a database may have several, its replicas.

    Exit status: 0 each holds its lock, 3 one does not: it ended without a word, or has just lost its connection.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    settings = terminal.existing_site()
    storage = storage_of(settings)
    rows, holders = storage.read(lambda tx: tx.all("replicas")), storage.lock_holders()
    now = storage.clock().now_ms()
    found = [_replica(row, holders.pop(row["replica"], None)) for row in rows]
    if storage.path is None:  # of a file the last process that held the lock is known, not whether it still does
        found += [{**_STARTING, "name": name, "pid": holder.pid, "leads": holder.leads} for name, holder in sorted(holders.items())]
    if json_output:
        tables.print_json({"replicas": found})
    elif found:
        headers = ("NAME", "HOST", "PROCESS", "BUILD", "RUNS FOR", "LAST SEEN", "CLAIMS", "LEADS", "LOCK")
        tables.print_table(headers, [_replica_cells(each, now) for each in found])
    else:
        exits.complain("No bot runs on this ledger.")
    return exits.OK if all(each["lock_held"] for each in found) else exits.REFUSED


_STARTING: Final = {**dict.fromkeys(("host", "build", "started_at", "seen_at")), "claims": 0, "lock_held": True}


def _replica(row: Row, holder: LockHolder | None) -> dict[str, Any]:
    """Return what is known of a replica that has begun. A lock that another process of its name holds is not its own."""
    is_held = holder is not None and holder.pid == row["pid"]
    return {
        "name": row["replica"],
        **{name: row[name] for name in ("host", "pid", "build", "started_at", "seen_at", "claims")},
        "leads": is_held and holder is not None and holder.leads,
        "lock_held": is_held,
    }


def _replica_cells(found: dict[str, Any], now: int) -> tuple[str, ...]:
    """Return the cells of a row of the table; "-" stands for what a starting replica has not said yet."""
    ages = ["-" if found[name] is None else tables.age_words(now - found[name]) for name in ("started_at", "seen_at")]
    known = [str(found[name] or "-") for name in ("name", "host", "pid", "build")]
    return (*known, *ages, str(found["claims"]), "yes" if found["leads"] else "no", "held" if found["lock_held"] else "not held")
