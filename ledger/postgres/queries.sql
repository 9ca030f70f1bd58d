-- Statements of the ledger whose text PostgreSQL cannot take: each replaces the one of the same name in ledger/queries.sql.

-- name: see_delivery_again
UPDATE deliveries SET seen = seen + 1, last_seen_at = :now, transport = (transport::jsonb || :retry::jsonb)::text WHERE id = :id;

-- name: due_classes
SELECT c.value AS class FROM json_array_elements_text(:classes::json) AS c (value)
WHERE EXISTS (SELECT 1 FROM effects AS e WHERE e.class = c.value AND e.next_attempt_at <= :now);

-- name: next_effect_due_at
SELECT min((SELECT min(e.next_attempt_at) FROM effects AS e WHERE e.class = c.value AND e.next_attempt_at > :now)) AS due
FROM json_array_elements_text(:classes::json) AS c (value);

-- name: tables_there
SELECT tablename AS name FROM pg_catalog.pg_tables WHERE schemaname = current_schema();

-- name: next_audit_ids
-- Rollbacks and failovers leave gaps, and transactions commit out of the order of their ids: schema version 2.
SELECT nextval('audit_events_id_seq') AS id, 2 AS schema_version FROM generate_series(1, :count);

-- name: audit_head
-- Locked until the end of the transaction, also where there is no such chain yet: one transaction at a time adds to a chain.
SELECT event_id, seq, mac FROM lock_audit_head(:aggregate_id);
