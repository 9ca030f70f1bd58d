"""Checks after a power cut: a production start on the remaining files, then plain SQL over the ledger."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from faults.checks.wakeups import asleep_for_good
from faults.suites.power_workload import FILE_NAME, Diary, TickingClock, Work
from ledger.audit.verification import verify
from quotebot.app.installation import schema_and_statements
from quotebot.app.sqlite_storage import SqliteStorage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from faults.suites.power_workload import Fact
    from ledger.audit.events import Audit

LATER_MS: Final = 3_600_000  # how long the machine was off

# Each row is a sentence about a command that was applied only in part.
TORN: Final = """
SELECT 'operation ' || o.id || ' is applied and its quote is not there' FROM operations AS o
WHERE o.action_kind = 'quote.create' AND o.outcome = 'applied'
  AND NOT EXISTS (SELECT 1 FROM quotes AS q WHERE q.created_by_operation = o.operation_key)
UNION ALL
SELECT 'quote ' || q.quote_id || ' is there and its operation is not applied' FROM quotes AS q
WHERE NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.operation_key = q.created_by_operation AND o.outcome = 'applied')
UNION ALL
SELECT 'quote ' || q.quote_id || ' has no priced version ' || q.version FROM quotes AS q
WHERE NOT EXISTS (SELECT 1 FROM quote_versions AS v WHERE v.quote_id = q.quote_id AND v.version = q.version)
UNION ALL
SELECT 'operation ' || o.id || ' is completed ' || count(a.id) || ' times in the audit' FROM operations AS o
LEFT JOIN audit_events AS a ON a.operation_key = o.operation_key AND a.event_type IN ('operation.applied', 'operation.refused')
WHERE o.state = 'completed' GROUP BY o.id HAVING count(a.id) <> 1
UNION ALL
SELECT 'operation ' || o.id || ' is ' || o.state || ' and the audit says ' || a.event_type FROM operations AS o
JOIN audit_events AS a ON a.operation_key = o.operation_key AND a.event_type IN ('operation.applied', 'operation.refused')
WHERE o.state <> 'completed'
UNION ALL
SELECT 'the audit says in event ' || a.id || ' that ' || (owed.value ->> 'class') || ' is owed, and it is not'
FROM audit_events AS a
JOIN json_each(a.after, '$.owes') AS owed
WHERE a.event_type IN ('operation.applied', 'operation.refused')
  AND NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.effect_key = owed.value ->> 'key')
UNION ALL
SELECT 'effect ' || e.id || ' is owed and the audit does not say so' FROM effects AS e
WHERE e.effect_key NOT IN (
  SELECT owed.value ->> 'key' FROM audit_events AS a JOIN json_each(a.after, '$.owes') AS owed
  WHERE a.event_type IN ('operation.applied', 'operation.refused')
  UNION ALL SELECT a.after ->> 'key' FROM audit_events AS a WHERE a.event_type = 'effect.owed')
UNION ALL
SELECT 'effect ' || e.id || ' is settled and has no attempt' FROM effects AS e
WHERE e.state = 'delivered' AND NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.effect_id = e.id AND a.outcome = 'delivered')
UNION ALL
SELECT 'approval ' || p.approval_id || ' is ' || p.state || ' and the audit does not say so' FROM approvals AS p
WHERE p.state <> 'pending' AND NOT EXISTS (
  SELECT 1 FROM audit_events AS a
  WHERE a.aggregate_id = p.quote_id AND a.event_type IN ('approval.automatic', 'approval.reused', 'approval.' || p.state))
"""
UNFINISHED: Final = """
SELECT 'operation ' || id || ' is still ' || state FROM operations
WHERE state NOT IN ('completed', 'failed_terminal', 'discarded')
UNION ALL
SELECT 'effect ' || e.id || ' (' || e.class || ') is still ' || e.state
FROM effects AS e LEFT JOIN effects AS p ON p.id = e.after_id
WHERE e.state IN ('pending', 'in_flight', 'uncertain')
  AND NOT (e.next_attempt_at IS NULL AND p.state = 'failed')
"""


async def wrongs(folder: Path, audit: Audit, facts: Iterable[Fact], *, finish: bool = False) -> list[str]:
    """Start on the ledger in `folder` and return sentences on what is wrong; with `finish`, after all its work was done.

    A recorded fact must be there and one not recorded must not; unknown ones are not checked. Raises what the start raises.
    """
    clock = TickingClock(max(max((fact.at for fact in facts), default=0), TickingClock().ms) + LATER_MS)
    database = await SqliteStorage(folder / FILE_NAME, *schema_and_statements()).open(audit, clock, bot=True)
    diary = Diary()
    try:
        work = Work(database, database, clock, audit, diary, random.Random(0))  # noqa: S311 -- nothing secret; it is not asked for anything
        await work.start()
        if finish:
            await work.finish()
        verified = await verify(database, audit.keyring)
    finally:
        await database.close()
    found = [] if verified.finding is None else [f"the audit: {verified.finding.meaning}"]
    found += [] if diary.ended_by is None else [f"the start ended: {diary.ended_by}"]
    with closing(sqlite3.connect(folder / FILE_NAME)) as ledger:
        return found + _wrongs_in(ledger, facts, finished=finish)


def _wrongs_in(ledger: sqlite3.Connection, facts: Iterable[Fact], *, finished: bool) -> list[str]:
    found = [f"integrity_check: {line}" for (line,) in ledger.execute("PRAGMA integrity_check") if line != "ok"]
    found += [f"foreign_key_check: {row}" for row in ledger.execute("PRAGMA foreign_key_check")]
    found += asleep_for_good(ledger)
    found += [sentence for (sentence,) in ledger.execute(TORN)]
    if finished:
        found += [sentence for (sentence,) in ledger.execute(UNFINISHED)]
    for fact in facts:
        ((count,),) = ledger.execute(fact.sql, (fact.at,)).fetchall()
        if fact.told == "recorded" and not count:
            found.append(f"LOST: {fact.what} at {fact.at} was acknowledged and is not there")
        if fact.told == "not recorded" and count:
            found.append(f"LIE: {fact.what} at {fact.at} was said not to be recorded, and it is there")
    return found
