-- Every statement of the ledger, named. A transition's arrow stands in the comment above it; a test holds them to machine.py.

-- name: insert_epoch
INSERT INTO epochs (role, pid, build, started_at) VALUES (:role, :pid, :build, :now) RETURNING epoch;

-- name: end_other_epochs
UPDATE epochs SET ended_at = :now, end_reason = 'died' WHERE ended_at IS NULL AND epoch <> :epoch;

-- name: end_epoch
UPDATE epochs SET ended_at = :now, end_reason = :reason WHERE epoch = :epoch AND ended_at IS NULL;

-- ---------------------------------------------------------------------------------------------------------- deliveries

-- name: find_delivery
SELECT * FROM deliveries
WHERE source = :source AND source_request_id = :source_request_id AND action_kind = :action_kind;

-- name: insert_delivery
INSERT INTO deliveries (source, source_request_id, action_kind, operation_id, fingerprint, transport, received_at, last_seen_at)
VALUES (:source, :source_request_id, :action_kind, :operation_id, :fingerprint, :transport, :now, :now);

-- name: see_delivery_again
UPDATE deliveries SET seen = seen + 1, last_seen_at = :now WHERE id = :id;

-- ---------------------------------------------------------------------------------------------------------- operations

-- name: insert_operation
-- reserved
INSERT INTO operations (
  operation_key, source, source_request_id, action_kind, aggregate_id, aggregate_version, payload_hash, payload,
  correlation_id, actor, actor_type, team_id, received_at, next_attempt_at, created_at, updated_at)
VALUES (
  :operation_key, :source, :source_request_id, :action_kind, :aggregate_id, :aggregate_version, :payload_hash, :payload,
  :correlation_id, :actor, :actor_type, :team_id, :received_at, :now, :now, :now)
ON CONFLICT (operation_key) DO NOTHING
RETURNING *;

-- name: operation_by_key
SELECT * FROM operations WHERE operation_key = :operation_key;

-- name: operation_by_id
SELECT * FROM operations WHERE id = :id;

-- name: next_due_operation
SELECT o.* FROM operations AS o
WHERE o.next_attempt_at <= :now
  AND (o.aggregate_id = 'new' OR NOT EXISTS (
    SELECT 1 FROM operations AS older
    WHERE older.aggregate_id = o.aggregate_id AND older.id < o.id
      AND older.state IN ('reserved', 'in_progress', 'failed_retryable'))
    AND NOT EXISTS ( -- a replayed operation is older than the one that runs
      SELECT 1 FROM operations AS runner
      WHERE runner.aggregate_id = o.aggregate_id AND runner.aggregate_id <> 'new' AND runner.state = 'in_progress'))
ORDER BY o.next_attempt_at, o.id
LIMIT 1;

-- name: claim_operation
-- reserved -> in_progress
-- failed_retryable -> in_progress
UPDATE operations
SET state = 'in_progress', epoch = :epoch, lease_until = :lease_until, fence = fence + 1, claims = claims + 1,
  next_attempt_at = NULL, updated_at = :now
WHERE id = :id AND state IN ('reserved', 'failed_retryable') AND fence = :fence
RETURNING *;

-- name: complete_operation
-- in_progress -> completed
UPDATE operations
SET state = 'completed', outcome = :outcome, response = :response, epoch = NULL, lease_until = NULL, claims = 0,
  attempts = attempts + 1, last_attempt_at = :now, finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING *;

-- name: retry_operation
-- in_progress -> failed_retryable
UPDATE operations
SET state = 'failed_retryable', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1,
  next_attempt_at = :next_attempt_at, category = :category, last_error = :last_error,
  first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING *;

-- name: bury_operation
-- in_progress -> failed_terminal
UPDATE operations
SET state = 'failed_terminal', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1,
  category = :category, last_error = :last_error, response = :response,
  first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING *;

-- name: operations_of_dead_epochs
SELECT * FROM operations WHERE state = 'in_progress' AND epoch < :epoch ORDER BY epoch, id;

-- name: release_operation
-- in_progress -> reserved
UPDATE operations
SET state = 'reserved', epoch = NULL, lease_until = NULL, next_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING *;

-- name: replay_operation
-- failed_terminal -> reserved
UPDATE operations
SET state = 'reserved', cycle = cycle + 1, claims = 0, attempts = 0, category = NULL, last_error = NULL, first_failed_at = NULL,
  response = NULL, failure_history = :failure_history, next_attempt_at = :now, finished_at = NULL, updated_at = :now
