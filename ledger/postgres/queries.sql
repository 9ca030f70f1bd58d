-- Statements of the ledger that PostgreSQL takes in another form: each replaces the one of the same name in ledger/queries.sql.

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

-- ------------------------------------------------------------------------------------------------------------- locks
-- Several processes write at the same time, and each statement sees what is committed when it begins. These lock the rows on which a
-- decision depends.

-- name: effect_by_key
-- Whoever reads the parent of a new effect waits for the end of its settlement, and a settlement for the new effect.
SELECT * FROM effects WHERE effect_key = :effect_key FOR SHARE;

-- name: operation_to_change
-- What a person changes by hand is not claimed, settled or changed by another person meanwhile.
SELECT * FROM operations WHERE id = :id FOR NO KEY UPDATE;

-- name: effect_to_change
SELECT * FROM effects WHERE id = :id FOR NO KEY UPDATE;

-- name: lock_job
SELECT :name AS name FROM pg_advisory_xact_lock(hashtextextended(:name, 0));

-- name: forget_writers
-- Only those of the command line, each of which has a name of its own; the server cuts the name of a session.
DELETE FROM writers AS w
WHERE w.writer LIKE 'cli/%' AND w.taken_at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - :keep
  AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity AS a WHERE a.application_name = left('quotebot ' || w.writer, 63))
RETURNING w.writer;

-- name: lock_gates
SELECT name, state, cause, reason, held_by, held_at, until_at, resumed_at, failures, failing FROM gates
WHERE name IN (:class, :family) ORDER BY name FOR UPDATE;

-- name: due_operations
-- The walk reads one due row after the other from the index, and no more of them than the claim takes, whatever the statistics say. A
-- subquery with LIMIT is never turned into a join, and each row is looked up by the key of the walk's own index. A row that another
-- process is claiming is passed over, and holds its lane.
WITH RECURSIVE due (next_attempt_at, id) AS (
  (SELECT next_attempt_at, id FROM operations WHERE next_attempt_at <= :now ORDER BY next_attempt_at, id LIMIT 1)
  UNION ALL
  SELECT following.next_attempt_at, following.id FROM due CROSS JOIN LATERAL (
    SELECT o.next_attempt_at, o.id FROM operations AS o
    WHERE o.next_attempt_at <= :now AND (o.next_attempt_at, o.id) > (due.next_attempt_at, due.id)
    ORDER BY o.next_attempt_at, o.id LIMIT 1) AS following
)
SELECT taken.id, taken.fence FROM due CROSS JOIN LATERAL (
  SELECT o.id, o.fence FROM operations AS o
  WHERE o.next_attempt_at = due.next_attempt_at AND o.id = due.id AND o.claims < :suspect_claims
    AND (:only::text IS NULL OR instr(:only, ' ' || o.source || ' ') > 0
    OR instr(:only, ' ' || o.action_kind || '/' || json_extract(o.payload, '$.v') || ' ') > 0)
    AND (o.aggregate_id = 'new' OR o.id = (
      SELECT head.id FROM operations AS head
      WHERE head.lane = o.lane AND head.aggregate_id <> 'new' AND head.finished_at IS NULL ORDER BY head.id LIMIT 1)
      AND (SELECT runner.id FROM operations AS runner WHERE runner.lane = o.lane AND runner.state = 'in_progress' LIMIT 1) IS NULL)
  FOR UPDATE OF o SKIP LOCKED) AS taken
LIMIT :limit;

-- name: due_suspect_operation
SELECT o.id, o.fence FROM operations AS o
WHERE o.id = :id AND o.next_attempt_at <= :now AND o.claims >= :suspect_claims
  AND (:only::text IS NULL OR instr(:only, ' ' || o.source || ' ') > 0
    OR instr(:only, ' ' || o.action_kind || '/' || json_extract(o.payload, '$.v') || ' ') > 0)
  AND (o.aggregate_id = 'new' OR o.id = (
    SELECT head.id FROM operations AS head
    WHERE head.lane = o.lane AND head.aggregate_id <> 'new' AND head.finished_at IS NULL ORDER BY head.id LIMIT 1))
