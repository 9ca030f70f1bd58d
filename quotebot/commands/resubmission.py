"""Edited copies of dead commands: which of them may be edited, the check of an edit, and the request of the copy. Pure.

A stored payload is never rewritten. The copy belongs to the author of the original and states the version that they saw, so a quote
that has moved on since refuses it. Decisions about approvals and about differences
with Salesforce cannot be edited: a decision is its author's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ledger import keys
from ledger.records import Request
from quotebot.commands.payloads import DecideApproval, DelegateApprovals, NeedsNewerBuild, ReconcileCrm
from quotebot.commands.registry import PAYLOAD_BYTES_MAX, parse_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

    from ledger.records import Operation
    from quotebot.commands.registry import Payload

DECISIONS: Final = frozenset({DecideApproval.kind, DelegateApprovals.kind, ReconcileCrm.kind})
OF_PEOPLE: Final = frozenset({"slack_slash", "slack_interactive", "slack_event", "cli"})  # sources
UNREADABLE: Final = (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, NeedsNewerBuild)


def is_editable(action_kind: str, source: str) -> bool:
    """Return true for a command of a person that is no decision."""
    return source in OF_PEOPLE and action_kind not in DECISIONS


def stored_fields(action_kind: str, payload: Mapping[str, Any]) -> Any:
    """Return a stored payload in its current schema as plain JSON; unchanged if it cannot be read, perhaps why it is dead."""
    try:
        return _canonical(parse_stored(action_kind, payload))
    except UNREADABLE:
        return dict(payload)


def checked_edit(action_kind: str, stored: Any, wanted: Any) -> Payload:
    """Return the edited payload. Raises ValueError if it is no payload of that kind, or the same as before."""
    known: set[str] = set()
    try:
        edited = parse_stored(action_kind, _noting(wanted, known))
        canonical = _canonical(edited)
    except UNREADABLE as error:
        raise ValueError(f"That is no payload of {action_kind}: {error}") from error
    unknown = sorted(set(_fields(wanted)) - known - set(_fields(canonical)))
    if unknown:
        raise ValueError(f"{action_kind} has no field {unknown[0]}")
    if canonical == stored:
        raise ValueError("That changes nothing. A replay runs it again as it is")
    if len(keys.canonical_json(canonical)) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"The payload is longer than {PAYLOAD_BYTES_MAX:,} bytes")
    return edited


def copy_of(
    original: Operation,
    edited: Payload,
    source: Literal["cli", "slack_interactive"],
    request_id: str,
    now: int,
    transport: Mapping[str, Any],
) -> Request:
    """Return the request of an edited copy. `now` is Unix milliseconds."""
    return Request(
        source=source,
        source_request_id=request_id,
        action_kind=original.action_kind,
        aggregate_id=original.aggregate_id,
        aggregate_version=original.pinned_version if original.aggregate_version is None else original.aggregate_version,
        payload=edited.canonical(),
        fingerprint=keys.sha256(f"resubmit {original.operation_key} {keys.dumps(edited.canonical())}".encode()),
        actor=original.actor,
        actor_type="operator",
        team_id=original.team_id,
        received_at=now,
        transport=dict(transport),
        replaces_id=original.id,
    )


def _canonical(payload: Payload) -> Any:
    """Return the stored form of a payload as plain JSON."""
    return keys.loads(keys.dumps(payload.canonical()))


class _Noting(dict[str, Any]):
    """Part of a payload that notes which of its fields are read, also those whose default the stored form leaves out."""

    def __init__(self, values: Mapping[str, Any], path: str, known: set[str]) -> None:
        super().__init__(values)
        self._path = path
        self._known = known

    def __getitem__(self, name: str) -> Any:
        self._known.add(f"{self._path}{name}")
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field."""
        self._known.add(f"{self._path}{name}")
        return super().get(name, default)


def _noting(value: Any, known: set[str], path: str = "") -> Any:
    """Return a payload with the paths of its read fields noted in `known`."""
    if isinstance(value, dict):
        return _Noting({name: _noting(inner, known, f"{path}{name}.") for name, inner in value.items()}, path, known)
    if isinstance(value, list):
        return [_noting(inner, known, f"{path}{index}.") for index, inner in enumerate(value)]
    return value


def _fields(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every field at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}{name}"
            yield from _fields(inner, f"{path}{name}.")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _fields(inner, f"{path}{index}.")
