"""Operator commands at a terminal: each one does a command's work on the ledger, with a trap in its database."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

from faults.lab.database import engine
from faults.lab.files import TrappedDisk
from ledger.operator.backup import backups_in
from ledger.operator.dead_letters import Filters
from quotebot.app import backups as restoring
from quotebot.app.backups import folder_of, make_backup
from quotebot.app.installation import dead_letters, load_rules, open_ledger
from quotebot.cli import ops, quote_work
from quotebot.cli.terminal import follow
from quotebot.commands.crm import CRM_AGGREGATE, ReconcileCrm
from quotebot.commands.lifecycle import CancelQuote
from quotebot.domain.catalogue.ruleset_sheets import edited, read_rows, to_sheets
from quotebot.domain.catalogue.rulesets import parse_ruleset
from quotebot.jobs.retention import forget
from quotebot.jobs.rulesets import Import, RulesetChanges, Who
from quotebot.sandbox.slack.directory import TEAM_ID
from quotebot.store import crm as crm_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from faults.lab.loop import LabClock
    from faults.lab.traps import Trap
    from ledger.ledger import Ledger
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.settings import Settings

REASON: Final = "the other side is well again"
ACTOR: Final = "operator"


@contextlib.asynccontextmanager
async def terminal(settings: Settings, clock: LabClock, trap: Trap) -> AsyncIterator[Ledger]:
    """Open the ledger as a command does."""
    async with open_ledger(settings, clock, engine(trap)) as ledger:
        yield ledger


async def replay(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot replay --yes`."""
    async with terminal(settings, clock, trap) as ledger:
        found = dead_letters(ledger)
        for letter in await found.list():
            await found.replay(letter.reference, actor=ACTOR, reason=REASON, follow=follow(ledger))


