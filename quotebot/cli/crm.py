"""`quotebot crm`: what is written to Salesforce, and whether the org agrees with it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from quotebot.cli import exits
from quotebot.cli.config import assignments
from quotebot.cli.tables import print_table

if TYPE_CHECKING:
    from adapters.salesforce_describe import Finding
    from adapters.salesforce_mapping import CrmMapping

app = App(name="crm", help="See whether Salesforce takes what is written to it.")


@app.command
async def check(
    *,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    json_output: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Log in and compare the mapping with the org: every object and field is there, fits, and may be written by our login.

    Nothing is written. Exit status 0: they agree. 78: they do not, or no Salesforce is configured, or the login is refused.
    69: Salesforce could not be asked.

    Parameters
    ----------
    set_
        NAME=VALUE: a setting that is stronger than every file and the environment; may be given several times.
    json_output
        Print JSON.
    """
    from adapters.failures import AdapterError, Failure  # noqa: PLC0415 -- see root.py
    from quotebot.doctor.others import crm_findings  # noqa: PLC0415 -- see root.py
    from quotebot.settings import load_settings  # noqa: PLC0415 -- see root.py

    try:
        found = await crm_findings(load_settings(assignments(set_)))
    except AdapterError as error:
        exits.complain(str(error))
        return exits.CONFIG if error.failure is Failure.AUTH else exits.UNAVAILABLE
    if found is None:
        exits.complain("Salesforce is not configured, so its writes wait, paused. How to connect it: docs/salesforce.md")
        return exits.CONFIG
    if json_output:
        print(json.dumps({"schema_version": 1, "agrees": not found, "findings": [asdict(each) for each in found]}, indent=2))
    else:
        _tell(found)
    return exits.CONFIG if found else exits.OK


@app.command
def fields(*, json_output: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Print which field of the org gets what: the mapping in force.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    from quotebot.outside import crm_mapping  # noqa: PLC0415 -- see root.py
    from quotebot.settings import load_settings  # noqa: PLC0415 -- see root.py

    rows = _rows(crm_mapping(load_settings()))
    if json_output:
        written = [dict(zip(("object", "field", "holds", "written"), row, strict=True)) for row in rows]
        print(json.dumps({"schema_version": 1, "fields": written}, indent=2))
    else:
        print_table(("OBJECT", "FIELD", "HOLDS", "WRITTEN"), rows)
    return exits.OK


def _rows(mapping: CrmMapping) -> list[tuple[str, str, str, str]]:
    once, status = "once, with the record", mapping.status
    words = ", ".join(f"{name}: {word}" for name, word in status.words.items())
    return [
        (mapping.quote, mapping.quote_key, "our key", once),
        *((mapping.quote, field, held, once) for field, held in mapping.quote_fields.items()),
        (mapping.quote, status.field, f"status ({words})", f"as the quote goes on ({status.owner})"),
        (mapping.line, mapping.line_key, "our key", once),
        (mapping.line, mapping.line_parent, "its quote", once),
        *((mapping.line, field, held, once) for field, held in mapping.line_fields.items()),
        (mapping.document, mapping.document_key, "our key", "once, after the PDF was made"),
        (mapping.document, mapping.document_parent, "its quote", "once, after the PDF was made"),
        (mapping.lookup, mapping.lookup_name, "an account's name", "never: it is read"),
    ]


def _tell(found: tuple[Finding, ...]) -> None:
    for each in found:
        print(f"{each.place}: {each.what}\n  Why:  {each.why}\n  Fix:  {each.fix}\n")
    print(
        f"{len(found)} to mend, then run it again." if found else "The org has everything the mapping writes, and lets us write it."
    )
