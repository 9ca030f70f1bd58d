"""Checks after a kill storm, in addition to the invariants of faults/checks. Plain SQL, logs and the answers that people got."""

from __future__ import annotations

import json
import sqlite3
import time
import traceback
from collections import Counter
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Final

from faults.checks import checker, reachability
from faults.checks.wakeups import ASLEEP_FOR_GOOD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from faults.harness.fork_server import Spawned
    from faults.harness.rig import Deal, Json
    from faults.suites.storm_traffic import History

DEATHS_OF_POISON: Final = 3
STATE_WORDS: Final = {"approved": "Approved", "pending_approval": "Waiting for approval", "priced": "Draft", "rejected": "Rejected"}
# An effect whose parent was given up waits for a replay and does not count.
UNFINISHED: Final = (
    "SELECT 1 FROM operations WHERE state IN ('reserved', 'in_progress', 'failed_retryable') UNION ALL "
    "SELECT 1 FROM effects AS e WHERE e.state IN ('pending', 'in_flight', 'uncertain') AND NOT (e.next_attempt_at IS NULL "
    "AND EXISTS (SELECT 1 FROM effects AS parent WHERE parent.id = e.after_id AND parent.state = 'failed')) LIMIT 1"
)
# Due by its own time, with a flowing class. PDFs are left out: the first one takes as long as loading a renderer does.
DUE: Final = (
    "SELECT 1 FROM effects AS e WHERE state = 'pending' AND next_attempt_at <= {now} AND class <> 'pdf.render' "
    "AND NOT EXISTS (SELECT 1 FROM gates WHERE state <> 'flowing' AND (class = name OR class LIKE name || '.%')) LIMIT 1"
)
# The rows that are given up, with the number of crashes that each has seen. The last crash of a command makes it a dead letter at
# once: it has no attempt row of its own.
GIVEN_UP: Final = (
    "SELECT 'operation ' || o.action_kind AS what, o.id, o.category, o.last_error, 1 + (SELECT count(*) FROM attempts AS a "
    "WHERE a.operation_id = o.id AND a.cycle = o.cycle AND a.outcome = 'died') AS deaths FROM operations AS o "
    "WHERE o.state = 'failed_terminal' UNION ALL "
    "SELECT 'effect ' || e.class, e.id, e.category, e.last_error, (SELECT count(*) FROM attempts AS a "
    "WHERE a.effect_id = e.id AND a.cycle = e.cycle AND a.outcome = 'died') FROM effects AS e WHERE e.state = 'failed'"
)
# Signs of a bug in Quotebot, or of a lock error that a person saw. Libraries may log injected faults in their own words.
NEVER_IN_A_LOG: Final = (
    *(
        "database is locked",
        "operation.failed",
        "effect.internal_error",
        "follow_ups_failed",
        "housekeeping.failed",
        "schedule.failed",
    ),
    *("command.maybe_recorded", "never retrieved", "never awaited"),
)
LATE: Final = ("effect.late_result", "effect.late_step", "operation.late_result")


