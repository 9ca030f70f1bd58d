"""What may leave this machine of a log line, for whoever else watches the bot: names and numbers of ours, never a text.

Nobody who watches is waited for: what does not get through is dropped, and the log has it anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quotebot.telemetry import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLOSING_SECONDS: Final = 1.0  # what is not sent by then is dropped
TOLD: Final = frozenset(
    {
        *("action_kind", "source", "outcome", "quote_id", "quote_version", "correlation_id", "operation_id", "job", "cycle"),
        *("effect_id", "effect_class", "adapter", "category", "http_status", "already_there", "latency_ms"),
        *("attempt", "attempts", "max_attempts", "final_attempt", "retryable", "dead"),
    }
)
TEXT_MAX: Final = 200

Told = str | int | float | bool


def told(line: Mapping[str, object], secrets: Sequence[str]) -> dict[str, Told]:
    """Return of a log line what may leave this machine."""
    found: dict[str, Told] = {}
    for name in TOLD & line.keys():
        value = line[name]
        if isinstance(value, str):
            found[name] = redact(value, secrets)[:TEXT_MAX]
        elif isinstance(value, int | float):
            found[name] = value
    return found
