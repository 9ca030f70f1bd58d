"""The active ruleset: exactly one is active, as the audit records, and every price names a ruleset that is kept unchanged."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from faults.checks.evidence import loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.checks.evidence import Facts


def as_audited(facts: Facts) -> Iterator[str]:
    """One version is active, and each version is in the state that the audit left it in."""
    found = {row["version"]: row["state"] for row in facts.rulesets}
    told: dict[int, str] = {}
    for event in facts.events:
        after = loaded(event["after"]) if event["event_type"].startswith("ruleset.") else {}
        if event["event_type"] == "ruleset.activated":
            told |= {version: "retired" for version, state in told.items() if state == "active"}
        if after:
            told[after["version"]] = _LEFT[event["event_type"]]
    for version in sorted(found.keys() | told.keys()):
        if found.get(version) != told.get(version):
            yield f"version {version} of the ruleset is {found.get(version)}; the audit ends with {told.get(version)}"
    if found and list(found.values()).count("active") != 1:
        yield f"{list(found.values()).count('active')} versions of the ruleset are active"


def kept(facts: Facts) -> Iterator[str]:
    """Each version has its hash, and each price was made by one of the versions."""
    hashes = set()
    for row in facts.rulesets:
        hashes.add(row["hash"])
        if hashlib.sha256(row["document"].encode()).hexdigest() != row["hash"]:
            yield f"version {row['version']} of the ruleset does not have its hash"
    for version in facts.versions:
        priced_by = json.loads(version["pricing"]).get("ruleset_hash")
        if hashes and priced_by and priced_by not in hashes:
            yield f"{version['quote_id']} v{version['version']} was priced by a ruleset that is not kept"


_LEFT = {"ruleset.imported": "draft", "ruleset.activated": "active", "ruleset.discarded": "discarded"}
