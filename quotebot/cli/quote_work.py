"""Execution of quote commands from the terminal: recorded in the ledger, then awaited.

A running bot executes the command. If none runs, this process briefly takes the bot's lock and executes it itself; the pending
effects for Slack, Salesforce or the PDF then wait for the next start of the bot. The reply is printed here, never sent in Slack.
"""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cyclopts import Parameter

from ledger import keys, recovery
from ledger.ledger import Ledger
from ledger.records import Operation, Request
from quotebot import __version__
from quotebot.app import installation
from quotebot.app.document_folder import with_documents
from quotebot.app.installation import LedgerInUseError
from quotebot.cli import exits, tables, terminal
from quotebot.cli.terminal import bot_runs
from quotebot.domain.pricing import term_clauses
from quotebot.domain.quotes.quote import plain_times
from quotebot.execution.executor import Executor, as_it_came, failure_answer
from quotebot.jobs.rulesets import RulesetChanges
from quotebot.observability import logs
from quotebot.observability.clock_guard import read_suspension
from quotebot.settings import load_settings
from quotebot.store import quotes as store
from quotebot.views import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledger.clock import Clock
    from ledger.database import Database
    from ledger.records import Reservation
    from quotebot.commands.registry import Payload
    from quotebot.settings import Settings

WAIT_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.1
NEW: Final = "new"  # aggregate of a creation
REQUEST_ID: Final = re.compile(r"[!-~]{1,100}")
USER: Final = re.compile(r"[UW][A-Z0-9]{1,30}")
_MENTION: Final = re.compile(r"<@([UW][A-Z0-9]{1,30})>")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of every such command: user, request id and output format."""

    user: str  # a Slack user id
    request_id: str
    json_output: bool


@dataclass(frozen=True, slots=True)
class TerminalCommand:
    """Command to record. `typed` is the user's input, which identifies a repetition of the same request id.

    `version` is the given version, None for the head, 0 for a creation.
    """

    payload: Payload
    quote_id: str
    version: int | None
    team_id: str
    typed: Sequence[object]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class TermOptions:
    """Commercial terms as options: the same as their words in the text, without its semicolons; none removes a term.

    Parameters
    ----------
    start
        The first day of the contract, e.g. 2027-02-01.
    payment
        When an invoice is due, e.g. "net 45" or "on receipt".
    po
        The number of the customer's purchase order.
    bill_to
        The billing contact.
    email
        The billing contact's e-mail address.
    address
        The billing address.
    vat
        The customer's VAT id.
    valid
        How long the offer is valid, e.g. 45d or "until 2027-02-28".
    note
        To the approver.
    customer_note
        To the customer.
    language
        Of the document: en or de.
    template
        Of the document, by name.
    """

    start: str | None = None
    payment: str | None = None
    po: str | None = None
    bill_to: str | None = None
    email: str | None = None
    address: str | None = None
    vat: str | None = None
    valid: str | None = None
    note: str | None = None
    customer_note: str | None = None
    language: str | None = None
    template: str | None = None

    def after(self, text: str) -> str:
        """Return the typed text followed by a clause of each option."""
        given = ((field.name.replace("_", "-"), getattr(self, field.name)) for field in fields(self))
        said = (f"{keyword} {term_clauses.typed_value(keyword, value)}" for keyword, value in given if value is not None)
        return "; ".join(filter(None, (text, *said)))


NO_TERMS: Final = TermOptions()


def options(user: str | None, request_id: str | None, *, json_output: bool, decides: bool = False) -> Options:
    """Check the user and the request id; a fresh id is printed before anything is done. Raises UsageError.

    `user` is the value of `--as`: for operators at the terminal, and never for a command that `decides`.
    """
    if user is not None and decides:
        raise exits.UsageError(
            "Decisions are made under your own name: --as is not for approving, rejecting and delegating. Leave it out, or decide "
            "in Slack. Nothing was done."
        )
    if user is not None:
        try:
            terminal.require_operator()
        except ValueError as error:
            raise exits.UsageError(f"{error}.") from error
    person = user or load_settings().cli_users.get(terminal.user())
    if person is None:
        raise exits.UsageError(
            f"The system user {terminal.user()} is nobody in Slack yet: name the Slack user id in QUOTEBOT_CLI_USERS, "
            f'e.g. {{"{terminal.user()}": "U0REP"}}. Nothing was done.'
        )
    if not USER.fullmatch(person):
        raise exits.UsageError(f"{person!r} is no Slack user id: it looks like U0REP.")
    return Options(person, checked_request_id(request_id), json_output)


def checked_request_id(given: str | None) -> str:
    """Return the given request id, or a fresh one, which is printed before anything is done. Raises UsageError."""
    if given is not None and not REQUEST_ID.fullmatch(given):
        raise exits.UsageError("--request-id is 1 to 100 printable characters without spaces.")
    if given is None:
        given = uuid.uuid4().hex
        exits.complain(f"Request id {given}: give it again with --request-id and nothing is done twice.")
    return given


async def carry_out(ledger: Ledger, deed: TerminalCommand, asked: Options) -> int:
    """Record the command, wait for its end and print its reply; returns the exit status."""
    return await follow_to_end(ledger, await reserve(ledger, deed, asked), asked)


async def follow_to_end(ledger: Ledger, reservation: Reservation, asked: Options) -> int:
    """Wait for the end of a recorded command and print its reply; returns the exit status."""
    if reservation.operation.id == 0 or reservation.sighting == "conflict":
        return _refused_at_once(reservation, asked)
    operation = await _finished(ledger, reservation.operation)
    return _report(operation, asked, repeated=reservation.sighting == "duplicate")


async def reserve(ledger: Ledger, deed: TerminalCommand, asked: Options) -> Reservation:
    """Record the command; a repeated request id returns its first operation."""
    name = await ledger.database.read(lambda tx: store.known_name(tx, asked.user, deed.team_id))
    typed: list[Any] = [*deed.typed, deed.quote_id, deed.version, asked.user]
    request = Request(
        source="cli",
        source_request_id=f"{asked.user}:{asked.request_id}",
        action_kind=deed.payload.kind,
        aggregate_id=deed.quote_id,
        aggregate_version=deed.version,
        payload=deed.payload.canonical(),
        fingerprint=keys.digest(typed),
        actor=asked.user,
        actor_type="operator",
        team_id=deed.team_id,
        received_at=ledger.clock.now_ms(),
        transport={"actor_name": name, "terminal_user": terminal.user()},
    )
    return await ledger.reserve(request)


async def _finished(ledger: Ledger, operation: Operation) -> Operation:
    """Wait up to 30 seconds for the command to end; execute it here if no bot runs. Returns its state at that time."""
    give_up_at = asyncio.get_running_loop().time() + WAIT_SECONDS
    while not has_ended(operation) and asyncio.get_running_loop().time() < give_up_at:
        if not await bot_runs(ledger):
            try:
                settings = load_settings()
                await execute_alone(settings, operation.id, installation.storage_of(settings).clock())
            except LedgerInUseError:  # a bot has just started
                continue
            return await _look(ledger, operation.id)
        await asyncio.sleep(POLL_SECONDS)
        operation = await _look(ledger, operation.id)
    return operation


async def execute_alone(
    settings: Settings,
    operation_id: int,
    clock: Clock,
    open_database: Callable[..., Awaitable[Database]] = installation.open_database,
) -> None:
    """Execute terminal commands as the only active process, up to this one. Raises LedgerInUseError if a bot runs after all.

    Commands from Slack wait for the bot: only it can ask Slack about their authors. A terminal command behind one of them on the
    same quote waits too. `open_database` is replaced by fault tests.
    """
    async with installation.instance_lock(settings):
        audit = installation.open_audit(settings)
        database = await open_database(settings, audit, clock, bot=False)
        try:
            epoch = await recovery.begin_epoch(database, clock.now_ms(), role="cli", build=__version__)
            ledger = Ledger(database, clock, audit, epoch=epoch, pin=store.head_version, **installation.claim_settings(settings))
            await recovery.take_back(
                ledger,
                answer=lambda tx, poisoned: failure_answer(tx, poisoned, "the bot stopped while working on it", clock.now_ms()),
                follow=terminal.follow(ledger),
            )
            rules = with_documents(installation.load_rules(settings), settings)
            await RulesetChanges(ledger).begin(rules.ruleset)
            suspended = await ledger.database.read(read_suspension)
            executor = Executor(
                ledger,
                rules,
                random.SystemRandom().uniform,
                installation.matrix(settings),
                refresh_actor=_nobody_is_asked,
                vouched=lambda source: source == "cli",
                only=" cli ",
                judged_at=as_it_came if suspended is None else partial(min, suspended.right_ms),
            )
            with logs.warnings_only(settings.secrets):
                while await executor.step() and not has_ended(await _look(ledger, operation_id)):
                    pass
            await recovery.give_back(ledger)
        finally:
            await database.close()


async def _nobody_is_asked(operation: Operation) -> bool:
    """Accept every terminal command: the operating system authenticates the terminal user."""
    del operation
    return True


async def _look(ledger: Ledger, operation_id: int) -> Operation:
    row = await ledger.database.read(lambda tx: tx.one("operation_by_id", id=operation_id))
    assert row is not None  # noqa: S101 -- unfinished commands are never purged
    return Operation.of(row)


def has_ended(operation: Operation) -> bool:
    """Return true if the command will not change any more by itself."""
    return operation.state in ("completed", "failed_terminal", "discarded")


def _refused_at_once(reservation: Reservation, asked: Options) -> int:
    """Report a request id that was used for another command, or whose command has been purged."""
    operation = reservation.operation
    if reservation.sighting == "conflict":
        text, status, outcome = messages.CONFLICT, exits.CONFLICT, "conflict"
    else:
        finished_at = operation.received_at if reservation.finished_at is None else reservation.finished_at
        text = messages.finished_long_ago(operation.outcome, finished_at)
        status, outcome = exits.OK if operation.outcome == "applied" else exits.REFUSED, operation.outcome or "given up"
    if asked.json_output:
        tables.print_json({"request_id": asked.request_id, "outcome": outcome, "text": text})
    else:
        exits.complain(text)
    return status


def _report(operation: Operation, asked: Options, *, repeated: bool) -> int:
    response = operation.response or {}
    ended = has_ended(operation)
    text = response.get("text") or messages.OPERATION_PENDING
    done = operation.state == "completed" and operation.outcome == "applied"
    if asked.json_output:
        tables.print_json(
            {
                "request_id": asked.request_id,
                "operation": f"op{operation.id}",
                "ref": operation.correlation_id,
                "state": operation.state.value,
                "outcome": operation.outcome,
                "repeated": repeated,
                **{name: value for name, value in response.items() if name in ("code", "quote_id", "version")},
                "text": plain(text),
            }
        )
    elif done:
        print(plain(text))
    else:
        exits.complain(plain(text))
    return exits.OK if done else exits.REFUSED if ended else exits.PENDING


def plain(mrkdwn: str) -> str:
    """Return a message of the bot in its terminal form, without Slack's entities."""
    text = _MENTION.sub(r"@\1", plain_times(mrkdwn)).replace("`/quote status ", "`quotebot quote show ")
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
