"""Classification of the domain's columns (see ledger/audit/columns.py). A column without a class fails a test.

Class of a new table or column: `chained` if it records a decision, a price, a sending or a proof; `derived` if a verification can
rebuild it; `operational` for caches, schedules and rows that retention deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.audit.columns import LEDGER_TABLES, TableColumns

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUOTE: Final = "{row}.quote_id"
_OF_QUOTE: Final = "quote_id = :chain"

TABLES: Final[Mapping[str, TableColumns]] = {
    **LEDGER_TABLES,
    "quote_numbers": TableColumns("year", derived="year last"),
    "quotes": TableColumns(
        "quote_id",
        chain=_QUOTE,
        of_chain=_OF_QUOTE,
        chained=(
            "quote_id version state account requester requester_name team_id channel created_at valid_until created_by_operation "
            "asked_hash recorded_at root_effect_key thread_ts updated_at"
        ),
    ),
    "one_time_tokens": TableColumns("token", chain=_QUOTE, of_chain=_OF_QUOTE, chained="token quote_id used_at"),
    "quote_versions": TableColumns(
        "quote_id version",
        chain=_QUOTE,
        of_chain=_OF_QUOTE,
        chained="quote_id version ruleset pricing_hash created_at",
        derived="pricing",
        hashes=(("pricing_hash", "pricing"),),
        page=100,
        told="pricing_hash",
    ),
    "approvals": TableColumns(
        "approval_id",
        chain=_QUOTE,
        of_chain=_OF_QUOTE,
        chained=(
            "approval_id quote_id quote_version required_roles reasons state requested_by requested_at decided_by decided_role "
            "decided_at decision_reason earlier"
        ),
    ),
    "approval_slots": TableColumns(
        "approval_id slot",
        chain="(SELECT quote_id FROM approvals WHERE approval_id = {row}.approval_id)",
        of_chain="approval_id IN (SELECT approval_id FROM approvals WHERE quote_id = :chain)",
        chained=(
            "approval_id slot stage roles asked assignee dual_control state opened_at remind_at escalate_at expires_at reminded_at "
            "escalated_at decided_by decided_role on_behalf_of decided_at reason"
        ),
    ),
    "approval_policies": TableColumns(
        "approval_id",
        chain="(SELECT quote_id FROM approvals WHERE approval_id = {row}.approval_id)",
        of_chain="approval_id IN (SELECT approval_id FROM approvals WHERE quote_id = :chain)",
        chained="approval_id policy ruleset_hash remind_ms escalate_ms expire_ms",
    ),
    "approval_copies": TableColumns(
        "approval_id user_id", operational="approval_id user_id post_key channel ts added_at lost drawings"
    ),
    "approval_calendars": TableColumns(
        "approval_id",
        chain="(SELECT quote_id FROM approvals WHERE approval_id = {row}.approval_id)",
        of_chain="approval_id IN (SELECT approval_id FROM approvals WHERE quote_id = :chain)",
        chained="approval_id calendar",
    ),
    "approval_roles": TableColumns(
        "approval_id",
        chain="(SELECT quote_id FROM approvals WHERE approval_id = {row}.approval_id)",
        of_chain="approval_id IN (SELECT approval_id FROM approvals WHERE quote_id = :chain)",
        chained="approval_id roles",
    ),
    "approval_notes": TableColumns(
        "approval_id",
        chain="(SELECT quote_id FROM approvals WHERE approval_id = {row}.approval_id)",
        of_chain="approval_id IN (SELECT approval_id FROM approvals WHERE quote_id = :chain)",
        chained="approval_id note",
    ),
    "delegations": TableColumns(
        "operation_key",
        chain="'delegation:' || {row}.absent",
        chained="operation_key team_id absent delegate since until asked_at reason",
    ),
    "superseded_versions": TableColumns(
        "quote_id version",
        chain=_QUOTE,
        of_chain=_OF_QUOTE,
        chained="quote_id version state valid_until superseded_by superseded_at",
    ),
    "quote_sendings": TableColumns(
        "quote_id version", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id version recipient sent_by sent_at"
    ),
    "quote_closings": TableColumns(
        "quote_id", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id version state reason closed_by closed_at"
    ),
    "quote_freezings": TableColumns(
        "quote_id version", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id version frozen_by frozen_at"
    ),
    "quote_opportunities": TableColumns("quote_id", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id record_id account_id"),
    "inherited_makers": TableColumns("quote_id maker", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id maker"),
    "replaced_roots": TableColumns(
        "quote_id dead_ts", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id dead_ts post_key replaced_at"
    ),
    "quote_places": TableColumns("quote_id", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id channel moved_at"),
    "artefacts": TableColumns(
        "render_key sha256", chain=_QUOTE, of_chain=_OF_QUOTE, chained="render_key sha256 quote_id version pages rendered_at"
    ),
    "document_sets": TableColumns(
        "sha256", chain="'system'", chained="sha256 stored_at", derived="content", hashes=(("sha256", "content"),), page=1
    ),
    "document_pins": TableColumns(
        "quote_id version", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id version sha256 pinned_at"
    ),
    "document_contacts": TableColumns("quote_id version", chain=_QUOTE, of_chain=_OF_QUOTE, chained="quote_id version email phone"),
    "rulesets": TableColumns(
        "version",
        chain="'system'",
        chained=(
            "version hash label products books state origin note imported_by imported_at activated_by activated_at retired_at"
        ),
        derived="document",
        hashes=(("hash", "document"),),
        page=1,
    ),
    "ruleset_requests": TableColumns(
        "request_id", chain="'system'", chained="request_id fingerprint answer requested_by requested_at"
    ),
    "crm_conflicts": TableColumns(
        "id",
        chain=_QUOTE,
        of_chain=_OF_QUOTE,
        chained="id quote_id version record_id field ours theirs found_at state decided_by decided_at reason",
        operational="what",  # the field tells as much; older rows keep their hashes
    ),
    "schedule_marks": TableColumns("job name", operational="job name anchor slot outcome marked_at"),
    "people": TableColumns("team_id user_id", operational="team_id user_id kind fetched_at name zone email phone"),
    "digests": TableColumns("team_id user_id", operational="team_id user_id due_at"),
    "homes": TableColumns("team_id user_id", operational="team_id user_id section page shown_at"),
    "letter_cards": TableColumns(
        "reference", operational="reference channel post_key ts announced_at decision decided_by decided_at reason cycle class"
    ),
    "ops_cards": TableColumns(
        "subject",
        operational=("subject team_id channel post_key ts revision shown opened_at refreshed_at closed_at decided_by decided_at"),
    ),
    "readings": TableColumns(
        "operation_key", operational="operation_key team_id user_id asked_at answered_by answered_at read_by proposal"
    ),
    "model_calls": TableColumns(
        "id", operational="id effect_key correlation_id model outcome request_sha256 answer_sha256 request answer called_at"
    ),
    "quote_advice": TableColumns("quote_id version", operational="quote_id version basis advice"),
    "quote_summaries": TableColumns("quote_id version", operational="quote_id version summary written_at"),
    "crm_records": TableColumns("record_id", operational="record_id quote_id"),
    "crm_cursors": TableColumns("object", operational="object modstamp read_at"),
    "crm_mirror": TableColumns("kind record_id", operational="kind record_id name name_key account_id facts"),
    "crm_mirror_cursors": TableColumns("kind", operational="kind read_as modstamp record_id more pages read_at whole_at"),
}
