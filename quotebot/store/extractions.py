"""Persistence of LLM extractions: the answer slot of a message, the proposal in it, and the log of model calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger.gates import Gate, family
from quotebot.domain.schedule.schedules import DAY_MS, Candidate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adapters.llm.api import ModelCall
    from ledger.database import Tx

SHORT_WAIT_MS: Final = 10_000  # a 429 with a wait up to this does not count as held
FINISHED: Final = ("delivered", "failed", "superseded", "discarded")


@dataclass(frozen=True, slots=True)
class StoredExtraction:
    """Answer slot of one message. `payload` is its stored command; times are Unix milliseconds."""

    operation_key: str
    team_id: str
    user_id: str
    asked_at: int
    payload: Mapping[str, Any]
    answered_by: str | None


@dataclass(frozen=True, slots=True)
class Asking:
    """State of the question to the model. `result` is the model's answer, None until there is one."""

    state: str
    category: str | None
    result: Mapping[str, Any] | None

    @property
    def is_over(self) -> bool:
        """Return true if no answer can follow any more."""
        return self.state in FINISHED


def open_slot(tx: Tx, operation_key: str, team_id: str, user_id: str, asked_at: int) -> None:
    """Open the answer slot of a message."""
    tx.one("insert_reading", operation_key=operation_key, team_id=team_id, user_id=user_id, asked_at=asked_at)


def fill_slot(
    tx: Tx,
    operation_key: str,
    answered_by: str,
    read_by: Literal["model", "rules"],
    creation: Mapping[str, Any] | None,
    now: int,
) -> bool:
    """Store the answer's origin and the proposal; false if the slot was answered before."""
    proposal = None if creation is None else json.dumps(creation)
    row = tx.one(
        "answer_reading", operation_key=operation_key, answered_by=answered_by, read_by=read_by, proposal=proposal, now=now
    )
    return row is not None


def find(tx: Tx, operation_key: str) -> StoredExtraction | None:
    """Return the slot of a message, or None."""
    row = tx.one("reading", operation_key=operation_key)
    if row is None:
        return None
    values = {name: row[name] for name in ("operation_key", "team_id", "user_id", "asked_at", "answered_by")}
    return StoredExtraction(**values, payload=json.loads(row["payload"]))


def asked_today(tx: Tx, team_id: str, user_id: str, now: int) -> int:
    """Count one user's messages that the model was asked to read since midnight, UTC."""
    return int(tx.required("readings_today", team_id=team_id, user_id=user_id, since=now - now % DAY_MS)["asked"])


def asking(tx: Tx, effect_key: str) -> Asking | None:
    """Return the state of this effect's question, or None if there is none."""
    row = tx.one("model_asked", effect_key=effect_key)
    if row is None:
        return None
    return Asking(row["state"], row["category"], None if row["result"] is None else json.loads(row["result"]))


def is_held(tx: Tx, effect_class: str, now: int) -> bool:
    """Return true if a class or its family is paused, open, or throttled for longer than a user is kept waiting."""
    names = (effect_class, family(effect_class))
    gates = [Gate.of(row) for row in tx.all("all_gates") if row["name"] in names and row["state"] == "held"]
    return any(_keeps_waiting(gate, now) for gate in gates)


def _keeps_waiting(gate: Gate, now: int) -> bool:
    if gate.until_at is None:
        return True
    return gate.until_at > now + (SHORT_WAIT_MS if gate.cause == "throttled" else 0)


def unanswered(tx: Tx, job: str, now: int, wait_ms: int, limit: int) -> list[Candidate]:
    """Return the slots whose answer is due, the oldest first; the anchor is the due time, `wait_ms` after the question."""
    rows = tx.all("readings_unanswered", job=job, now=now, wait_ms=wait_ms, limit=limit)
    return [Candidate(row["operation_key"], row["due_at"], "new", row["team_id"]) for row in rows]


def log_calls(tx: Tx, effect_key: str, calls: Sequence[ModelCall], now: int) -> None:
    """Store calls of the model."""
    for call in calls:
        tx.one(
            "insert_model_call",
            effect_key=effect_key,
            correlation_id=call.correlation_id,
            model=call.model,
            outcome=call.outcome,
            request_sha256=call.request_sha256,
            answer_sha256=call.answer_sha256,
            request=call.request,
            answer=call.answer,
            now=now,
        )
