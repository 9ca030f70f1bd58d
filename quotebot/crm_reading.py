"""Whether Salesforce may be read now by work that nobody waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.failures import AdapterError, Failure

if TYPE_CHECKING:
    from adapters.salesforce import Salesforce


def readable(salesforce: Salesforce | None) -> Salesforce:
    """Return what to read with. Raises AdapterError: there is none, or the rest of the org's daily calls is kept for quotes."""
    if salesforce is None:
        raise AdapterError(Failure.AUTH, "not_configured", "Salesforce is not configured: it cannot be read.")
    spare = salesforce.background_wait_seconds()
    if spare is not None:
        message = "Most of the org's daily allowance of calls is used: what is left is kept for quotes."
        raise AdapterError(Failure.THROTTLED, "allowance_reserved", message, retry_after_seconds=spare)
    return salesforce