WHERE id = :id AND state = 'failed_terminal' AND cycle = :cycle
RETURNING *;

-- name: next_operation_due_at
SELECT min(next_attempt_at) AS due FROM operations WHERE next_attempt_at > :now;

-- ------------------------------------------------------------------------------------------------------------- effects

-- name: insert_effect
-- pending
INSERT INTO effects (
  effect_key, operation_id, parent_id, class, semantics, target, aggregate_id, correlation_id, after_id, supersede_key, payload,
  next_attempt_at, not_before, expires_at, created_at, updated_at)
VALUES (
  :effect_key, :operation_id, :parent_id, :class, :semantics, :target, :aggregate_id, :correlation_id, :after_id, :supersede_key,
  :payload, coalesce(:not_before, :now), :not_before, :expires_at, :now, :now)
RETURNING *;

-- name: effect_by_key
SELECT * FROM effects WHERE effect_key = :effect_key;

-- name: effect_by_id
SELECT * FROM effects WHERE id = :id;

-- name: effects_of_aggregate
SELECT * FROM effects WHERE aggregate_id = :aggregate_id ORDER BY id;

-- name: supersede_pending
-- pending -> superseded
UPDATE effects
SET state = 'superseded', next_attempt_at = NULL, finished_at = :now, updated_at = :now
WHERE supersede_key = :supersede_key AND state = 'pending' AND id <> :keep_id
RETURNING *;

-- name: due_effects
SELECT e.* FROM effects AS e
WHERE e.class = :class AND e.next_attempt_at <= :now
  AND NOT EXISTS (SELECT 1 FROM pauses AS p WHERE p.class = e.class AND (p.until_at IS NULL OR p.until_at > :now))
  AND NOT EXISTS (
    SELECT 1 FROM effects AS older
    WHERE older.class = e.class AND older.target = e.target AND older.id < e.id
      AND older.state IN ('pending', 'in_flight', 'uncertain')
      AND (older.not_before IS NULL OR older.not_before <= :now))
  AND NOT EXISTS ( -- a replayed effect is older than the one that is under way
    SELECT 1 FROM effects AS busy WHERE busy.class = e.class AND busy.target = e.target AND busy.state = 'in_flight')
  AND (e.after_id IS NULL OR EXISTS (SELECT 1 FROM effects AS parent WHERE parent.id = e.after_id AND parent.state = 'delivered'))
ORDER BY e.next_attempt_at, e.id
LIMIT :limit;

-- name: claim_effect
-- pending -> in_flight
-- uncertain -> in_flight
UPDATE effects
SET state = 'in_flight', epoch = :epoch, lease_until = :lease_until, fence = fence + 1, claims = claims + 1,
  next_attempt_at = NULL, updated_at = :now
WHERE id = :id AND state IN ('pending', 'uncertain') AND fence = :fence
RETURNING *;

-- name: record_step
UPDATE effects SET steps = :steps, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: deliver_effect
-- in_flight -> delivered
UPDATE effects
SET state = 'delivered', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1, uncertain_since = NULL,
  external_ref = :external_ref, result = :result, last_attempt_at = :now, finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: retry_effect
-- in_flight -> pending
UPDATE effects
SET state = 'pending', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + :spent, uncertain_since = NULL,
  maybe_sent = max(maybe_sent, :maybe_sent), next_attempt_at = :next_attempt_at, category = :category, last_error = :last_error,
  first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: doubt_effect
-- in_flight -> uncertain
UPDATE effects
SET state = 'uncertain', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + :spent, maybe_sent = 1,
  uncertain_since = coalesce(uncertain_since, :now), next_attempt_at = :next_attempt_at, category = :category,
  last_error = :last_error, first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: bury_effect
-- in_flight -> failed
UPDATE effects
SET state = 'failed', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1,
  maybe_sent = max(maybe_sent, :maybe_sent), category = :category, last_error = :last_error,
  first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: drop_effect
-- in_flight -> superseded
UPDATE effects
SET state = 'superseded', epoch = NULL, lease_until = NULL, claims = 0, category = :category, last_error = :last_error,
  finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: effects_of_dead_epochs
SELECT * FROM effects WHERE state = 'in_flight' AND epoch < :epoch ORDER BY epoch, id;

-- name: replay_effect
-- failed -> pending
UPDATE effects
SET state = 'pending', cycle = cycle + 1, claims = 0, attempts = 0, category = NULL, last_error = NULL, first_failed_at = NULL,
  failure_history = :failure_history, next_attempt_at = :now, finished_at = NULL, updated_at = :now
