"""The invariants that hold after any fault.

Reads the ledger file and what the external services recorded, never the code under test.

`violations` is the verdict on one ledger; every suite calls it. Two kinds of property are not here: those the product does not have
(a measured pace of draining, L5), and those only a suite can know (the same seed makes the same trace, D1).
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections import Counter
from contextlib import closing
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.checks import audit, authority, business, claims, effects, identity, lifecycle, quiescence
from faults.checks.evidence import NOBODY, ClientRecord, Facts, House, Outside, read_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from faults.harness.rig import Deal

__all__ = [
    "INVARIANTS",
    "NOBODY",
    "ClientRecord",
    "House",
    "Outside",
    "exactly_once",
    "golden_deal",
    "house_of",
    "outside_of",
    "violations",
    "violations_in",
    "violations_of",
]

NET: Final = Decimal("17340.00")
KEY_FILES: Final = "audit-[0-9][0-9][0-9][0-9].key"
KEY_NAME_DIGITS: Final = 16

INVARIANTS: Final[Mapping[str, str]] = {
    "I1": "A command is carried out at most once, makes each change once, and every key is that of its request.",
    "I2": "A command is applied together with its change, its audit and all it owes, or nothing of it is.",
    "I3": "What was acknowledged is in the ledger, after any crash.",
    "I4": "No request leaves without an older durable claim of its effect, and no claim makes two requests.",
    "I5": "What was delivered is outside, once: one message, one record, one file per key; an answer to one person at most twice.",
    "I6": "Only the newest fence settles, and what is delivered is never tried again.",
    "I7": "Every audited step follows an arrow of its machine, names its command and actor, and each row is where its audit ends.",
    "I8": "Attempts, claims and cycles are all recorded and stay within their budget; a 429 or a pause spends nothing.",
    "I9": "A lane does one thing at a time, in the order in which it was owed.",
    "I10": "Nothing is tried before its time: not before its drawn delay, nor before a Retry-After, and no delay is out of bounds.",
    "I11": "A request id has one meaning: the same id with another content never becomes a second command.",
    "I12": "No slot of a schedule is fired twice.",
    "I13": "A decision is made once, on the version shown, by somebody else who holds the role.",
    "I14": "The audit is gapless, chained, sealed at its heads and anchors.",
    "I15": "A rendered file is stored under its own checksum, and the file in Slack is that file.",
    "I16": "The file is sound: integrity, foreign keys, strict tables.",
    "I17": "Totals are the sums of their lines, in the ledger and in Salesforce, and a quote has every version up to its own.",
    "I18": "Retention leaves a tombstone and deletes nothing that is unfinished or dead.",
    "I19": "A quote follows the arrows of its life, a change is about the version that was seen, and every end is kept.",
    "L1": "When all is drained, what is left waits with a reason: a held class, a dead parent, a newer build.",
    "L2": "Whatever is unfinished has something that wakes it.",
    "L3": "Each thing given up is a dead letter with a reason, told once per cycle.",
    "L4": "A hold ends by itself or by a person who was told.",
    "L6": "Everybody got an answer, and the quote's card shows what the quote came to.",
}

ALWAYS: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "I1": identity.applied_once,
    "I2": identity.all_or_nothing,
    "I3": identity.acknowledged_is_kept,
    "I4": claims.claimed_first,
    "I5": effects.done_once,
    "I6": claims.fenced,
    "I7": audit.along_the_arrows,
    "I8": claims.counted,
    "I9": claims.in_order,
    "I10": claims.in_time,
    "I11": identity.one_meaning,
    "I12": identity.one_fire_per_slot,
    "I13": authority.decided_rightly,
    "I14": audit.audit_is_whole,
    "I15": effects.files_match,
    "I16": quiescence.file_is_sound,
    "I17": business.adds_up,
    "I18": audit.nothing_needed_is_gone,
    "I19": lifecycle.lived_rightly,
    "L2": quiescence.everything_wakes,
    "L3": quiescence.dead_is_announced,
    "L4": quiescence.holds_end,
}
AT_REST: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "L1": quiescence.everything_ended,
    "L6": quiescence.everybody_is_answered,
}


def violations(
    ledger: sqlite3.Connection,
    outside: Outside = NOBODY,
    history: Sequence[ClientRecord] = (),
    *,
    at_rest: bool = True,
    house: House | None = None,
) -> list[str]:
    """Return one sentence per violation, each beginning with its invariant's name; empty when every invariant holds.

    `at_rest` is false right after a crash or a restart, before everything is drained: only the invariants that always hold are
    checked then. Without `house` the audit's signatures, the stored files and the approvers' roles are not checked. The ledger is
    only read.
    """
    try:
        facts = Facts(ledger, outside, history, house or House(), at_rest=at_rest)
    except sqlite3.DatabaseError as error:
        return [f"I16: the ledger cannot be read: {error}"]
    asked = {**ALWAYS, **AT_REST} if at_rest else ALWAYS
    return [f"{name}: {sentence}" for name, check in asked.items() for sentence in _asked(check, facts)]


def _asked(check: Callable[[Facts], Iterator[str]], facts: Facts) -> Iterator[str]:
    """Check one invariant. Data too broken to be judged counts as a violation."""
    try:
        yield from check(facts)
    except (sqlite3.DatabaseError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        yield f"it cannot be judged: {type(error).__name__}: {error}"


def house_of(
    folder: Path,
    *,
    approvers: Mapping[str, Sequence[str]] | None = None,
    clock_back_ms: int = 0,
    document: Callable[[str], bytes | None] | None = None,
) -> House:
    """Return what the bot's data folder contains about the installation: its audit keys, and its documents unless given."""
    keys = [bytes.fromhex(path.read_text("ascii").strip()) for path in sorted(folder.glob(KEY_FILES))]
    return House(
        {hashlib.sha256(key).hexdigest()[:KEY_NAME_DIGITS]: key for key in keys},
        document or partial(read_document, folder),
        approvers,
        clock_back_ms,
    )


