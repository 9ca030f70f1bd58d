"""Outcome of a scenario in a form that allows two runs to be compared: without times, message ids or attempts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import orjson

from faults.checks.checker import violations
from faults.checks.evidence import Outside
from faults.checks.reachability import reached
from faults.lab import place
from ledger.audit.keyring import load_keyring
from ledger.audit.verification import verify_within
from ledger.sqlite.batch import SqliteTx
from quotebot.app.installation import schema_and_statements
from quotebot.execution.membership import is_direct
from quotebot.sandbox.request_log import LoggedRequest
from quotebot.sandbox.slack.directory import BOT_USER_ID
from quotebot.store import history
from quotebot.views import messages

EVENTS_MAX: Final = 1 << 40
Scrub = Callable[[str], str]

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from faults.lab.simulation import Cell
    from quotebot.sandbox.world import World

# Text that may differ between two runs with the same outcome: times, and keys made of times (a gesture's id contains its time).
_MOMENT: Final = re.compile(
    r"\b[0-9a-f]{64}\b|\bc-[0-9a-f]{8}\b|\b1[789]\d{8}\.\d{6}\b|\b1[789]\d{11}\b|<!date\^[^>]*>"
    r"|\d\d:\d\d(:\d\d)?( UTC)?|\b\d+ (s|min|h) ago"
)
_SIGHTING: Final = tuple(field.name for field in fields(LoggedRequest))
_ASKED_ELSEWHERE: Final = re.compile(r"^In <#\w+>: ")
_SAME: Final = {
    "quotes": "SELECT quote_id, version, state, account, requester FROM quotes ORDER BY quote_id",
    "approvals": "SELECT approval_id, quote_id, state, decided_by, decision_reason FROM approvals ORDER BY approval_id",
    "operations": "SELECT operation_key, action_kind, state, outcome, response FROM operations ORDER BY operation_key",
    "effects": """
        SELECT effect_key, class, state, payload FROM effects
        WHERE class NOT IN ('slack.card', 'slack.direct_card', 'slack.reply') ORDER BY effect_key""",
    "tombstones": "SELECT operation_key, outcome FROM tombstones ORDER BY operation_key",
    "gates": "SELECT name, state, cause FROM gates WHERE state = 'held' AND until_at IS NULL ORDER BY name",
}
# An ephemeral reply cannot be read back. It is repeated once if its process crashed, and given up if that attempt crashed too.
_CUT_OFF_TWICE: Final = """
    SELECT payload FROM effects AS e
    WHERE class = 'slack.reply' AND state = 'superseded'
      AND 2 = (SELECT count(*) FROM attempts AS a WHERE a.effect_id = e.id AND a.kind = 'send' AND a.outcome = 'died')"""
# An effect whose process crashed three times is given up, and people are notified. (A restore also ends effects under way, but
# without a crash.)
_DIED_THREE_TIMES: Final = """
    SELECT 1 FROM effects AS e
    WHERE state = 'failed' AND category = 'poison'
      AND 3 = (SELECT count(*) FROM attempts AS a JOIN epochs AS p ON p.epoch = a.epoch
               WHERE a.effect_id = e.id AND a.outcome = 'died' AND p.end_reason = 'died')"""


def outcome_of(cell: Cell, *, at_rest: bool) -> dict[str, Any]:
    """Return the comparable end of a scenario, the invariants it violates and the interesting states it reached."""
    outside = outside_of(cell.world)
    house = place.house(cell.settings)
    ledger = place.content(cell.settings)
    broken = violations(ledger, outside, cell.history, at_rest=at_rest, house=house)
    marks = reached(ledger, outside, cell.history)
    kinds = [kind for (kind,) in ledger.execute("SELECT DISTINCT action_kind FROM operations WHERE outcome IS NOT NULL")]
    classes = [name for (name,) in ledger.execute("SELECT DISTINCT class FROM effects")]
    scrub = _scrubber(ledger)
    broken += not_replayed(cell, ledger)
    rows = {name: [_timeless(dict(row), scrub) for row in ledger.execute(sql)] for name, sql in _SAME.items()}
    return {
        "end": {**rows, **_visible(outside, {told.text for told in cell.history}, scrub)},
        "untold": _untold(ledger, scrub),
        "poisoned": ledger.execute(_DIED_THREE_TIMES).fetchone() is not None,
        "violations": [*cell.broken, *broken],
        "reached": sorted(marks),
        "kinds": kinds,
        "classes": classes,
    }


def broken_now(cell: Cell) -> list[str]:
    """Return the violations of the invariants that always hold, whatever is still under way."""
    house = place.house(cell.settings)
    with place.reading(cell.settings) as ledger:
        found = [*violations(ledger, outside_of(cell.world), cell.history, at_rest=False, house=house), *not_replayed(cell, ledger)]
        purging = ledger.execute("SELECT 1 FROM meta WHERE name = 'retention'").fetchone() is not None
    # An interrupted purge has already deleted rows that its audit event, written at its end, does not explain yet.
    return [sentence for sentence in found if not (purging and sentence.startswith("I3"))]


def not_replayed(cell: Cell, ledger: sqlite3.Connection) -> list[str]:
    """Return the differences that the product's own replay of the audit finds in the tables; the invariants do not cover them."""
    ledger.execute("BEGIN")
    try:
        tx = SqliteTx(ledger, schema_and_statements()[1], None)
        keyring = load_keyring(cell.settings.data_dir, may_create=False)
        report = verify_within(tx, keyring, events_max=EVENTS_MAX, replay=history.replay)
    finally:
        ledger.execute("ROLLBACK")
    found = None if report is None else report.finding
    return [] if found is None else [f"history: {found.table} {found.row}: {found.meaning}"]


