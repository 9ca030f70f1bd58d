"""Which opportunity of the CRM a quote is for, as somebody chose it in the form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

RECORD_ID: Final = re.compile(r"[A-Za-z0-9]{15}(?:[A-Za-z0-9]{3})?")


@dataclass(frozen=True, slots=True)
class ChosenOpportunity:
    """Ids of Salesforce (15 or 18 characters): the opportunity, and the account that it belonged to when it was chosen."""

    record_id: str
    account_id: str