FOR UPDATE OF o SKIP LOCKED;

-- name: due_effects
-- As due_operations.
WITH RECURSIVE due (next_attempt_at, id) AS (
  (SELECT next_attempt_at, id FROM effects WHERE class = :class AND next_attempt_at <= :now ORDER BY next_attempt_at, id LIMIT 1)
  UNION ALL
  SELECT following.next_attempt_at, following.id FROM due CROSS JOIN LATERAL (
    SELECT e.next_attempt_at, e.id FROM effects AS e
    WHERE e.class = :class AND e.next_attempt_at <= :now AND (e.next_attempt_at, e.id) > (due.next_attempt_at, due.id)
    ORDER BY e.next_attempt_at, e.id LIMIT 1) AS following
)
SELECT taken.*, o.operation_key, o.source, o.source_request_id, o.action_kind, o.actor, o.actor_type, o.team_id,
  o.aggregate_id AS about, coalesce(o.aggregate_version, o.pinned_version) AS version
FROM due CROSS JOIN LATERAL (
  SELECT e.* FROM effects AS e
  WHERE e.class = :class AND e.next_attempt_at = due.next_attempt_at AND e.id = due.id AND e.claims < :suspect_claims
    AND e.id = (
      SELECT head.id FROM effects AS head
      WHERE head.class = e.class AND head.target = e.target AND head.finished_at IS NULL
        AND (head.not_before IS NULL OR head.not_before <= :now OR head.next_attempt_at <= :now)
      ORDER BY head.id LIMIT 1)
    AND (
      SELECT busy.id FROM effects AS busy WHERE busy.class = e.class AND busy.target = e.target AND busy.state = 'in_flight' LIMIT 1)
      IS NULL
  FOR UPDATE OF e SKIP LOCKED) AS taken
CROSS JOIN LATERAL (SELECT * FROM operations WHERE id = taken.operation_id LIMIT 1) AS o
LIMIT :limit;

-- name: due_suspect_effect
SELECT e.*, o.operation_key, o.source, o.source_request_id, o.action_kind, o.actor, o.actor_type, o.team_id,
  o.aggregate_id AS about, coalesce(o.aggregate_version, o.pinned_version) AS version
FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.id = :id AND e.next_attempt_at <= :now AND e.claims >= :suspect_claims
  AND e.id = (
    SELECT head.id FROM effects AS head
    WHERE head.class = e.class AND head.target = e.target AND head.finished_at IS NULL
      AND (head.not_before IS NULL OR head.not_before <= :now OR head.next_attempt_at <= :now)
    ORDER BY head.id LIMIT 1)
FOR UPDATE OF e SKIP LOCKED;

-- name: end_dead_epoch
-- The keys are those of ledger/postgres/replicas.py.
UPDATE epochs SET ended_at = :now, end_reason = 'died'
WHERE epoch = :epoch AND ended_at IS NULL AND NOT EXISTS (
  SELECT 1 FROM pg_catalog.pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 6451060 AND l.objsubid = 2
    AND l.objid::bigint = hashtext(epochs.replica)::bigint & 4294967295
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()))
RETURNING replica;

-- name: abandoned_operations
-- A late worker that is just settling a row finishes first, and the row is then in another state.
SELECT * FROM operations
WHERE state = 'in_progress' AND epoch NOT IN (SELECT epoch FROM epochs WHERE ended_at IS NULL)
ORDER BY id FOR NO KEY UPDATE;

-- name: lapsed_operations
-- A row that its owner is just settling or renewing is passed over.
SELECT * FROM operations WHERE state = 'in_progress' AND epoch <> :epoch AND lease_until < :now ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;

-- name: abandoned_effects
SELECT * FROM effects
WHERE state = 'in_flight' AND epoch NOT IN (SELECT epoch FROM epochs WHERE ended_at IS NULL)
ORDER BY id FOR NO KEY UPDATE;

-- name: lapsed_effects
SELECT * FROM effects WHERE state = 'in_flight' AND epoch <> :epoch AND lease_until < :now ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;
