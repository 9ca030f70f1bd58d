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
