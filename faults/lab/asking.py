"""Commands that come neither from a click nor from a typed line: the scheduler's, and a person's at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from ledger.records import Request
from quotebot.commands import (
    DecideApproval,
    DelegateApprovals,
    EscalateApproval,
    ExpireApproval,
    RemindApprover,
)
from quotebot.store import approvals as store

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from quotebot.commands import Payload, SlotCommand

WEEK_MS: Final = 7 * 86_400_000
JOBS: Final[dict[str, type[SlotCommand]]] = {"remind": RemindApprover, "escalate": EscalateApproval, "expire": ExpireApproval}


async def scheduled(ledger: Ledger, job: str) -> None:
    """Reserve what is due of one job, each slot once, as the scheduler does."""
    now = ledger.clock.now_ms()
    for due in await ledger.database.read(lambda tx: store.due(tx, _name(job), now)):
        request_id = f"{job}:{due.approval_id}:{due.slot}:{due.due_at}"
        command = JOBS[job](due.approval_id, due.slot)
        who = {"actor": "quotebot", "actor_type": "system", "team_id": due.team_id}
        await _reserve(ledger, command, "scheduler", request_id, due.quote_id, due.quote_version, now, who)


async def sent_back(ledger: Ledger, actor: str, reason: str) -> None:
    """Reserve one approver's wish for changes to every open request."""
    now = ledger.clock.now_ms()
    for row in await ledger.database.read(lambda tx: [*store.due(tx, "expire", now + WEEK_MS)]):
        command = DecideApproval(row.approval_id, "request_changes", reason)
        who = {"actor": actor, "actor_type": "user", "team_id": row.team_id}
        await _reserve(ledger, command, "cli", f"changes:{row.approval_id}", row.quote_id, row.quote_version, now, who)


async def out_of_office(ledger: Ledger, absent: str, delegate: str, team_id: str, until: int) -> None:
    """Reserve that one approver is away."""
    command = DelegateApprovals(absent, delegate, until)
    who = {"actor": absent, "actor_type": "user", "team_id": team_id}
    await _reserve(ledger, command, "cli", f"away:{absent}", f"delegation:{absent}", 0, ledger.clock.now_ms(), who)


async def _reserve(
    ledger: Ledger, command: Payload, source: Any, request_id: str, aggregate_id: str, version: int, now: int, who: dict[str, Any]
) -> None:
    payload: Any = command.canonical()
    await ledger.reserve(
        Request(
            source=source,
            source_request_id=request_id,
            action_kind=command.kind,
            aggregate_id=aggregate_id,
            aggregate_version=version,
            payload=payload,
            fingerprint=keys.digest(payload),
            received_at=now,
            transport={},
            **who,
        )
    )


def _name(job: str) -> Any:
    return job
