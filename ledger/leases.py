"""Leases of a replica's claims, and the claims that other replicas have left behind.

A replica renews its leases as long as it runs. Another is dead once its lock is proven free (ownership.py), and stopped once its
leases lapse. After an outage of the database the leases of all may have lapsed, though all are alive: so only a replica that has
renewed its own without a gap, for the time of a lease, takes those of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from ledger import recovery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.recovery import AnswerDecision

GAP: Final = 0.5  # of a lease without a renewal: longer is an outage
log = structlog.get_logger(__name__)


class Leases:
    """Upkeep of claims: `renew`, `reap` and `take_lapsed` are called again and again, each at its own interval."""

    def __init__(
        self, ledger: Ledger, begin: Callable[[], Awaitable[int]], *, answer: AnswerDecision, follow: FollowUpDecision
    ) -> None:
        """`begin` begins another epoch of this process. `answer` and `follow` are those of recovery.take_back."""
        self._ledger = ledger
        self._begin = begin
        self._answer = answer
        self._follow = follow
        self._steady_since = ledger.renewed_at

    async def renew(self) -> None:
        """Extend the leases of this process. If others have taken it for dead, it goes on under a new epoch.

        Its earlier work then belongs to others: results that come late are refused and audited.
        """
        ledger = self._ledger
        term, asked = ledger.ownership.term, ledger.clock.monotonic()
        if not await recovery.renew_leases(ledger) and not ledger.ownership.alone:
            await self._begin_again()
        if asked - ledger.renewed_at > GAP * ledger.lease_ms / 1000:
            self._steady_since = asked
        if term != ledger.term:  # it claimed nothing meanwhile
            ledger.operations_changed.set()
            ledger.effects_changed.set()
        ledger.term, ledger.renewed_at = term, asked

    async def reap(self) -> None:
        """Take back the claims of replicas that are proven dead. If this one had lost its lock, it first looks at its own epoch.

        Suspects are tried by the replica that took them back and by the one that leads: the former may have ended since. The others
        do not know them, so a suspect that waits for rows in flight holds up no other replica.
        """
        ledger = self._ledger
        if ledger.ownership.term != ledger.term:
            await self.renew()
        dead = await ledger.ownership.dead_epochs()
        if dead:
            recovered = await recovery.take_back_dead(ledger, dead, answer=self._answer, follow=self._follow)
            log.warning("replica.died", epochs=dead, operations=recovered.operations, effects=recovered.effects)
        if ledger.suspects.any() or await ledger.ownership.leads():
            await ledger.database.read(ledger.suspects.load)

    async def take_lapsed(self) -> None:
        """Take back the claims of others whose leases have lapsed."""
        ledger = self._ledger
        if ledger.ownership.alone or (self._is_steady() and await ledger.database.read(self._is_any_lapsed)):
            await recovery.take_back_lapsed(ledger, answer=self._answer, follow=self._follow)

    def _is_steady(self) -> bool:
        """Tell whether this replica has renewed its leases for the time of one without a gap."""
        ledger = self._ledger
        now, lease = ledger.clock.monotonic(), ledger.lease_ms / 1000
        return now - self._steady_since >= lease and now - ledger.renewed_at <= GAP * lease

    def _is_any_lapsed(self, tx: Tx) -> bool:
        return tx.one("lapsed_claim", epoch=self._ledger.epoch, now=self._ledger.clock.now_ms()) is not None

    async def _begin_again(self) -> None:
        ledger = self._ledger
        closed, ledger.epoch = ledger.epoch, await self._begin()
        log.error("replica.was_taken_for_dead", closed=closed, epoch=ledger.epoch)
        await recovery.take_back_dead(ledger, (), answer=self._answer, follow=self._follow)
