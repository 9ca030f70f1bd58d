"""Classification of the columns of every table: bound by the audit, rebuilt and compared, or covered only by a backup's manifest.

`chained`: the transaction that writes the row puts a digest of these columns into an audit event (ledger/audit/history.py).

`derived`: the verification rebuilds the value from chained columns, from the audit or from the build, and compares.

`operational`: the manifest of a backup authenticates the value; in a live ledger no business data depends on it.

A chained column that a later migration adds must be NULL in existing rows: a digest leaves NULL out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# SQL templates for each bound table; the placeholders are names of the classification.
_STATEMENTS: Final = {
    "bound_row": "SELECT {bound} FROM {table} WHERE ({keys}) = ({values})",
    "bound_first": "SELECT * FROM {table} ORDER BY {keys} LIMIT :limit",
    "bound_after": "SELECT * FROM {table} WHERE ({keys}) > ({values}) ORDER BY {keys} LIMIT :limit",
    "chained_first": "SELECT {chain} AS chain, {keys} FROM {table} ORDER BY {keys} LIMIT :limit",
    "chained_after": "SELECT {chain} AS chain, {keys} FROM {table} WHERE ({keys}) > ({values}) ORDER BY {keys} LIMIT :limit",
    "bound_of_chain": "SELECT {bound} FROM {table} WHERE {of_chain} ORDER BY {keys}",
}


@dataclass(frozen=True)
class TableColumns:
    """Columns of one table by class, as names separated by spaces.

    `chain` is the SQL expression of the aggregate in whose audit chain a row is bound; `{row}` stands for the row. `of_chain` is
    the SQL condition that finds the rows of one aggregate, for tables whose rows are exported in proof bundles. `hashes` names
    pairs of a chained column and the derived text column whose SHA-256 it holds. `page` is the number of rows a verification reads
    at once. `told` names columns whose values the event contains in addition to the digest.
    """

    key: str
    chained: str = ""
    derived: str = ""
    operational: str = ""
    chain: str = ""
    of_chain: str = ""
    hashes: tuple[tuple[str, str], ...] = ()
    page: int = 500
    told: str = ""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return tuple(self.key.split())

    @cached_property
    def bound(self) -> tuple[str, ...]:
        """The columns covered by a digest."""
        return tuple(self.chained.split())

    @property
    def columns(self) -> list[str]:
        """Every classified column."""
        return [*self.chained.split(), *self.derived.split(), *self.operational.split()]


LEDGER_TABLES: Final[Mapping[str, TableColumns]] = {
    "meta": TableColumns("name", operational="name value"),
    "epochs": TableColumns("epoch", operational="epoch role pid build started_at seen_at ended_at end_reason replica host"),
    "operation_arrows": TableColumns("source target", derived="source target"),
    "effect_arrows": TableColumns("source target", derived="source target"),
    "operations": TableColumns(
        "id",
        derived=(
            "operation_key source source_request_id action_kind aggregate_id lane aggregate_version payload_hash payload "
            "correlation_id actor actor_type state outcome"
        ),
        operational=(
            "id pinned_version team_id received_at response next_attempt_at claims attempts fence epoch lease_until claimed_at "
            "cycle ever_failed handler_version replayed_by replaces_id category code last_error first_failed_at last_attempt_at "
            "failure_history created_at updated_at finished_at retain_until"
        ),
    ),
    "deliveries": TableColumns(
        "id",
        operational="id source source_request_id action_kind operation_id fingerprint transport seen received_at last_seen_at",
    ),
    "effects": TableColumns(
        "id",
        derived="effect_key class target payload state",
        operational=(
            "id operation_id parent_id semantics aggregate_id correlation_id after_id supersede_key steps next_attempt_at "
            "not_before expires_at aged_from claims attempts fence epoch lease_until claimed_at uncertain_since maybe_sent cycle "
            "ever_failed handler_version replayed_by category code last_error first_failed_at last_attempt_at failure_history "
            "external_ref result created_at updated_at finished_at lost_from look_first"
        ),
    ),
    "attempts": TableColumns(
        "id",
        operational=(
            "id operation_id effect_id cycle fence epoch kind started_at ended_at outcome http_status category error "
            "retry_after_ms delay_ms"
        ),
    ),
    "gates": TableColumns("name", operational="name state cause reason held_by held_at until_at resumed_at failures failing"),
    "holds": TableColumns("id", operational="id name cause held_at ended_at"),
    "audit_events": TableColumns(
        "id",
        derived=(
            "id at event_type aggregate_id seq previous_id operation_key effect_id correlation_id actor actor_type retry_count "
            "failure_category recovery_action before after schema_version key_id mac"
        ),
    ),
    "audit_heads": TableColumns("aggregate_id", derived="aggregate_id event_id seq mac key_id seal"),
    "audit_anchors": TableColumns("id", derived="id at last_event_id chains heads_sha256 key_id seal"),
    "tombstones": TableColumns("operation_key", operational="operation_key payload_hash state outcome finished_at expires_at"),
    "generations": TableColumns(
        "generation",
        chain="'system'",
        chained="generation started_at backup_made_at backup_sha256 last_operation_id doubt_until started_by",
    ),
    "schema_migrations": TableColumns("component name", derived="component name sha256", operational="applied_at"),
}


def statements(tables: Mapping[str, TableColumns]) -> dict[str, str]:
    """Return the named statements that read the rows of the bound tables: `bound_row_quotes` and so on."""
    made: dict[str, str] = {}
    for name, table in tables.items():
        parts = {
            "table": name,
            "bound": ", ".join(table.bound),
            "keys": ", ".join(table.keys),
            "values": ", ".join(f":{key}" for key in table.keys),
            "chain": table.chain.format(row=name),
            "of_chain": table.of_chain,
        }
        wanted = [kind for kind in _STATEMENTS if table.bound and (table.of_chain or kind != "bound_of_chain")]
        made |= {f"{kind}_{name}": _STATEMENTS[kind].format(**parts) for kind in wanted}
    return made
