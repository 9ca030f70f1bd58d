"""Log lines that alert the operator, after the commit: one for each cycle of a dead letter, one for each refused login."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ledger import keys
from quotebot.observability.logs import redact

if TYPE_CHECKING:
    from ledger.records import DeadNotice, PauseNotice

log = structlog.get_logger(__name__)


def log_dead_letter(notice: DeadNotice) -> None:
    """Write the ERROR line of a dead letter. It contains no payload and no customer name."""
    reference = str(notice.id) if notice.kind == "effect" else f"op{notice.id}"
    log.error(
        "dead_letter",
        **{f"{notice.kind}_id": notice.id},
        effect_class=notice.name,
        adapter=notice.name.partition(".")[0],
        source=notice.source,
        target=notice.target,
        aggregate_id=notice.aggregate_id,
        operation_key=notice.operation_key,
        correlation_id=notice.correlation_id,
        trace_id=keys.trace_id(notice.correlation_id),
        category=notice.category,
        last_error=redact(notice.last_error or ""),
        attempts=notice.attempts,
        cycle=notice.cycle,
        dead=True,
        do=f"quotebot dead show {reference}",
    )


def log_pause(notice: PauseNotice) -> None:
    """Write the ERROR line of a refused login. The bot's effects of this family wait until it works again."""
    log.error(
        "class.paused",
        gate=notice.name,
        effect_id=notice.effect_id,
        effect_class=notice.effect_class,
        adapter=notice.name,
        correlation_id=notice.correlation_id,
        category="auth",
        last_error=redact(notice.error),
        do=f"mend the login, then: quotebot resume {notice.name}",
    )