WHERE id = :id AND state = 'failed' AND cycle = :cycle
RETURNING *;

-- name: replay_effect_in_doubt
-- failed -> uncertain
UPDATE effects
SET state = 'uncertain', cycle = cycle + 1, claims = 0, attempts = 0, category = NULL, last_error = NULL, first_failed_at = NULL,
  failure_history = :failure_history, uncertain_since = coalesce(uncertain_since, last_attempt_at, :now), next_attempt_at = :now,
  finished_at = NULL, updated_at = :now
WHERE id = :id AND state = 'failed' AND cycle = :cycle
RETURNING *;

-- name: next_effect_due_at
SELECT min(next_attempt_at) AS due FROM effects WHERE next_attempt_at > :now;

-- ------------------------------------------------------------------------------------------------------------ attempts

-- name: start_attempt
INSERT INTO attempts (operation_id, effect_id, cycle, fence, epoch, kind, started_at)
VALUES (:operation_id, :effect_id, :cycle, :fence, :epoch, :kind, :now);

-- name: end_effect_attempt
UPDATE attempts
SET ended_at = :now, outcome = :outcome, http_status = :http_status, category = :category, error = :error,
  retry_after_ms = :retry_after_ms, delay_ms = :delay_ms
WHERE effect_id = :id AND fence = :fence;

-- name: end_operation_attempt
UPDATE attempts
SET ended_at = :now, outcome = :outcome, category = :category, error = :error, delay_ms = :delay_ms
WHERE operation_id = :id AND fence = :fence;

-- -------------------------------------------------------------------------------------------------------------- pauses

-- name: pause_class
INSERT INTO pauses (class, reason, paused_at, paused_by, until_at) VALUES (:class, :reason, :now, :paused_by, :until_at)
ON CONFLICT (class) DO UPDATE
SET reason = excluded.reason, until_at = CASE
  WHEN pauses.until_at IS NULL OR excluded.until_at IS NULL THEN NULL ELSE max(pauses.until_at, excluded.until_at) END
RETURNING *;

-- name: resume_class
DELETE FROM pauses WHERE class = :class RETURNING *;

-- name: forget_past_pauses
DELETE FROM pauses WHERE until_at <= :now;

-- name: list_pauses
SELECT * FROM pauses ORDER BY class;

-- name: next_pause_end
SELECT min(until_at) AS due FROM pauses WHERE until_at IS NOT NULL AND until_at > :now;

-- --------------------------------------------------------------------------------------------------------------- audit

-- name: insert_audit
INSERT INTO audit_events (
  at, event_type, operation_key, effect_id, correlation_id, aggregate_id, actor, actor_type, retry_count, failure_category,
  recovery_action, before, after)
VALUES (
  :at, :event_type, :operation_key, :effect_id, :correlation_id, :aggregate_id, :actor, :actor_type, :retry_count,
  :failure_category, :recovery_action, :before, :after);

-- -------------------------------------------------------------------------------------------------------- dead letters

-- name: list_dead_letters
SELECT * FROM dead_letters
WHERE (:status IS NULL OR status = :status)
  AND (:class IS NULL OR class = :class)
  AND (:category IS NULL OR category = :category)
  AND (:aggregate_id IS NULL OR aggregate_id = :aggregate_id)
  AND (:since IS NULL OR updated_at >= :since)
ORDER BY updated_at, id
LIMIT :limit;

-- name: count_children
SELECT count(*) AS children FROM effects WHERE operation_id = :operation_id AND parent_id = :parent_id;

-- name: dead_letter
SELECT * FROM dead_letters WHERE kind = :kind AND id = :id;

-- name: keep_claims
UPDATE effects SET claims = :claims WHERE id = :id;

-- name: meta
SELECT value FROM meta WHERE name = :name;

-- name: operations_of_epoch
SELECT * FROM operations WHERE state = 'in_progress' AND epoch = :epoch ORDER BY id;

-- name: effects_of_epoch
SELECT * FROM effects WHERE state = 'in_flight' AND epoch = :epoch ORDER BY id;

-- name: forget_operation_claim
UPDATE operations SET claims = claims - 1 WHERE id = :id;

-- name: forget_steps
UPDATE effects SET steps = '{}', updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: lift_own_pauses
DELETE FROM pauses WHERE paused_by = :paused_by AND until_at IS NULL RETURNING *;
