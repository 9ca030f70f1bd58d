"""Commands that clients reserve one after another, and the check of what became of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from ledger.audit.verification import verify_within
from ledger.database import NotRecorded, OutcomeUnknown
from ledger.records import EffectIntent, Outcome, Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ledger.audit.events import Keyring
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Operation

T = TypeVar("T")
CLASS: Final = "slack.post"
EVENTS_MAX: Final = 1 << 40
AGAIN_SECONDS: Final = 0.05
ONCE: Final = ("operation.reserved", "operation.applied", "effect.delivered")


class Clients:
    """Clients that reserve commands through a ledger until they are stopped. The names of their aggregates begin with `name`.

    `acknowledged` is called with the aggregate and the operation key of each recorded command; then the client rests for as many
    seconds as `rest` returns.
    """

    def __init__(
        self, ledger: Ledger, name: str, number: int, *, acknowledged: Callable[[str, str], object], rest: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._name = name
        self._acknowledged = acknowledged
        self._rest = rest
        self._stop = False
        self.unknown = 0  # results that a caller got as unknown, and asked for again
        self.tasks = [asyncio.create_task(self._reserve_commands(client)) for client in range(number)]

    @property
    def have_ended(self) -> bool:
        """True if the clients were stopped, and each has its last acknowledgement."""
        return self._stop and all(task.done() for task in self.tasks)

    async def end(self) -> None:
        """Stop the clients. Raises the error that ended one of them."""
        self._stop = True
        await asyncio.gather(*self.tasks)

    async def _reserve_commands(self, client: int) -> None:
        number = 0
        while not self._stop:
            number += 1
            request = request_about(f"{self._name}-{client}-{number}", self._ledger.clock.now_ms())
            reserved = await self.insist(lambda request=request: self._ledger.reserve(request))  # type: ignore[misc] # bound
            self._acknowledged(request.aggregate_id, reserved.operation.operation_key)
            await asyncio.sleep(self._rest())

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until it is recorded."""
        while True:
            try:
                return await ask()
            except OutcomeUnknown:
                self.unknown += 1
            except NotRecorded:
                await asyncio.sleep(AGAIN_SECONDS)


def request_about(aggregate: str, now_ms: int) -> Request:
    """Return a command about an aggregate of its own."""
    return Request(
        source="slack_slash",
        source_request_id=f"T01:{aggregate}",
        action_kind="quote.submit",
        aggregate_id=aggregate,
        aggregate_version=1,
        payload={"schema": 1},
        fingerprint=aggregate,
        actor="U0REP",
        actor_type="user",
        team_id="T01",
        received_at=now_ms,
    )


def outcome_of(operation: Operation) -> Outcome:
    """Return the outcome of such a command: one message."""
    message = EffectIntent(CLASS, "append", operation.aggregate_id, operation.aggregate_id, {"text": "hello"})
    return Outcome("applied", {"code": "ok"}, (message,))


def wrong(tx: Tx, acknowledged: Mapping[str, str], sent: Counter[str], keyring: Keyring) -> list[str]:
    """Return what the ledger lost, did twice or cannot prove.

    `acknowledged` has the operation key of each aggregate, `sent` counts the messages by aggregate.
    """
    found = []
    for aggregate, key in acknowledged.items():
        row = tx.one("operation_by_key", operation_key=key)
        if row is None:
            found.append(f"the acknowledged command of {aggregate} is lost")
            continue
        events = Counter(event["event_type"] for event in tx.all("audit_chain", aggregate_id=aggregate, limit=100))
        found += [f"{aggregate} has {events[kind]} events {kind}" for kind in ONCE if events[kind] != 1]
        if not sent[aggregate]:
            found.append(f"the message of {aggregate} was not sent")
    found += [f"the message of {aggregate} was sent {times} times" for aggregate, times in sent.items() if times > 1]
    report = verify_within(tx, keyring, events_max=EVENTS_MAX)
    if report is None or report.finding is not None:
        found.append(f"the audit does not verify: {None if report is None else report.finding}")
    return found
