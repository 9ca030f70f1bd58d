"""Operator commands at a terminal: each one does a command's work on the ledger, with a trap in its database."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faults.lab import place
from faults.lab.traps import TrappedDisk
from ledger import recovery
from ledger.ledger import Ledger
from ledger.operator.backup import backups_in
from ledger.operator.dead_letters import Filters
from ledger.records import Operation, Trouble
from quotebot import __version__
from quotebot.app import backups as restoring
from quotebot.app.backups import folder_of, make_backup
from quotebot.app.installation import dead_letters, load_rules, open_database, open_ledger
from quotebot.cli import ops, quote_work
from quotebot.cli.terminal import follow
from quotebot.commands.payloads import CRM_AGGREGATE, CancelQuote, CreateQuote, ReconcileCrm
from quotebot.commands.registry import parse_stored
from quotebot.commands.resubmission import copy_of
from quotebot.domain.catalogue.ruleset_sheets import edited, read_rows, to_sheets
from quotebot.domain.catalogue.rulesets import parse_ruleset
from quotebot.domain.pricing.price_requests import LineRequest, PriceRequest
from quotebot.execution.executor import failure_answer
from quotebot.jobs.maintenance import forget
from quotebot.jobs.rulesets import Import, RulesetChanges, Who
from quotebot.sandbox.slack.directory import TEAM_ID
from quotebot.store import crm as crm_store
from quotebot.store import quotes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from faults.lab.loop import LabClock
    from faults.lab.traps import Trap
    from ledger.database import Database
    from ledger.operator.dead_letters import Status
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.settings import Settings

REASON: Final = "the other side is well again"
ACTOR: Final = "operator"
CHANNEL: Final = "C0DEALS"


@dataclass(frozen=True, slots=True)
class Terminal:
    """The open ledger of a command, and what the command was started with."""

    ledger: Ledger
    settings: Settings
    clock: LabClock
    trap: Trap


async def operate(name: str, settings: Settings, clock: LabClock, trap: Trap) -> None:
    """Do the work of one command: `quotebot backup`, `restore` of the newest backup, `ops cancel`, or one of COMMANDS."""
    if name == "backup":
        make_backup(settings, clock.now_ms(), disk=TrappedDisk(trap))
    elif name == "restore":
        newest = backups_in(folder_of(settings))[0]
        await restoring.restore(
            settings, newest.path, clock, actor=ACTOR, disk=TrappedDisk(trap), engine=place.engine_for(settings, trap)
        )
    elif name == "cancel_waiting":
        await _cancel_waiting(settings, clock, trap)
    else:
        async with open_ledger(settings, clock, _opener(settings, trap)) as ledger:
            await COMMANDS[name](Terminal(ledger, settings, clock, trap))


def _opener(settings: Settings, trap: Trap) -> partial[Coroutine[Any, Any, Database]]:
    """Return `open_database` with the traps of the lab."""
    return partial(open_database, engine=place.engine_for(settings, trap))


async def _each_dead_letter(action: str, at: Terminal, statuses: Sequence[Status] = ("pending",), **details: Any) -> None:
    """Replay, discard or resolve every dead letter, or the rows of these statuses."""
    found = dead_letters(at.ledger)
    letters = [letter for status in statuses for letter in await found.list(Filters(status=status))]
    for letter in letters:
        await getattr(found, action)(letter.reference, actor=ACTOR, reason=REASON, follow=follow(at.ledger), **details)


async def _discard_but_newest(at: Terminal) -> None:
    """Discard every dead letter but the newest."""
    found = dead_letters(at.ledger)
    for letter in (await found.list(Filters()))[:-1]:
        await found.discard(letter.reference, actor=ACTOR, reason=REASON, follow=follow(at.ledger))


async def _cancel_waiting(settings: Settings, clock: LabClock, trap: Trap) -> None:
    """`quotebot ops cancel` of every waiting command and effect, which are read while the ledger is closed."""
    with place.reading(settings) as closed:
        commands = closed.execute(
            "SELECT id FROM operations WHERE state IN ('reserved', 'failed_retryable') ORDER BY id"
        ).fetchall()
        effects = closed.execute(
            "SELECT id FROM effects WHERE state IN ('pending', 'uncertain') AND class NOT LIKE 'slack.%card' ORDER BY id"
        ).fetchall()
    async with open_ledger(settings, clock, _opener(settings, trap)) as ledger:
        for (row_id,) in commands:
            await ops.give_up_operation(ledger, row_id, ACTOR, REASON)
        for (row_id,) in effects:
            await ops.give_up_effect(ledger, row_id, ACTOR, REASON)


async def _cancel_quote(at: Terminal) -> None:
    await _execute(
        at, quote_work.TerminalCommand(CancelQuote("not wanted"), "Q-2027-0001", None, TEAM_ID, ("cancel", "not wanted"))
    )


async def _reconcile(at: Terminal) -> None:
    """Decide about every difference."""
    for conflict in await at.ledger.database.read(lambda tx: crm_store.listed(tx, 10, everything=True)):
        payload = ReconcileCrm(conflict.id, "ours", conflict.difference.theirs, REASON)
        await _execute(at, quote_work.TerminalCommand(payload, CRM_AGGREGATE, None, TEAM_ID, ("crm reconcile", conflict.id)))


async def _execute(at: Terminal, command: quote_work.TerminalCommand) -> None:
    """Reserve a command and, since no bot runs, execute it."""
    asked = quote_work.Options("U0REP", "r1", json_output=True)
    operation = (await quote_work.reserve(at.ledger, command, asked)).operation
    if not quote_work.has_ended(operation):
        await quote_work.execute_alone(at.settings, operation.id, at.clock, _opener(at.settings, at.trap))


async def _give_up_command(at: Terminal) -> None:
    """Leave a creation as a dead letter, as a defect of ours would."""
    payload = CreateQuote("Acme", PriceRequest((LineRequest("pro", 5),), 12, Decimal(0)), CHANNEL)
    asked = quote_work.Options("U0REP", "dead", json_output=True)
    await quote_work.reserve(at.ledger, quote_work.TerminalCommand(payload, "new", 0, TEAM_ID, ("new", "dead")), asked)
    now = at.clock.now_ms()
    epoch = await recovery.begin_epoch(at.ledger.database, now, role="cli", build=__version__)
    alone = Ledger(at.ledger.database, at.clock, at.ledger.audit, epoch=epoch, pin=quotes.head_version)
    (claimed,) = await alone.claim_operations(1)
    answer = await alone.database.read(lambda tx: failure_answer(tx, claimed, "a defect of ours", now))
    await alone.fail_operation(claimed, Trouble("internal", "A defect of ours."), {"code": "failed"}, answer)
    await recovery.give_back(alone)


async def _resubmit(at: Terminal) -> None:
    """Run an edited copy of every dead command, and of one that was replaced already."""
    rows = await at.ledger.database.read(lambda tx: tx.all("operations_by_key", begin="0", upto="g", limit=100))
    for original in [Operation.of(row) for row in rows if row["ever_failed"]]:
        payload = {**original.payload, "account": "Bolt Ltd"}
        edited, request_id = parse_stored(original.action_kind, payload), f"{original.actor}:r1"
        request = copy_of(original, edited, "cli", request_id, at.clock.now_ms(), {})
        _, reservation = await dead_letters(at.ledger).resubmit(f"op{original.id}", request, actor=ACTOR, reason=REASON)
        if reservation is not None and not quote_work.has_ended(reservation.operation):
            await quote_work.execute_alone(at.settings, reservation.operation.id, at.clock, _opener(at.settings, at.trap))


async def _change_ruleset(at: Terminal) -> None:
    """Leave an active ruleset with a higher price for Pro."""
    sample = load_rules(at.settings).ruleset
    changes = RulesetChanges(at.ledger)
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


EVERY: Final = ("pending", "uncertain")  # the dead letters, and the uncertain effects
COMMANDS: Final[Mapping[str, Callable[[Terminal], Awaitable[object]]]] = {
    "replay": partial(_each_dead_letter, "replay"),  # quotebot replay --yes
    "replay_uncertain": partial(
        _each_dead_letter, "replay", statuses=("uncertain",), look_now=True
    ),  # ... --status uncertain: at once
    "discard": partial(_each_dead_letter, "discard"),  # quotebot dead discard
    "discard_but_newest": _discard_but_newest,
    "resolve_send_again": partial(
        _each_dead_letter, "resolve", statuses=EVERY, delivered=False
    ),  # quotebot dead resolve --send-again
    "resolve_delivered": partial(  # quotebot dead resolve --delivered
        _each_dead_letter, "resolve", statuses=EVERY, delivered=True, external_ref="1800000000.000100"
    ),
    "pause": lambda at: at.ledger.pause("crm", ACTOR, REASON),  # quotebot pause crm
    "resume": lambda at: at.ledger.resume("crm", ACTOR),  # quotebot resume crm
    "pause_rendering": lambda at: at.ledger.pause("pdf.render", ACTOR, REASON),  # quotebot pause pdf.render
    "resume_rendering": lambda at: at.ledger.resume("pdf.render", ACTOR),  # quotebot resume pdf.render
    "prune": lambda at: forget(at.ledger, at.clock.now_ms(), dry_run=False),  # quotebot ledger prune
    "cancel_quote": _cancel_quote,  # quotebot quote cancel Q-2027-0001 --as U0REP --request-id r1
    "give_up_command": _give_up_command,
    "resubmit": _resubmit,  # quotebot ops resubmit op1 --set account="Bolt Ltd" --request-id r1
    "change_ruleset": _change_ruleset,  # quotebot catalog import, discard, import and activate
    "reconcile": _reconcile,  # quotebot crm reconcile apply --take ours --as U0REP --request-id r1
}