async def replay_uncertain(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot replay --status uncertain --yes`: check at once."""
    async with terminal(settings, clock, trap) as ledger:
        found = dead_letters(ledger)
        for letter in await found.list(Filters(status="uncertain")):
            await found.replay(letter.reference, actor=ACTOR, reason=REASON, follow=follow(ledger), look_now=True)


async def discard(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot dead discard` of every dead letter."""
    async with terminal(settings, clock, trap) as ledger:
        found = dead_letters(ledger)
        for letter in await found.list():
            await found.discard(letter.reference, actor=ACTOR, reason=REASON, follow=follow(ledger))


async def resolve_send_again(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot dead resolve --send-again` of every uncertain effect."""
    await _resolve(settings, clock, trap, delivered=False)


async def resolve_delivered(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot dead resolve --delivered` of every uncertain effect."""
    await _resolve(settings, clock, trap, delivered=True)


async def cancel_waiting(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot ops cancel` of every waiting command and effect."""
    commands = _ids(settings, "SELECT id FROM operations WHERE state IN ('reserved', 'failed_retryable') ORDER BY id")
    effects = _ids(settings, "SELECT id FROM effects WHERE state IN ('pending', 'uncertain') AND class <> 'slack.card' ORDER BY id")
    async with terminal(settings, clock, trap) as ledger:
        for row_id in commands:
            await ops.give_up_operation(ledger, row_id, ACTOR, REASON)
        for row_id in effects:
            await ops.give_up_effect(ledger, row_id, ACTOR, REASON)


async def pause(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot pause crm`."""
    async with terminal(settings, clock, trap) as ledger:
        await ledger.pause("crm", ACTOR, REASON)


async def resume(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot resume crm`."""
    async with terminal(settings, clock, trap) as ledger:
        await ledger.resume("crm", ACTOR)


async def prune(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot ledger prune`."""
    async with terminal(settings, clock, trap) as ledger:
        await forget(ledger, clock.now_ms(), dry_run=False)


async def cancel_quote(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot quote cancel Q-2027-0001 --as U0REP --request-id r1`, with no bot running."""
    asked = quote_work.Options("U0REP", "r1", json_output=True)
    deed = quote_work.TerminalCommand(CancelQuote("not wanted"), "Q-2027-0001", None, TEAM_ID, ("cancel", "not wanted"))
    async with terminal(settings, clock, trap) as ledger:
        operation = (await quote_work.reserve(ledger, deed, asked)).operation
        if not quote_work.has_ended(operation):
            await quote_work.execute_alone(settings, operation.id, clock, engine(trap))


async def reconcile(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot crm reconcile apply --take ours --as U0REP --request-id r1` of every difference, with no bot running."""
    asked = quote_work.Options("U0REP", "r1", json_output=True)
    async with terminal(settings, clock, trap) as ledger:
        for conflict in await ledger.database.read(lambda tx: crm_store.listed(tx, 10, everything=True)):
            payload = ReconcileCrm(conflict.id, "ours", conflict.difference.theirs, REASON)
            deed = quote_work.TerminalCommand(payload, CRM_AGGREGATE, None, TEAM_ID, ("crm reconcile", conflict.id))
            operation = (await quote_work.reserve(ledger, deed, asked)).operation
            if not quote_work.has_ended(operation):
                await quote_work.execute_alone(settings, operation.id, clock, engine(trap))


async def change_ruleset(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot catalog import`, `discard`, `import` and `activate`: the active ruleset at the end has a higher price for Pro."""
    sample = load_rules(settings).ruleset
    async with terminal(settings, clock, trap) as ledger:
        changes = RulesetChanges(ledger)
        await changes.import_draft(Import(dearer_pro(sample, "2", "12"), "prices.csv"), Who(ACTOR, "r1"), seen=1)
        await changes.discard(2, Who(ACTOR, "r2"))
        await changes.import_draft(Import(dearer_pro(sample, "3", "11"), "prices.csv"), Who(ACTOR, "r3"), seen=1)
        await changes.activate(3, Who(ACTOR, "r4"), seen=1)


def dearer_pro(ruleset: Ruleset, version: str, price: str) -> Ruleset:
    """Return a ruleset with this price for the first tier of Pro, under another version."""
    rows = read_rows("prices", "prices.csv", f"book,sku,from,price\nlist,pro,1,{price}\n".encode(), [])
    untouched = read_rows("prices", "prices.csv", to_sheets(ruleset)["prices"].encode(), [])
    others = [row for row in untouched if row.cells["sku"] != "pro"]
    return parse_ruleset(edited(ruleset, version, {"prices": [*others, *rows]}, []).document)


async def backup(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot backup`."""
    make_backup(settings, clock.now_ms(), disk=TrappedDisk(trap))


async def restore(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot restore` of the newest backup."""
    newest = backups_in(folder_of(settings))[0]
    await restoring.restore(settings, newest.path, clock, actor=ACTOR, disk=TrappedDisk(trap), engine=engine(trap))


async def _resolve(settings: Settings, clock: LabClock, trap: Trap, *, delivered: bool) -> None:
    async with terminal(settings, clock, trap) as ledger:
        found = dead_letters(ledger)
        for letter in [*await found.list(), *await found.list(Filters(status="uncertain"))]:
            await found.resolve(
                letter.reference,
                delivered=delivered,
                actor=ACTOR,
                reason=REASON,
                follow=follow(ledger),
                external_ref="1800000000.000100" if delivered else None,
            )


def _ids(settings: Settings, sql: str) -> list[int]:
    with contextlib.closing(sqlite3.connect(f"{settings.ledger_path.absolute().as_uri()}?mode=ro", uri=True)) as ledger:
        return [row_id for (row_id,) in ledger.execute(sql)]


OPERATORS: Final[Mapping[str, Callable[[Settings, LabClock, Trap], Awaitable[None]]]] = {
    command.__name__: command
    for command in (
        replay,
        replay_uncertain,
        discard,
        resolve_send_again,
        resolve_delivered,
        cancel_waiting,
        pause,
        resume,
        prune,
        cancel_quote,
        change_ruleset,
        backup,
        restore,
        reconcile,
    )
}
