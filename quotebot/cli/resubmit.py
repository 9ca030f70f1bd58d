"""`quotebot ops resubmit`: an edited copy of a dead command, recorded as a new command that replaces it."""

from __future__ import annotations

import copy
import json
from pathlib import Path  # noqa: TC003 -- cyclopts reads it
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ledger.records import Operation
from quotebot.app.installation import dead_letters
from quotebot.cli import exits, ops, tables, terminal, trace
from quotebot.cli.quote_work import Options, checked_request_id, follow_to_end
from quotebot.commands.registry import PAYLOAD_BYTES_MAX
from quotebot.commands.resubmission import DECISIONS, checked_edit, copy_of, stored_fields
from quotebot.settings import load_settings
from quotebot.store import quotes as store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.commands.registry import Payload


async def resubmit(
    reference: str,
    *,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    payload: Path | None = None,
    reason: str | None = None,
    actor: Annotated[str | None, Parameter(name="--as")] = None,
    request_id: str | None = None,
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Run an edited copy of a dead command, and close the original. A command is replaced at most once.

    See its payload first: quotebot dead show op12 --show-payload. Exit status: 0 done, 3 refused (and why), 4 there is no such
    command, 64 usage, 65 it was replaced already, 75 still under way.

    Parameters
    ----------
    reference
        The dead command: op12, c-7f91ab12 or its key.
    set_
        FIELD=VALUE: a field of the payload, e.g. account=Acme or lines.0.quantity=5; may be given several times.
    payload
        A file with the whole payload as JSON; --set then applies to it.
    reason
        Why, for the audit.
    actor
        The name in the audit, beside the terminal user's; for the system users of QUOTEBOT_CLI_OPERATORS.
    request_id
        The same id twice is one effect; a fresh one is printed without it.
    json_output
        Print JSON.
    """
    if not set_ and payload is None:
        raise exits.UsageError("Say what to change: --set FIELD=VALUE or --payload FILE.")
    try:
        who, why = terminal.operator(actor), None if reason is None else terminal.reason_of(reason)
        given = None if payload is None else _read(payload)
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    request_id = checked_request_id(request_id)
    async with terminal.existing_ledger() as ledger:
        found = await trace.look_up(ledger, reference)
        if len(found) != 1:
            return ops.not_one(reference, found, ledger.clock.now_ms())
        original = Operation.of(found[0])
        try:
            _require_right(original)
            edited = _edited(original, set_, given)
        except ValueError as error:
            return exits.complain(f"{error}.", exits.USAGE)
        name = await ledger.database.read(lambda tx: store.known_name(tx, original.actor, original.team_id))
        now, transport = ledger.clock.now_ms(), {"actor_name": name, "terminal_user": terminal.user()}
        request = copy_of(original, edited, "cli", f"{original.actor}:{request_id}", now, transport)
        ruling, reservation = await dead_letters(ledger).resubmit(f"op{original.id}", request, actor=who, reason=why)
        if reservation is None:
            return tables.report(ruling, json_output=json_output)
        asked = Options(original.actor, request_id, json_output)
        return await follow_to_end(ledger, reservation, asked)


def _require_right(original: Operation) -> None:
    """Raise ValueError unless the terminal user may run an edited copy of this command."""
    if original.actor_type == "system" or original.source == "effect":
        raise ValueError(f"op{original.id} is the bot's own command: replay or discard it")
    if original.action_kind in DECISIONS:
        raise ValueError(f"op{original.id} is a decision of {original.actor}, which nobody else may edit: replay or discard it")
    user, settings = terminal.user(), load_settings()
    if user not in settings.cli_operators and settings.cli_users.get(user) != original.actor:
        raise ValueError(
            f"op{original.id} is a command of {original.actor}, and the system user {user} may not act for others: "
            f'QUOTEBOT_CLI_OPERATORS names them, e.g. ["{user}"]'
        )


def _read(path: Path) -> Any:
    """Read a payload. Raises ValueError for a file that is none."""
    try:
        with path.open("rb") as file:
            text = file.read(PAYLOAD_BYTES_MAX + 1)
        return json.loads(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON of at most {PAYLOAD_BYTES_MAX:,} bytes") from error


def _edited(original: Operation, assignments: Sequence[str], given: Any) -> Payload:
    """Return the edited payload. Raises ValueError if it is no payload of that kind, or the same as before."""
    stored = stored_fields(original.action_kind, original.payload)
    wanted = copy.deepcopy(stored if given is None else given)
    for text in assignments:
        _assign(wanted, text)
    return checked_edit(original.action_kind, stored, wanted)


def _assign(payload: Any, text: str) -> None:
    """Change one field. Raises ValueError for a text that is no assignment, or a path that leads nowhere."""
    path, equals, value = text.partition("=")
    if not equals or path == "v":
        raise ValueError(f"--set takes FIELD=VALUE, not {text[:80]!r}")
    *parents, last = path.split(".")
    place: Any = payload
    try:
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        key: Any = int(last) if isinstance(place, list) else last
        was = place[key] if isinstance(place, list) else place.get(key)
        place[key] = value if isinstance(was, str) else _value(value)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"There is no field {path} to set") from error


def _value(text: str) -> Any:
    """Return a value as JSON, else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
