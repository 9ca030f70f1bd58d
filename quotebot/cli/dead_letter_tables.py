"""Shared parts of the dead letter commands: ids, durations, rates, and the output of a dead letter."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from adapters.policies import POLICIES, unknown_class
from ledger.operator.dead_letters import parse_reference
from quotebot.cli import tables
from quotebot.dispatch.registry import follow_ups
from quotebot.domain.quotes.quote import parse_quote_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.operator.dead_letters import DeadLetter

ROW_ID_MAX: Final = 2**63 - 1
UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
REDACTED: Final = "[redacted: --show-payload shows it, and that is audited]"
ACTOR_CHARACTERS_MAX: Final = 254  # the longest e-mail address
OF_COMMANDS: Final = ("quote.", "approval.")  # a dead command is listed under its kind
OWN_NAME: Final = "quotebot"  # the audit's name for the system itself


def checked_references(references: Sequence[str]) -> tuple[str, ...]:
    """Return the references without duplicates. Raises ValueError for an impossible id, before the first change."""
    for reference in references:
        _, row_id = parse_reference(reference)
        if row_id > ROW_ID_MAX:
            raise ValueError(f"{reference} is larger than any id")
    return tuple(dict.fromkeys(references))


def checked_quote(text: str | None) -> str | None:
    """Return a quote's id in its stored form, for any accepted spelling. Raises ValueError if the text is no quote id."""
    if text is None:
        return None
    quote_id = parse_quote_id(text)
    if quote_id is None:
        raise ValueError(f"{text!r} is no quote: write Q-2026-0042")
    return quote_id


def no_such_class(name: str | None) -> str:
    """Return a sentence about a mistyped class; empty for a class of the retry matrix or of a command."""
    return "" if name is None or name in POLICIES or name.startswith(OF_COMMANDS) else f" {name}: {unknown_class(name)}."


def duration_ms(text: str | None) -> int | None:
    """Parse "2h" to milliseconds. Raises ValueError."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is no duration: write 90s, 30m, 2h or 7d")
    return int(match[1]) * UNITS_MS[match[2]]


def interval_ms(rate: str | None) -> float:
    """Parse "2/s" to the milliseconds between two rows; 0 without a rate. Raises ValueError."""
    if rate is None:
        return 0.0
    match = re.fullmatch(r"([1-9][0-9]{0,3})/([sm])", rate)
    if match is None:
        raise ValueError(f"{rate!r} is no rate: write 1/s, 20/s or 30/m")
    return UNITS_MS[match[2]] / int(match[1])


def checked_actor(name: str | None, otherwise: str) -> str:
    """Return the actor for the audit. Raises ValueError for a name that would mislead its readers."""
    if name is None:
        return otherwise
    if not name.strip() or not name.isprintable() or len(name) > ACTOR_CHARACTERS_MAX:
        raise ValueError("--as needs a name or an e-mail address of at most 254 printable characters")
    if name.strip().casefold() == OWN_NAME:
        raise ValueError(f"--as cannot be {OWN_NAME}: under that name the audit notes what no person asked for")
    return name.strip()


def follow(ledger: Ledger) -> FollowUpDecision:
    """Return the follow-up decision for a replayed, discarded or resolved row: it redraws the quote's card."""
    return lambda tx, effect: follow_ups(tx, effect, ledger.clock.now_ms())


def public(letter: DeadLetter, *, show_payload: bool) -> dict[str, Any]:
    """Return a dead letter in its JSON form."""
    fields = asdict(letter)
    fields["id"] = letter.reference
    fields["class"] = fields.pop("effect_class")
    if not show_payload:
        fields["payload"] = REDACTED
    return fields


def for_people(name: str, value: Any) -> str:
    """Return the display text of one field."""
    if value is None:
        return "-"
    if name.endswith("_at"):
        return time_words(value)
    return str(value) if isinstance(value, str | int) else json.dumps(value)


def time_words(at: int) -> str:
    """Return a time (Unix ms) in its display form."""
    return f"{datetime.fromtimestamp(at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def age_words(milliseconds: int) -> str:
    """Return "12 s", "5 min", "3 h" or "9 d"."""
    for unit, size in (("d", UNITS_MS["d"]), ("h", UNITS_MS["h"]), ("min", UNITS_MS["m"])):
        if milliseconds >= size:
            return f"{milliseconds // size} {unit}"
    return f"{max(0, milliseconds) // 1000} s"


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2, sort_keys=True, default=str))


def print_table(letters: Sequence[DeadLetter], now: int) -> None:
    """Print dead letters as a table; their age counts from their first failure."""
    tables.print_table(
        ("ID", "Status", "Class", "Quote", "Ref", "Category", "Tries", "Replays", "First failed", "Age", "Why"),
        (
            (
                letter.reference,
                letter.status,
                letter.effect_class,
                letter.aggregate_id,
                letter.correlation_id,
                letter.category or "",
                str(letter.attempts),
                str(letter.prior_replay_count),
                for_people("first_failed_at", _first_failure(letter)),
                age_words(now - (_first_failure(letter) or letter.created_at)),
                letter.last_error or "",
            )
            for letter in letters
        ),
    )


def _first_failure(letter: DeadLetter) -> int | None:
    """Return the first failure (ms) of the open cycle, or else of the cycle that was closed last."""
    if letter.first_failed_at is not None or not letter.failure_history:
        return letter.first_failed_at
    found: int | None = letter.failure_history[-1]["first_failed_at"]
    return found
