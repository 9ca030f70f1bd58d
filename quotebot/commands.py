"""What can be asked: one frozen payload per command kind, what identifies it, and its canonical form.

A payload's canonical form is JSON-ready (strings, whole numbers, lists, no floats) and carries its schema version `v`, so that the
hash of a command never depends on key order, whitespace, aliases or transport.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Literal

from quotebot.domain.pricing import LineRequest


@dataclass(frozen=True, slots=True)
class CreateQuote:
    """Create, price and show a quote in `channel`."""

    kind: ClassVar[str] = "quote.create"
    schema: ClassVar[int] = 1
    account: str
    lines: tuple[LineRequest, ...]
    term_months: int
    discount_percent: Decimal
    channel: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {
            "v": self.schema,
            "account": self.account,
            "lines": [{"sku": line.sku, "quantity": line.quantity} for line in self.lines],
            "term_months": self.term_months,
            "discount_percent": format(self.discount_percent.normalize(), "f"),
            "channel": self.channel,
        }

    @classmethod
    def parse(cls, stored: dict[str, object]) -> CreateQuote:
        """Rebuild from the canonical form of this schema version."""
        lines = stored["lines"]
        assert isinstance(lines, list)  # noqa: S101 -- written by canonical()
        return cls(
            account=str(stored["account"]),
            lines=tuple(LineRequest(sku=line["sku"], quantity=int(line["quantity"])) for line in lines),
            term_months=int(str(stored["term_months"])),
            discount_percent=Decimal(str(stored["discount_percent"])),
            channel=str(stored["channel"]),
        )


@dataclass(frozen=True, slots=True)
class SubmitQuote:
    """Ask for whatever approval the policy wants."""

    kind: ClassVar[str] = "quote.submit"
    schema: ClassVar[int] = 1

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema}

    @classmethod
    def parse(cls, stored: dict[str, object]) -> SubmitQuote:
        """Rebuild from the canonical form of this schema version."""
        del stored
        return cls()


@dataclass(frozen=True, slots=True)
class DecideApproval:
    """Approve or reject one approval request; a rejection needs a reason."""

    kind: ClassVar[str] = "approval.decide"
    schema: ClassVar[int] = 1
    approval_id: str
    decision: Literal["approve", "reject"]
    reason: str | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "approval_id": self.approval_id, "decision": self.decision, "reason": self.reason}

    @classmethod
    def parse(cls, stored: dict[str, object]) -> DecideApproval:
        """Rebuild from the canonical form of this schema version."""
        decision = stored["decision"]
        if decision not in ("approve", "reject"):
            raise ValueError(f"unknown decision {decision!r}")
        reason = stored.get("reason")
        return cls(
            approval_id=str(stored["approval_id"]),
            decision="approve" if decision == "approve" else "reject",
            reason=None if reason is None else str(reason),
        )


Payload = CreateQuote | SubmitQuote | DecideApproval

REGISTRY: dict[str, type[Payload]] = {payload.kind: payload for payload in (CreateQuote, SubmitQuote, DecideApproval)}


@dataclass(frozen=True, slots=True)
class Command:
    """A normalised command: who asks what of which aggregate, seen at which version, in which request.

    `aggregate_version` is the version the person saw (0 for a creation, None for a typed command, which names none).
    `fingerprint` covers the raw semantic input, independent of any payload schema. `received_at` is Unix milliseconds.
    """

    source: Literal["slack_slash", "slack_interactive", "slack_event", "cli", "scheduler", "effect"]
    source_request_id: str
    aggregate_id: str
    aggregate_version: int | None
    payload: Payload
    actor: str
    actor_type: Literal["user", "operator", "system"]
    team_id: str
    fingerprint: str
    received_at: int
    actor_name: str = ""
    response_url: str | None = None
