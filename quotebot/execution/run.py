"""One command inside its open transaction: the request, the rules, and the services that loaders and savers need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ledger.records import Outcome
from quotebot.domain.access import Sight, may_see
from quotebot.store import people

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Tx
    from ledger.ledger import FollowUpDecision, Ledger
    from ledger.records import Operation
    from quotebot.domain.access import Viewer
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules
    from quotebot.execution.precompute import Precomputed
    from quotebot.handlers.decision import Asked, Decision

KEEP_REFUSED_MS: Final = 30 * 86_400_000  # retention of a refused command, and of one that concerns no quote


class ChannelUnaskedError(Exception):
    """A decision depends on the membership of a private channel. Nothing was written; the caller must query Slack first."""

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.channel = channel


@dataclass(frozen=True, slots=True)
class Run:
    """Execution of one command. `viewer` is None for the scheduler; `now` is Unix milliseconds."""

    ledger: Ledger
    tx: Tx
    operation: Operation
    asked: Asked
    viewer: Viewer | None
    rules: Rules
    precomputed: Precomputed
    now: int
    vouched: Callable[[str], bool]  # whether people of this source count as members while Slack has given no answer about them
    follow: FollowUpDecision  # the follow-ups of a dead letter that a command retries or discards

    def is_member(self, user: str) -> bool:
        """Return true if a user of Slack is a full member of the actor's workspace, by Slack's last answer."""
        return kind_of(self.tx, self.asked.team_id, user, now=self.now, vouched=self.vouched("slack")) == "member"

    def sight(self, quote: Quote) -> Sight:
        """Return how much of a quote the actor sees; the scheduler sees everything.

        Raises ChannelUnaskedError if that depends on a channel that Slack was not queried about.
        """
        if self.viewer is None:
            return Sight.FULL
        sight = may_see(self.viewer, quote)
        if sight is not Sight.OUTLINE:
            return sight
        if self.viewer.user in self.rules.role_holders:
            return Sight.FULL
        if quote.channel not in self.viewer.circle.asked:
            raise ChannelUnaskedError(quote.channel)
        return sight

    def kept(self, decision: Decision) -> Outcome:
        """Return the outcome of a command that is purged KEEP_REFUSED_MS after its execution."""
        return replace(outcome_of(decision), retain_until=self.now + KEEP_REFUSED_MS)


def kind_of(tx: Tx, team_id: str, user: str, *, now: int, vouched: bool) -> str:
    """Return a person's kind from Slack's last answer. Without one that counts, `vouched` people are members."""
    found = people.known(tx, team_id, user)
    if found is not None and found.counts_at(now):
        return found.kind
    if not vouched:
        return "unknown"
    return "member" if found is None else found.kind


def outcome_of(decision: Decision) -> Outcome:
    """Return the outcome that completes the operation of a decision."""
    response: dict[str, Any] = decision.response
    return Outcome(decision.kind, response, decision.effects, decision.events)
