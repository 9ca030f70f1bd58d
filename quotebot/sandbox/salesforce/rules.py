"""Further reactions of an org to a write: its admin's rules, its other users and its approval processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quotebot.sandbox.salesforce.errors import SalesforceRefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BAD_REQUEST = 400
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """An admin's rule: a record of `sobject` for which `broken` is true is refused with `message`, shown at `field` if any.

    As a `trigger` it is the customer's Apex code that fails.
    """

    sobject: str
    message: str
    broken: Callable[[Mapping[str, object]], bool]
    field: str | None = None
    trigger: bool = False


@dataclass(slots=True)
class Rules:
    """The present configuration. Record ids are in their long form, objects are named as in the schema."""

    validations: list[ValidationRule] = field(default_factory=list)
    duplicate_fields: dict[str, str] = field(default_factory=dict)  # a duplicate rule: object -> field that must differ
    locked: set[str] = field(default_factory=set)  # records in an approval process
    busy: set[str] = field(default_factory=set)  # rows locked by another transaction
    unshared: set[str] = field(default_factory=set)  # records that the integration user may read but not change
    refuse_next: SalesforceRefusalError | None = None  # the refusal of the next write

    def check_rows(self, sobject: str, own_id: str | None, changes: Mapping[str, object], references: frozenset[str]) -> None:
        """Refuse a write to a row, or below a row, that is locked, busy or unshared. `references` name fields of `changes`."""
        if self.refuse_next is not None:
            refusal, self.refuse_next = self.refuse_next, None
            raise refusal
        touched = {str(value) for name, value in changes.items() if name in references and value is not None}
        if own_id in self.locked:
            raise refused("ENTITY_IS_LOCKED", "This record is locked. If you need to edit it, contact your admin.")
        if own_id in self.unshared:
            message = "insufficient access rights on object id"
            raise SalesforceRefusalError(_FORBIDDEN, "INSUFFICIENT_ACCESS_OR_READONLY", message, ())
        if touched & self.unshared:
            message = f"insufficient access rights on cross-reference id: {min(touched & self.unshared)}"
            raise refused("INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY", message)
        held = (touched | {own_id or sobject}) & self.busy
        if held:
            message = f"unable to obtain exclusive access to this record or {len(held)} records: {','.join(sorted(held))}"
            raise refused("UNABLE_TO_LOCK_ROW", message)

    def check_record(self, sobject: str, record: Mapping[str, object]) -> None:
        """Refuse a record that breaks a rule or makes a trigger fail."""
        for rule in self.validations:
            if rule.sobject != sobject or not rule.broken(record):
                continue
            code = "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY" if rule.trigger else "FIELD_CUSTOM_VALIDATION_EXCEPTION"
            raise refused(code, rule.message, (rule.field,) if rule.field else ())


def refused(code: str, message: str, fields: tuple[str, ...] = ()) -> SalesforceRefusalError:
    """Return the refusal of a record: status 400, with `fields` even if there are none, as Salesforce does for records."""
    return SalesforceRefusalError(_BAD_REQUEST, code, message, fields)