async def exactly_once(deal: Deal) -> None:
    """Check, at rest, that every invariant holds and that nothing is under way. Raises AssertionError otherwise."""
    await nothing_under_way(deal)
    found = await violations_of(deal)
    assert found == [], "\n".join(found)


async def violations_of(deal: Deal) -> list[str]:
    """Return the violations of a deal's ledger and of what the external services recorded."""
    outside = await outside_of(deal)

    def found() -> list[str]:
        with closing(deal.content()) as ledger:
            return violations(ledger, outside, house=house_of(deal.data_dir, document=deal.document))

    return await asyncio.to_thread(found)


async def golden_deal(deal: Deal) -> None:
    """Check that the golden deal exists exactly once: one quote, one decision, one PDF, one Salesforce quote, one thread."""
    await exactly_once(deal)
    assert len(await deal.rows("SELECT quote_id FROM quotes")) == 1
    assert [row["state"] for row in await deal.rows("SELECT state FROM quotes")] == ["approved"]
    assert [row["decided_by"] for row in await deal.rows("SELECT decided_by FROM approvals")] == ["U0MANAGER"]
    assert len(await deal.cards()) == 1
    assert "Approved by <@U0MANAGER>" in await deal.card_text()
    assert '"approval.' not in await deal.card_text()  # the approval buttons are gone
    assert "pending" not in await deal.card_text()
    assert len(await deal.files()) == 1
    assert len(await deal.crm()) == 1
    lines = await deal.crm("QuoteLineItem")
    assert len(lines) == 3
    assert sum(Decimal(str(line["Quotebot_Net__c"])) for line in lines) == NET
    texts = Counter(reply["text"].split(",")[0] for reply in await deal.replies())
    assert max(texts.values()) == 1, texts


async def nothing_under_way(deal: Deal) -> None:
    """Check that every operation and effect has ended. This is stricter than L1, because a deal at rest has no held class."""
    unfinished = await deal.rows(
        "SELECT 'operation' AS kind, id, state FROM operations WHERE state NOT IN ('completed', 'discarded', 'failed_terminal') "
        "UNION ALL SELECT class, id, state FROM effects WHERE state IN ('pending', 'in_flight', 'uncertain')"
    )
    assert unfinished == []


async def outside_of(deal: Deal) -> Outside:
    """Fetch what the external services recorded from the world's control API."""
    state = await deal.get("state")
    crm = {name: await deal.crm(name) for name in ("Quote", "QuoteLineItem")}
    return Outside(state["messages"], state["files"], crm, await deal.get("witness?since=0"))


def violations_in(folder: Path, outside: Outside, history: Sequence[ClientRecord] = (), **more: Any) -> list[str]:
    """Return the violations of the ledger in a bot's data folder. The ledger is opened read-only."""
    with closing(sqlite3.connect(f"{(folder / 'ledger.db').absolute().as_uri()}?mode=ro", uri=True)) as ledger:
        return violations(ledger, outside, history, house=house_of(folder), **more)