async def owes_something_due(deal: Deal) -> bool:
    """Tell whether a bot that starts now has an effect to deliver at once."""
    return bool(await deal.rows(DUE.format(now=time.time_ns() // 1_000_000)))


def given_up_against_the_rules(rows: list[Json]) -> list[str]:
    """Return a line for each row given up for another reason than three crashes of the bot while it was claimed."""
    return [
        f"{row['what']} {row['id']} was given up after {row['deaths']} deaths ({row['category']}: {row['last_error']})"
        for row in rows
        if row["category"] != "poison" or row["deaths"] < DEATHS_OF_POISON
    ]


async def at_rest(deal: Deal, history: History) -> list[str]:
    """Return the violations at rest: of the invariants, of promises to people, of what people see."""
    found = []
    try:
        await checker.exactly_once(deal)
    except AssertionError as error:
        found.append(f"{where(error)} {error}".strip())
    return found + await promises_broken(deal, history) + await _cards(deal)


async def asleep(deal: Deal) -> list[str]:
    """Return a line for each unfinished row that nothing wakes; called after every crash."""
    return [sentence for row in await deal.rows(ASLEEP_FOR_GOOD) for sentence in row.values()]


async def promises_broken(deal: Deal, history: History) -> list[str]:
    """Return the promises to people that were not kept, or were kept twice.

    There is one quote for every customer, and one more for every "Create another" that was used; every acknowledged click and form
    has its command in the ledger, and the command has ended.
    """
    quotes = Counter(row["account"] for row in await deal.rows("SELECT account FROM quotes"))
    used = {
        row["token"]: row["account"]
        for row in await deal.rows(
            "SELECT t.token, q.account FROM one_time_tokens AS t JOIN quotes AS q ON q.quote_id = t.quote_id"
        )
    }
    another = Counter(used.values())
    done = {
        (row["action_kind"], row["aggregate_id"])
        for row in await deal.rows("SELECT DISTINCT action_kind, aggregate_id FROM operations WHERE state = 'completed'")
    }
    return [
        *(f"the acknowledged quote for {customer} is lost" for customer in sorted(history.customers - set(quotes))),
        *(
            f"{customer} has {quotes[customer]} quotes and asked for {1 + another[customer]}"
            for customer in quotes
            if quotes[customer] != 1 + another[customer]
        ),
        *(f"an acknowledged Create another ({token[:8]}) is lost" for token in sorted(history.kept_tokens - set(used))),
        *(f"nobody clicked the Create another ({token[:8]}) that was used" for token in sorted(set(used) - history.tokens)),
        *(f"the acknowledged {kind} of {quote_id} is lost" for kind, quote_id in sorted(history.changes - done)),
    ]


async def _cards(deal: Deal) -> list[str]:
    """Every quote has one card, which shows the quote's state."""
    states = {row["quote_id"]: row["state"] for row in await deal.rows("SELECT quote_id, state FROM quotes")}
    cards = await deal.cards()
    shown = Counter(card["text"].split()[1] for card in cards)
    return [
        *(f"{quote_id} has {shown[quote_id]} cards" for quote_id in states if shown[quote_id] != 1),
        *(
            f"the quote is {states[card['text'].split()[1]]}, its card says: {card['text']}"
            for card in cards
            if STATE_WORDS[states[card["text"].split()[1]]] not in card["text"]
        ),
    ]


async def states_reached(deal: Deal) -> set[str]:
    """Return the names of the interesting states that this storm reached."""
    outside = await checker.outside_of(deal)
    with closing(sqlite3.connect(f"{(deal.data_dir / 'ledger.db').absolute().as_uri()}?mode=ro", uri=True)) as ledger:
        return reachability.reached(ledger, outside)


def in_logs(folder: Path) -> list[str]:
    """Return a line for each log line that must never occur."""
    return [
        f"{log.name} says: {line.strip()[:300]}"
        for log, line in _lines(folder)
        if line.startswith("Traceback") or any(words in line for words in NEVER_IN_A_LOG)
    ]


def logged(folder: Path) -> Counter[str]:
    """Count log events: late results with an old fence, pauses of a boot loop."""
    counts: Counter[str] = Counter()
    for _, line in _lines(folder):
        counts["late_results"] += any(f'"{event}"' in line for event in LATE)
        counts["boot_loop_rests"] += '"bot.boot_loop"' in line
    return counts


def first_delivery_ms(bot: Spawned) -> float | None:
    """Return the milliseconds from a bot's start to its first delivery, None if it crashed before."""
    for line in said(bot.log).splitlines():
        if '"effect.delivered"' in line:
            return (datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp() - bot.started_at) * 1000
    return None


def where(error: BaseException) -> str:
    """Return the code line of an assertion without a message."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.name}: {last.line}"


def said(log: Path) -> str:
    """Return a process's log, empty if it crashed before it opened it."""
    return log.read_text(errors="replace") if log.exists() else ""


def _lines(folder: Path) -> Iterator[tuple[Path, str]]:
    for log in sorted(folder.glob("*.log")):
        for line in said(log).splitlines():
            yield log, line
