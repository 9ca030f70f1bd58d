"""Preview of an approval policy: evaluates the newest version of each recent quote under two policies. Writes nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quotebot.domain import money
from quotebot.domain.approvals.policy import PolicyDecision, evaluate
from quotebot.domain.pricing.engine import from_stored
from quotebot.domain.schedule.schedules import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.database import Row
    from ledger.ledger import Ledger
    from quotebot.domain.approvals.policy import ApprovalPolicy

AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class PreviewedQuote:
    """One quote with other approvers under the second policy. `before` and `after` are the approvers in words."""

    quote_id: str
    version: int
    account: str
    total: str
    before: str
    after: str
    reasons: tuple[str, ...]  # hits of the second policy


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """Result of a preview: the number of quotes, their approvers in words under each policy, and the quotes that differ."""

    quotes: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    changed: tuple[PreviewedQuote, ...]


async def preview_policy(ledger: Ledger, active: ApprovalPolicy, draft: ApprovalPolicy, *, days: int) -> PolicyPreview:
    """Evaluate the quotes whose newest version was priced within `days`, page by page."""
    since = ledger.clock.now_ms() - days * DAY_MS
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    changed: list[PreviewedQuote] = []
    last = ""
    while rows := await _page(ledger, since, last):
        for row in rows:
            pricing = from_stored(row["pricing"])
            now, then = evaluate(pricing, active), evaluate(pricing, draft)
            before[approvers(now)] += 1
            after[approvers(then)] += 1
            if (now.needs, now.blocked) != (then.needs, then.blocked):
                total = money.format_amount(pricing.net_total, pricing.currency)
                words = (approvers(now), approvers(then))
                changed.append(PreviewedQuote(row["quote_id"], row["version"], row["account"], total, *words, then.hits))
        last = rows[-1]["quote_id"]
    return PolicyPreview(before.total(), before, after, tuple(changed))


def approvers(decision: PolicyDecision) -> str:
    """Return the approvers that a decision requires, in words."""
    if decision.blocked:
        return "blocked"
    return " and ".join(decision.required_roles) or "nobody"


async def _page(ledger: Ledger, since: int, after: str) -> list[Row]:
    return await ledger.database.read(lambda tx: tx.all("heads_priced_since", since=since, quote_id=after, limit=AT_ONCE))