def outside_of(world: World) -> Outside:
    """Return the messages, files, Salesforce records and request log of `world`, for the invariants."""
    seen = world.seen()
    return Outside(seen.messages, seen.files, seen.crm, [_shown(sighting) for sighting in seen.sightings])


def _shown(sighting: LoggedRequest) -> dict[str, Any]:
    """Return the fields of a request, as asdict does it: they are plain values, so nothing has to be copied."""
    return {name: getattr(sighting, name) for name in _SIGHTING}


def is_somebody_untold(cell: Cell) -> bool:
    """Tell whether an ephemeral reply was given up because the process crashed twice while sending it."""
    ledger = place.content(cell.settings)
    return bool(_untold(ledger, _scrubber(ledger)))


def _untold(ledger: sqlite3.Connection, scrub: Scrub) -> list[list[str]]:
    """Return the recipient and text of each ephemeral reply that was given up."""
    owed = [json.loads(payload) for (payload,) in ledger.execute(_CUT_OFF_TWICE)]
    return [[reply["user"], scrub(reply["text"])] for reply in owed]


def difference(golden: Mapping[str, Sequence[Any]], other: Mapping[str, Sequence[Any]], untold: Sequence[Any] = ()) -> list[str]:
    """Return sentences on the differences; empty if there are none. Whispers that are `untold` may be missing."""
    found = []
    for name, wanted in golden.items():
        expected, got = Counter(map(_text, wanted)), Counter(map(_text, other[name]))
        if name == "whispers":
            expected -= Counter(map(_text, untold)) - got
        found += [f"golden: {name} lacks {text[:600]}" for text in (expected - got)]
        found += [f"golden: {name} has besides {text[:600]}" for text in (got - expected)]
    return found


def _visible(outside: Outside, acked: set[str | None], scrub: Scrub) -> dict[str, list[Any]]:
    """Return what people see.

    Ephemeral replies are compared as a set: they cannot be read back, so one may be there twice after a crash. The text of an ack
    is left out, because it differs by design, and so is the reply to a slow creation. A direct message counts as an ephemeral reply
    that was too late, or that could not be shown where the person asked.
    """
    said = [(_whispered_to(message), message) for message in outside.messages]
    shown = [message for person, message in said if person is None]
    whispers = {
        (person, scrub(_ASKED_ELSEWHERE.sub("", message["text"])))
        for person, message in said
        if person is not None and message["user"] == BOT_USER_ID and message["text"] not in {*acked, messages.CREATING}
    }
    return {
        "messages": [
            [message["channel"], bool(message["thread_ts"]), scrub(message["text"]), scrub(_text(_nameless(message["blocks"])))]
            for message in shown
        ],
        "whispers": sorted(map(list, whispers)),
        "files": [[shared["name"], shared["title"], len(shared["shares"])] for shared in outside.files if shared["shares"]],
        "crm": [
            [name, _timeless({key: value for key, value in record.items() if not key.endswith(("Date", "stamp"))}, scrub)]
            for name, records in outside.crm.items()
            for record in records
        ],
    }


def _whispered_to(message: dict[str, Any]) -> str | None:
    """Return the only person who sees a message of the bot; None if it is not the bot's, or more people see it."""
    if message["user"] == BOT_USER_ID and is_direct(message["channel"]):
        return f"U{message['channel'][1:]}"  # as the local Slack names its conversations of two
    whispered_to: str | None = message["ephemeral_for"]
    return whispered_to


def _nameless(blocks: Any) -> Any:
    """Leave out the ids that Slack gives to blocks without one."""
    if isinstance(blocks, dict):
        return {name: _nameless(value) for name, value in blocks.items() if name != "block_id"}
    return [_nameless(block) for block in blocks] if isinstance(blocks, list) else blocks


def _timeless(row: dict[str, Any], scrub: Scrub) -> dict[str, Any]:
    return {name: scrub(value) if isinstance(value, str) else value for name, value in row.items()}


def _scrubber(ledger: sqlite3.Connection) -> Scrub:
    """Return a function that removes times and failure texts from a text: the last failure depends on the fault."""
    errors = {row["error"] for row in ledger.execute("SELECT error FROM attempts WHERE error IS NOT NULL")}
    failures = sorted({json.dumps(error, ensure_ascii=False)[1:-1] for error in errors} | errors, key=len, reverse=True)

    def scrub(text: str) -> str:
        for failure in failures:
            text = text.replace(f"{failure}.", "*").replace(failure, "*")
        return _MOMENT.sub("*", text)

    return scrub


def _text(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS).decode()
