-- Every statement of the ledger, named. A transition's arrow stands in the comment above it; a test holds them to machine.py.

-- name: insert_epoch
INSERT INTO epochs (role, pid, build, started_at, seen_at, replica, host)
VALUES (:role, :pid, :build, :now, :now, :replica, :host) RETURNING epoch;

-- name: end_other_epochs
UPDATE epochs SET ended_at = :now, end_reason = 'died' WHERE ended_at IS NULL AND epoch <> :epoch RETURNING epoch, started_at;

-- name: end_former_epochs
-- Those of one replica, and of the command line, which executes nothing while a replica holds its lock.
UPDATE epochs SET ended_at = :now, end_reason = 'died'
WHERE ended_at IS NULL AND epoch <> :epoch AND (replica = :replica OR role = 'cli') RETURNING epoch, started_at;

-- name: end_epoch
UPDATE epochs SET ended_at = :now, end_reason = :reason WHERE epoch = :epoch AND ended_at IS NULL;

-- name: end_dead_epoch
-- PostgreSQL asks once more whether its replica holds its lock.
UPDATE epochs SET ended_at = :now, end_reason = 'died' WHERE epoch = :epoch AND ended_at IS NULL RETURNING replica;

-- name: see_epoch
UPDATE epochs SET seen_at = :now WHERE epoch = :epoch AND ended_at IS NULL RETURNING epoch;

-- name: replicas
-- The bots that have not ended, each with the number of rows that it works on.
SELECT e.*, (SELECT count(*) FROM operations AS o WHERE o.state = 'in_progress' AND o.epoch = e.epoch)
  + (SELECT count(*) FROM effects AS f WHERE f.state = 'in_flight' AND f.epoch = e.epoch) AS claims
FROM epochs AS e WHERE e.role = 'bot' AND e.ended_at IS NULL ORDER BY e.replica, e.epoch;

-- name: last_epochs
SELECT * FROM epochs ORDER BY epoch DESC LIMIT :limit;

-- name: last_epochs_of_replica
SELECT * FROM epochs WHERE replica = :replica ORDER BY epoch DESC LIMIT :limit;

-- name: meta
SELECT value FROM meta WHERE name = :name;

-- ---------------------------------------------------------------------------------------------------------- deliveries

-- name: find_delivery
SELECT * FROM deliveries
WHERE source = :source AND source_request_id = :source_request_id AND action_kind = :action_kind;

-- name: insert_delivery
INSERT INTO deliveries (source, source_request_id, action_kind, operation_id, fingerprint, transport, received_at, last_seen_at)
VALUES (:source, :source_request_id, :action_kind, :operation_id, :fingerprint, :transport, :now, :now);

-- name: see_delivery_again
-- Its transport keeps the newest number and reason of the source's retries.
UPDATE deliveries SET seen = seen + 1, last_seen_at = :now, transport = json_patch(transport, :retry) WHERE id = :id;

-- ---------------------------------------------------------------------------------------------------------- operations

-- name: insert_operation
-- reserved
INSERT INTO operations (
  operation_key, source, source_request_id, action_kind, aggregate_id, lane, aggregate_version, pinned_version, payload_hash,
  payload, correlation_id, actor, actor_type, team_id, received_at, replaces_id, next_attempt_at, created_at, updated_at)
VALUES (
  :operation_key, :source, :source_request_id, :action_kind, :aggregate_id, :lane, :aggregate_version, :pinned_version,
  :payload_hash, :payload, :correlation_id, :actor, :actor_type, :team_id, :received_at, :replaces_id, :now, :now, :now)
ON CONFLICT (operation_key) DO NOTHING
RETURNING id;

-- name: operation_by_key
SELECT * FROM operations WHERE operation_key = :operation_key;

-- name: operation_key
SELECT operation_key FROM operations WHERE id = :id;

-- name: operation_by_id
SELECT * FROM operations WHERE id = :id;

-- name: operation_to_change
-- By a person: it stays as it is found until the commit.
SELECT * FROM operations WHERE id = :id;

-- name: due_operations
-- A lane's oldest unfinished command only; a replayed one is older than the one that may be running.
SELECT o.id, o.fence FROM operations AS o
WHERE o.next_attempt_at <= :now AND o.claims < :suspect_claims
  AND (:only IS NULL OR instr(:only, ' ' || o.source || ' ') > 0
    OR instr(:only, ' ' || o.action_kind || '/' || json_extract(o.payload, '$.v') || ' ') > 0)
  AND (o.aggregate_id = 'new' OR NOT EXISTS (
    SELECT 1 FROM operations AS older
    WHERE older.lane = o.lane AND older.id < o.id AND older.aggregate_id <> 'new' AND older.finished_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM operations AS runner WHERE runner.lane = o.lane AND runner.state = 'in_progress'))
ORDER BY o.next_attempt_at, o.id
LIMIT :limit;

-- name: claim_operation
-- reserved -> in_progress
-- failed_retryable -> in_progress
UPDATE operations
SET state = 'in_progress', epoch = :epoch, lease_until = :lease_until, fence = fence + 1, claims = claims + 1,
  claimed_at = :now, next_attempt_at = NULL, updated_at = :now
WHERE id = :id AND state IN ('reserved', 'failed_retryable') AND fence = :fence
RETURNING
  id, operation_key, source, source_request_id, action_kind, aggregate_id, aggregate_version, pinned_version, payload,
  correlation_id, actor, actor_type, team_id, received_at, state, outcome, response, next_attempt_at, claims, attempts, fence,
  epoch, claimed_at, cycle, category, last_error;

-- name: complete_operation
-- in_progress -> completed
-- Also tells whether another one waits that is due, be it behind a third.
UPDATE operations
SET state = 'completed', outcome = :outcome, response = :response, epoch = NULL, lease_until = NULL, claims = 0,
  attempts = attempts + 1, last_attempt_at = :now, finished_at = :now, updated_at = :now,
  retain_until = coalesce(:retain_until, retain_until)
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING id, EXISTS (SELECT 1 FROM operations AS other WHERE other.next_attempt_at <= :now) AS others_due;

-- name: retry_operation
-- in_progress -> failed_retryable
UPDATE operations
SET state = 'failed_retryable', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1,
  next_attempt_at = :next_attempt_at, category = :category, last_error = :last_error,
  first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING *;

-- name: fail_operation
-- in_progress -> failed_terminal
UPDATE operations
SET state = 'failed_terminal', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1, ever_failed = 1,
  category = :category, code = :code, last_error = :last_error, response = :response,
  first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING *;

-- name: release_operation
-- in_progress -> reserved
UPDATE operations
SET state = 'reserved', epoch = NULL, lease_until = NULL, claims = :claims, next_attempt_at = :next_attempt_at,
  category = :category, updated_at = :now
WHERE id = :id AND state = 'in_progress' AND fence = :fence
RETURNING *;

-- name: cancel_operation
-- reserved -> discarded
-- failed_retryable -> discarded
UPDATE operations
SET state = 'discarded', next_attempt_at = NULL, last_error = :reason, response = :response, finished_at = :now, updated_at = :now,
  retain_until = :retain_until
WHERE id = :id AND state IN ('reserved', 'failed_retryable') AND fence = :fence
RETURNING *;

-- name: discard_operation
-- failed_terminal -> discarded
UPDATE operations
SET state = 'discarded', response = :response, finished_at = :now, updated_at = :now, retain_until = :retain_until
WHERE id = :id AND state = 'failed_terminal' AND cycle = :cycle
RETURNING *;

-- name: replay_operation
-- failed_terminal -> reserved
UPDATE operations
SET state = 'reserved', cycle = cycle + 1, claims = 0, attempts = 0, category = NULL, code = NULL, last_error = NULL,
  first_failed_at = NULL, response = NULL, failure_history = :failure_history, handler_version = :handler_version, replayed_by = :replayed_by,
  next_attempt_at = :next_attempt_at, finished_at = NULL, updated_at = :now
WHERE id = :id AND state = 'failed_terminal' AND cycle = :cycle
RETURNING *;

-- name: operations_waiting
-- Of one lane, what waits for another try, and what a person asked for before :before and is unfinished.
SELECT id, cycle, state, correlation_id, action_kind, next_attempt_at FROM operations
WHERE lane = :lane AND finished_at IS NULL AND aggregate_id <> 'new'
  AND (state = 'failed_retryable' OR actor_type <> 'system' AND created_at <= :before)
ORDER BY id
LIMIT :limit;

-- name: hasten_operation
-- What waits for its next try is tried at once.
UPDATE operations SET next_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'failed_retryable' AND fence = :fence AND next_attempt_at > :now
RETURNING *;

-- name: replacement_of_operation
SELECT id, correlation_id, actor FROM operations WHERE replaces_id = :id;

-- name: operations_in_progress
SELECT * FROM operations WHERE state = 'in_progress' ORDER BY +id; -- +: by the index of the few, not through all rows

-- name: abandoned_operations
-- Those of epochs that have ended.
SELECT * FROM operations WHERE state = 'in_progress' AND epoch NOT IN (SELECT epoch FROM epochs WHERE ended_at IS NULL) ORDER BY +id;

-- name: lapsed_operations
SELECT * FROM operations WHERE state = 'in_progress' AND epoch <> :epoch AND lease_until < :now ORDER BY +id;

-- name: renew_operation_leases
UPDATE operations SET lease_until = :lease_until WHERE state = 'in_progress' AND epoch = :epoch;

-- name: due_suspect_operation
SELECT o.id, o.fence FROM operations AS o
WHERE o.id = :id AND o.next_attempt_at <= :now AND o.claims >= :suspect_claims
  AND (:only IS NULL OR instr(:only, ' ' || o.source || ' ') > 0
    OR instr(:only, ' ' || o.action_kind || '/' || json_extract(o.payload, '$.v') || ' ') > 0)
  AND (o.aggregate_id = 'new' OR NOT EXISTS (
    SELECT 1 FROM operations AS older
    WHERE older.lane = o.lane AND older.id < o.id AND older.aggregate_id <> 'new' AND older.finished_at IS NULL));

-- name: name_unread
-- Due for long, at the head of its lane, and still not claimed: no process that runs reads it. It stays due for one that does.
UPDATE operations SET category = 'needs_newer_build', updated_at = :now
WHERE id IN (
  SELECT o.id FROM operations AS o
  WHERE o.next_attempt_at <= :before AND coalesce(o.category, '') <> 'needs_newer_build'
    AND coalesce(instr(:known, ' ' || o.action_kind || '/' || json_extract(o.payload, '$.v') || ' '), 0) = 0
    AND (o.aggregate_id = 'new' OR NOT EXISTS (
      SELECT 1 FROM operations AS older
      WHERE older.lane = o.lane AND older.id < o.id AND older.aggregate_id <> 'new' AND older.finished_at IS NULL))
  ORDER BY o.next_attempt_at, o.id LIMIT :limit)
  AND next_attempt_at <= :before
RETURNING id, operation_key, action_kind, correlation_id;

-- name: unread_operations
SELECT id, action_kind FROM operations WHERE next_attempt_at IS NOT NULL AND category = 'needs_newer_build' ORDER BY id;

-- name: suspect_operations
SELECT id FROM operations WHERE claims > 1 AND (next_attempt_at IS NOT NULL OR state = 'in_progress' AND claims > :suspect_claims);

-- name: wake_operations_of_the_future
-- Written under a clock that was ahead and put back since: it waits as long as was meant, from now.
UPDATE operations SET next_attempt_at = CASE WHEN next_attempt_at > updated_at THEN :now + next_attempt_at - updated_at ELSE :now END, updated_at = :now
WHERE next_attempt_at > :now AND updated_at > :now
RETURNING id;

-- name: next_operation_due_at
SELECT min(next_attempt_at) AS due FROM operations WHERE next_attempt_at > :now;

-- ------------------------------------------------------------------------------------------------------------- effects

-- name: insert_effect
-- pending
-- After a restore the very same may have been owed, and done, in the part that was lost: an append looks before it sends.
INSERT INTO effects (
  effect_key, operation_id, parent_id, class, semantics, target, aggregate_id, correlation_id, after_id, supersede_key, payload,
  next_attempt_at, not_before, expires_at, aged_from, created_at, updated_at, lost_from, look_first)
VALUES (
  :effect_key, :operation_id, :parent_id, :class, :semantics, :target, :aggregate_id, :correlation_id, :after_id, :supersede_key,
  :payload, :next_attempt_at, :not_before, :expires_at, :aged_from, :now, :now,
  (SELECT min(backup_made_at) FROM generations WHERE last_operation_id >= :operation_id OR doubt_until > :now),
  CAST(:semantics = 'append'
    AND EXISTS (SELECT 1 FROM generations WHERE last_operation_id >= :operation_id OR doubt_until > :now) AS INTEGER));

-- name: effect_by_key
SELECT * FROM effects WHERE effect_key = :effect_key;

-- name: effect_by_id
SELECT * FROM effects WHERE id = :id;

-- name: effect_to_change
-- As operation_to_change.
SELECT * FROM effects WHERE id = :id;

-- name: effects_of_aggregate
SELECT * FROM effects WHERE aggregate_id = :aggregate_id ORDER BY id;

-- name: supersede_pending
-- pending -> superseded
UPDATE effects
SET state = 'superseded', next_attempt_at = NULL, finished_at = :now, updated_at = :now
WHERE supersede_key = :supersede_key AND state = 'pending'
RETURNING *;

-- name: newer_pending
SELECT id FROM effects WHERE supersede_key = :supersede_key AND state = 'pending' AND id > :id;

-- name: newer_target
-- A later one with the same target that was done, is under way or will be.
SELECT id FROM effects
WHERE aggregate_id = :aggregate_id AND id > :id AND supersede_key = :supersede_key
  AND state IN ('pending', 'in_flight', 'uncertain', 'delivered')
LIMIT 1;

-- name: mark_newer_maybe_sent
-- The dropped one may have arrived: whoever replaces it must know.
UPDATE effects SET maybe_sent = 1
WHERE id = :id AND EXISTS (SELECT 1 FROM effects AS held WHERE held.id = :dropped AND held.state = 'in_flight' AND held.fence = :fence);

-- name: mark_maybe_sent
UPDATE effects SET maybe_sent = 1 WHERE effect_key = :effect_key;

-- name: wake_children
UPDATE effects
SET next_attempt_at = CASE WHEN not_before > :now THEN not_before ELSE :now END,
  aged_from = CASE WHEN not_before > :now THEN not_before ELSE :now END, updated_at = :now
WHERE after_id = :id AND state = 'pending' AND next_attempt_at IS NULL
RETURNING id;

-- name: supersede_children
-- pending -> superseded
UPDATE effects
SET state = 'superseded', last_error = :reason, finished_at = :now, updated_at = :now
WHERE after_id = :id AND state = 'pending' AND next_attempt_at IS NULL
RETURNING *;

-- name: due_classes
-- Of the classes named in a JSON array, those of which something is due.
SELECT c.value AS class FROM json_each(:classes) AS c
WHERE EXISTS (SELECT 1 FROM effects AS e WHERE e.class = c.value AND e.next_attempt_at <= :now);

-- name: due_effects
-- Each with the command that enqueued it.
SELECT e.*, o.operation_key, o.source, o.source_request_id, o.action_kind, o.actor, o.actor_type, o.team_id,
  o.aggregate_id AS about, coalesce(o.aggregate_version, o.pinned_version) AS version
FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.class = :class AND e.next_attempt_at <= :now AND e.claims < :suspect_claims
  AND NOT EXISTS (
    SELECT 1 FROM effects AS older
    WHERE older.class = e.class AND older.target = e.target AND older.id < e.id
      AND older.finished_at IS NULL
      AND (older.not_before IS NULL OR older.not_before <= :now OR older.next_attempt_at <= :now))
  AND NOT EXISTS ( -- a replayed effect is older than the one that is under way
    SELECT 1 FROM effects AS busy WHERE busy.class = e.class AND busy.target = e.target AND busy.state = 'in_flight')
ORDER BY e.next_attempt_at, e.id
LIMIT :limit;

-- name: due_suspect_effect
SELECT e.*, o.operation_key, o.source, o.source_request_id, o.action_kind, o.actor, o.actor_type, o.team_id,
  o.aggregate_id AS about, coalesce(o.aggregate_version, o.pinned_version) AS version
FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.id = :id AND e.next_attempt_at <= :now AND e.claims >= :suspect_claims
  AND NOT EXISTS (
    SELECT 1 FROM effects AS older
    WHERE older.class = e.class AND older.target = e.target AND older.id < e.id
      AND older.finished_at IS NULL
      AND (older.not_before IS NULL OR older.not_before <= :now OR older.next_attempt_at <= :now));

-- name: suspect_effects
SELECT id FROM effects WHERE claims > 1 AND (next_attempt_at IS NOT NULL OR state = 'in_flight' AND claims > :suspect_claims);

-- name: claim_effect
-- pending -> in_flight
-- uncertain -> in_flight
UPDATE effects
SET state = 'in_flight', epoch = :epoch, lease_until = :lease_until, fence = fence + 1, claims = claims + 1,
  claimed_at = :now, next_attempt_at = NULL, updated_at = :now, look_first = 0,
  uncertain_since = CASE -- nothing was sent in a lost part after the generation that ended it had begun
    WHEN look_first = 1 THEN coalesce(uncertain_since, (SELECT max(started_at) FROM generations)) ELSE uncertain_since END
WHERE id = :id AND state IN ('pending', 'uncertain') AND fence = :fence
RETURNING
  id, effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, after_id, supersede_key, payload, steps,
  state, next_attempt_at, expires_at, aged_from, claims, attempts, fence, epoch, claimed_at, uncertain_since, maybe_sent, cycle,
  category, last_error, external_ref, result, first_failed_at, last_attempt_at, created_at, lost_from;

-- name: expire_effect
-- pending -> failed
UPDATE effects
SET state = 'failed', next_attempt_at = NULL, ever_failed = 1, category = 'expired', last_error = :last_error,
  first_failed_at = coalesce(first_failed_at, :now), finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'pending' AND fence = :fence
RETURNING *;

-- name: drop_due_effect
-- pending -> superseded
-- uncertain -> superseded
UPDATE effects
SET state = 'superseded', next_attempt_at = NULL, category = :category, last_error = :last_error, finished_at = :now,
  updated_at = :now
WHERE id = :id AND state IN ('pending', 'uncertain') AND fence = :fence
RETURNING *;

-- name: cancel_effect
-- pending -> discarded
-- The reason is no failure: that of the last try goes.
UPDATE effects
SET state = 'discarded', next_attempt_at = NULL, category = NULL, last_error = :reason, finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'pending' AND fence = :fence
RETURNING *;

-- name: hasten_effect
-- What waits for its next try is tried at once.
UPDATE effects SET next_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'pending' AND fence = :fence AND next_attempt_at > :now
RETURNING *;

-- name: record_step
UPDATE effects SET steps = :steps, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: forget_steps
UPDATE effects SET steps = '{}', updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: deliver_effect
-- in_flight -> delivered
UPDATE effects
SET state = 'delivered', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1, uncertain_since = NULL,
  external_ref = :external_ref, result = :result, last_attempt_at = :now, finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING
  id, effect_key, operation_id, class, semantics, target, aggregate_id, correlation_id, after_id, supersede_key, payload, steps,
  state, next_attempt_at, expires_at, aged_from, claims, attempts, fence, epoch, claimed_at, uncertain_since, maybe_sent, cycle,
  category, last_error, external_ref, result, first_failed_at, last_attempt_at, created_at, lost_from;

-- name: retry_effect
-- in_flight -> pending
UPDATE effects
SET state = 'pending', epoch = NULL, lease_until = NULL, claims = :claims, attempts = attempts + :spent, uncertain_since = NULL,
  maybe_sent = maybe_sent | :maybe_sent, next_attempt_at = :next_attempt_at, category = :category, last_error = :last_error,
  first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: mark_uncertain
-- in_flight -> uncertain
UPDATE effects
SET state = 'uncertain', epoch = NULL, lease_until = NULL, claims = :claims, attempts = attempts + :spent, maybe_sent = 1,
  uncertain_since = coalesce(uncertain_since, :now), next_attempt_at = :next_attempt_at, category = :category,
  last_error = :last_error, first_failed_at = coalesce(first_failed_at, :now), last_attempt_at = :now, updated_at = :now
WHERE id = :id AND state = 'in_flight' AND fence = :fence
RETURNING *;

-- name: fail_effect
-- in_flight -> failed
UPDATE effects
SET state = 'failed', epoch = NULL, lease_until = NULL, claims = 0, attempts = attempts + 1, ever_failed = 1,
  maybe_sent = maybe_sent | :maybe_sent, category = :category, code = :code, last_error = :last_error,
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

-- name: effects_in_flight
SELECT * FROM effects WHERE state = 'in_flight' ORDER BY +id;

-- name: abandoned_effects
SELECT * FROM effects WHERE state = 'in_flight' AND epoch NOT IN (SELECT epoch FROM epochs WHERE ended_at IS NULL) ORDER BY +id;

-- name: lapsed_effects
SELECT * FROM effects WHERE state = 'in_flight' AND epoch <> :epoch AND lease_until < :now ORDER BY +id;

-- name: in_flight_of_class
SELECT count(*) AS busy FROM effects WHERE state = 'in_flight' AND class = :class;

-- name: in_flight_of_family
SELECT count(*) AS busy FROM effects
WHERE state = 'in_flight' AND (class = :family OR class > :family || '.' AND class < :family || '/');

-- name: lapsed_claim
-- Whether any replica but this one has let a lease lapse.
SELECT 1 AS one FROM operations WHERE state = 'in_progress' AND epoch <> :epoch AND lease_until < :now
UNION ALL
SELECT 1 FROM effects WHERE state = 'in_flight' AND epoch <> :epoch AND lease_until < :now
LIMIT 1;

-- name: renew_effect_leases
UPDATE effects SET lease_until = :lease_until WHERE state = 'in_flight' AND epoch = :epoch;

-- name: replay_effect
-- failed -> pending
UPDATE effects
SET state = 'pending', cycle = cycle + 1, claims = 0, attempts = 0, category = NULL, code = NULL, last_error = NULL,
  first_failed_at = NULL, failure_history = :failure_history, handler_version = :handler_version, replayed_by = :replayed_by,
  uncertain_since = NULL, next_attempt_at = :next_attempt_at, aged_from = :now, finished_at = NULL, updated_at = :now
WHERE id = :id AND state = 'failed' AND cycle = :cycle
RETURNING *;

-- name: replay_effect_in_doubt
-- failed -> uncertain
UPDATE effects
SET state = 'uncertain', cycle = cycle + 1, claims = 0, attempts = 0, category = NULL, code = NULL, last_error = NULL,
  first_failed_at = NULL, failure_history = :failure_history, handler_version = :handler_version, replayed_by = :replayed_by,
  uncertain_since = coalesce(uncertain_since, last_attempt_at, :now), next_attempt_at = :next_attempt_at, aged_from = :now,
  finished_at = NULL, updated_at = :now
WHERE id = :id AND state = 'failed' AND cycle = :cycle
RETURNING *;

-- name: resolve_effect_delivered
-- failed -> delivered
-- uncertain -> delivered
UPDATE effects
SET state = 'delivered', next_attempt_at = NULL, uncertain_since = NULL, external_ref = :external_ref, result = :result,
  finished_at = :now, updated_at = :now
WHERE id = :id AND state IN ('failed', 'uncertain') AND fence = :fence
RETURNING *;

-- name: resolve_effect_undone
-- failed -> pending
UPDATE effects
SET state = 'pending', cycle = cycle + 1, claims = 0, attempts = 0, category = NULL, code = NULL, last_error = NULL,
  first_failed_at = NULL, failure_history = :failure_history, handler_version = :handler_version, replayed_by = :replayed_by, maybe_sent = 0,
  uncertain_since = NULL, steps = '{}', next_attempt_at = :now, aged_from = :now, finished_at = NULL, updated_at = :now
WHERE id = :id AND state = 'failed' AND cycle = :cycle
RETURNING *;

-- name: fail_uncertain
-- uncertain -> failed
UPDATE effects
SET state = 'failed', next_attempt_at = NULL, ever_failed = 1, category = 'uncertain', last_error = :last_error,
  first_failed_at = coalesce(first_failed_at, :now), finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'uncertain' AND fence = :fence
RETURNING *;

-- name: discard_effect
-- failed -> discarded
UPDATE effects
SET state = 'discarded', finished_at = :now, updated_at = :now
WHERE id = :id AND state = 'failed' AND cycle = :cycle
RETURNING *;

-- name: supersede_dead
-- failed -> superseded
-- uncertain -> superseded
UPDATE effects
SET state = 'superseded', next_attempt_at = NULL, finished_at = :now, updated_at = :now
WHERE id = :id AND state IN ('failed', 'uncertain') AND fence = :fence
RETURNING *;

-- name: wake_effects_of_the_future
UPDATE effects SET next_attempt_at = CASE WHEN next_attempt_at > updated_at THEN :now + next_attempt_at - updated_at ELSE :now END, updated_at = :now
WHERE next_attempt_at > :now AND updated_at > :now
RETURNING id;

-- name: next_effect_due_at
-- Of the classes named in a JSON array.
SELECT min((SELECT min(e.next_attempt_at) FROM effects AS e WHERE e.class = c.value AND e.next_attempt_at > :now)) AS due
FROM json_each(:classes) AS c;

-- name: unfinished_in_lane
SELECT 1 AS one FROM effects WHERE class = :class AND target = :target AND finished_at IS NULL LIMIT 1;

-- name: count_children
SELECT count(*) AS children FROM effects WHERE operation_id = :operation_id AND parent_id = :parent_id;

-- name: unsettled_effects
SELECT * FROM effects WHERE state = 'pending' AND next_attempt_at IS NOT NULL ORDER BY id;

-- name: doubt_lost
-- Whatever is not settled may have been done in the part that was lost; what waits for another looks when its turn comes.
UPDATE effects
SET lost_from = coalesce(lost_from, :lost_from), maybe_sent = 1, updated_at = :now,
  look_first = CASE WHEN state = 'pending' AND semantics = 'append' THEN 1 ELSE look_first END
WHERE state IN ('pending', 'uncertain', 'in_flight', 'failed')
RETURNING state;

-- name: insert_generation
INSERT INTO generations (generation, started_at, backup_made_at, backup_sha256, last_operation_id, doubt_until, started_by)
SELECT :generation, :now, :backup_made_at, :backup_sha256, coalesce(max(id), 0), :doubt_until, :started_by FROM operations
RETURNING *;

-- name: last_generation
SELECT * FROM generations ORDER BY generation DESC LIMIT 1;

-- name: was_in_backup
SELECT generation FROM generations WHERE last_operation_id >= :operation_id LIMIT 1;

-- ------------------------------------------------------------------------------------------------------------ attempts

-- name: insert_attempt
INSERT INTO attempts (
  operation_id, effect_id, cycle, fence, epoch, kind, started_at, ended_at, outcome, http_status, category, error, retry_after_ms,
  delay_ms)
VALUES (
  :operation_id, :effect_id, :cycle, :fence, :epoch, :kind, :started_at, :now, :outcome, :http_status, :category, :error,
  :retry_after_ms, :delay_ms);

-- --------------------------------------------------------------------------------------------------------------- gates

-- name: all_gates
SELECT name, state, cause, reason, held_by, held_at, until_at, resumed_at, failures, failing FROM gates ORDER BY name;

-- name: gate
SELECT name, state, cause, reason, held_by, held_at, until_at, resumed_at, failures, failing FROM gates WHERE name = :name;

-- name: gates_over
-- Of a class: its own, then its family's.
SELECT name, state, cause, reason, held_by, held_at, until_at, resumed_at, failures, failing FROM gates
WHERE name IN (:class, :family) ORDER BY name DESC;

-- name: lock_gates
-- A class and its family, before what is in flight is counted: PostgreSQL lets no other process count until the commit.
SELECT name, state, cause, reason, held_by, held_at, until_at, resumed_at, failures, failing FROM gates
WHERE name IN (:class, :family) ORDER BY name;

-- name: put_gate
-- Only over the gate that was read: another process may have written it since.
INSERT INTO gates (name, state, cause, reason, held_by, held_at, until_at, resumed_at, failures, failing)
VALUES (:name, :state, :cause, :reason, :held_by, :held_at, :until_at, :resumed_at, :failures, :failing)
ON CONFLICT (name) DO UPDATE
SET state = excluded.state, cause = excluded.cause, reason = excluded.reason, held_by = excluded.held_by,
  held_at = excluded.held_at, until_at = excluded.until_at, resumed_at = excluded.resumed_at, failures = excluded.failures,
  failing = excluded.failing
WHERE gates.state = :state_before AND coalesce(gates.cause, '') = :cause_before AND coalesce(gates.held_at, 0) = :held_before
  AND coalesce(gates.until_at, 0) = :until_before AND coalesce(gates.resumed_at, 0) = :resumed_before
  AND gates.failures = :failures_before
RETURNING name;

-- name: begin_hold
INSERT INTO holds (name, cause, held_at) VALUES (:name, :cause, :now);

-- name: end_hold
UPDATE holds SET ended_at = :now WHERE name = :name AND ended_at IS NULL;

-- name: holds_since
SELECT name, held_at, coalesce(ended_at, :now) AS ended_at FROM holds
WHERE name IN (:class, :family) AND (ended_at IS NULL OR ended_at > :since);

-- name: shorten_holds_of_the_future
UPDATE gates SET until_at = CASE WHEN until_at > held_at THEN :now + until_at - held_at ELSE :now END, held_at = :now
WHERE until_at > :now AND held_at > :now
RETURNING name;

-- name: next_gate_change
SELECT min(until_at) AS due FROM gates WHERE until_at > :now;

-- --------------------------------------------------------------------------------------------------------------- audit

-- name: last_audit_id
SELECT max(id) AS id FROM audit_events;

-- name: next_audit_ids
-- The ids of the next :count events, one a row, or the first alone if the others follow it; and the schema version of events that
-- are numbered so: 1 here, where ids have no gaps.
SELECT coalesce(max(id), 0) + 1 AS id, 1 AS schema_version FROM audit_events WHERE :count > 0;

-- name: audit_head
SELECT event_id, seq, mac FROM audit_heads WHERE aggregate_id = :aggregate_id;

-- name: insert_audit
INSERT INTO audit_events (
  id, at, event_type, aggregate_id, seq, previous_id, operation_key, effect_id, correlation_id, actor, actor_type, retry_count,
  failure_category, recovery_action, before, after, schema_version, key_id, mac)
VALUES (
  :id, :at, :event_type, :aggregate_id, :seq, :previous_id, :operation_key, :effect_id, :correlation_id, :actor, :actor_type,
  :retry_count, :failure_category, :recovery_action, :before, :after, :schema_version, :key_id, :mac);

-- name: put_audit_head
INSERT INTO audit_heads (aggregate_id, event_id, seq, mac, key_id, seal)
VALUES (:aggregate_id, :event_id, :seq, :mac, :key_id, :seal)
ON CONFLICT (aggregate_id) DO UPDATE
SET event_id = excluded.event_id, seq = excluded.seq, mac = excluded.mac, key_id = excluded.key_id, seal = excluded.seal;

-- ---------------------------------------------------------------------------------------------------------- tombstones

-- name: tombstone
SELECT * FROM tombstones WHERE operation_key = :operation_key;

-- -------------------------------------------------------------------------------------------------------- dead letters

-- name: list_dead_letters
SELECT * FROM dead_letters
WHERE updated_at >= :since
  AND (status = :status OR :status IS NULL)
  AND (class = :class OR substr(class, 1, length(:class) + 1) = :class || '.' OR :class IS NULL)
  AND (:classes LIKE '%,' || class || ',%' OR :classes IS NULL)
  AND (category = :category OR :category IS NULL)
  AND (class || '/' || coalesce(category, 'unknown') || '/' || coalesce(code, 'unknown') = :cause OR :cause IS NULL)
  AND (aggregate_id = :aggregate_id OR :aggregate_id IS NULL)
  AND (operation_key = :operation_key OR correlation_id = :operation_key OR :operation_key IS NULL)
  AND (source_request_id = :request_id
    OR substr(source_request_id, length(source_request_id) - length(:request_id)) = ':' || :request_id OR :request_id IS NULL)
ORDER BY updated_at, id
LIMIT :limit;

-- name: newest_dead_letters
SELECT * FROM dead_letters
WHERE updated_at >= :since
  AND (status = :status OR :status IS NULL)
  AND (class = :class OR substr(class, 1, length(:class) + 1) = :class || '.' OR :class IS NULL)
  AND (:classes LIKE '%,' || class || ',%' OR :classes IS NULL)
  AND (category = :category OR :category IS NULL)
  AND (class || '/' || coalesce(category, 'unknown') || '/' || coalesce(code, 'unknown') = :cause OR :cause IS NULL)
  AND (aggregate_id = :aggregate_id OR :aggregate_id IS NULL)
  AND (operation_key = :operation_key OR correlation_id = :operation_key OR :operation_key IS NULL)
  AND (source_request_id = :request_id
    OR substr(source_request_id, length(source_request_id) - length(:request_id)) = ':' || :request_id OR :request_id IS NULL)
ORDER BY updated_at DESC, id DESC
LIMIT :limit;

-- name: list_uncertain
-- Dead letters or not: whatever is in doubt, in the columns of a dead letter. The due time leads to them by an index.
SELECT * FROM (
  SELECT
    'effect' AS kind, e.id AS id, o.operation_key AS operation_key, o.source AS source, o.source_request_id AS source_request_id,
    e.class AS class, e.target AS target, e.semantics AS semantics, e.maybe_sent AS maybe_sent, e.aggregate_id AS aggregate_id,
    e.correlation_id AS correlation_id, e.payload AS payload, e.category AS category, e.code AS code, e.last_error AS last_error,
    e.attempts AS attempts, e.first_failed_at AS first_failed_at, e.last_attempt_at AS last_attempt_at, e.created_at AS created_at,
    e.updated_at AS updated_at, e.cycle AS cycle, e.cycle - 1 AS prior_replay_count, e.handler_version AS handler_version,
    e.replayed_by AS replayed_by, e.state AS state, e.failure_history AS failure_history, e.external_ref AS external_ref,
    'uncertain' AS status
  FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
  WHERE e.next_attempt_at IS NOT NULL AND e.state = 'uncertain') AS uncertain
WHERE updated_at >= :since
  AND (status = :status OR :status IS NULL)
  AND (class = :class OR substr(class, 1, length(:class) + 1) = :class || '.' OR :class IS NULL)
  AND (:classes LIKE '%,' || class || ',%' OR :classes IS NULL)
  AND (category = :category OR :category IS NULL)
  AND (class || '/' || coalesce(category, 'unknown') || '/' || coalesce(code, 'unknown') = :cause OR :cause IS NULL)
  AND (aggregate_id = :aggregate_id OR :aggregate_id IS NULL)
  AND (operation_key = :operation_key OR correlation_id = :operation_key OR :operation_key IS NULL)
  AND (source_request_id = :request_id
    OR substr(source_request_id, length(source_request_id) - length(:request_id)) = ':' || :request_id OR :request_id IS NULL)
ORDER BY updated_at, id
LIMIT :limit;

-- name: dead_letter
SELECT * FROM dead_letters WHERE kind = :kind AND id = :id;

-- name: look_now
-- What is in doubt anyway is looked for at once instead of at its due time.
UPDATE effects
SET next_attempt_at = CASE WHEN next_attempt_at < :next_attempt_at THEN next_attempt_at ELSE :next_attempt_at END, updated_at = :now
WHERE id = :id AND state = 'uncertain' AND fence = :fence
RETURNING *;

-- ------------------------------------------------------------------------------------------------------ audit: reading

-- name: audit_totals
SELECT
  (SELECT count(*) FROM audit_events) AS events, (SELECT min(id) FROM audit_events) AS first_event_id,
  (SELECT count(*) FROM audit_heads) AS heads;

-- name: audit_event_back
-- The event that has `back` newer ones.
SELECT id FROM audit_events ORDER BY id DESC LIMIT 1 OFFSET :back;

-- name: audit_end_missing
-- The first event after this one that is the end of a chain, and is not there.
SELECT h.event_id, h.aggregate_id FROM audit_heads AS h LEFT JOIN audit_events AS e ON e.id = h.event_id
WHERE h.event_id > :after AND e.id IS NULL ORDER BY h.event_id LIMIT 1;

-- name: audit_place_before
-- The last place of a chain that is taken by an event before this one. It reads the whole table: for a chain known to be faulty.
SELECT coalesce(max(seq), 0) AS seq FROM audit_events WHERE aggregate_id = :aggregate_id AND id < :before;

-- name: audit_place_taken_twice
-- Where a chain forks. It reads the whole table: for an audit known to be faulty.
SELECT max(id) AS id, aggregate_id, seq FROM audit_events GROUP BY aggregate_id, seq HAVING count(*) > 1 ORDER BY max(id) LIMIT 1;

-- name: audit_events_after
-- Each event with the one before it in its chain and with its chain's head.
SELECT e.id, e.at, e.event_type, e.aggregate_id, e.seq, e.previous_id, e.operation_key, e.effect_id, e.correlation_id, e.actor,
  e.actor_type, e.retry_count, e.failure_category, e.recovery_action, e.before, e.after, e.schema_version, e.key_id, e.mac,
  p.mac AS previous_mac, p.seq AS previous_seq, p.aggregate_id AS previous_aggregate_id,
  h.event_id AS head_event_id, h.seq AS head_seq, h.mac AS head_mac
FROM audit_events AS e
LEFT JOIN audit_events AS p ON p.id = e.previous_id
LEFT JOIN audit_heads AS h ON h.aggregate_id = e.aggregate_id
WHERE e.id > :after ORDER BY e.id LIMIT :limit;

-- name: audit_heads_after
-- Each head with the chain that its event belongs to.
SELECT h.aggregate_id, h.event_id, h.seq, h.mac, h.key_id, h.seal, e.aggregate_id AS event_aggregate_id
FROM audit_heads AS h LEFT JOIN audit_events AS e ON e.id = h.event_id
WHERE h.aggregate_id > :after ORDER BY h.aggregate_id LIMIT :limit;

-- name: audit_head_page
SELECT aggregate_id, event_id, seq, mac FROM audit_heads WHERE aggregate_id > :after ORDER BY aggregate_id LIMIT :limit;

-- name: audit_heads_at
-- Where the chains of one page of heads ended when `upto` was the newest event: walked back from where they end now.
WITH RECURSIVE walk (aggregate_id, id) AS (
  SELECT aggregate_id, event_id FROM audit_heads WHERE aggregate_id > :after AND aggregate_id <= :last
  UNION ALL
  SELECT w.aggregate_id, e.previous_id FROM walk AS w JOIN audit_events AS e ON e.id = w.id
  WHERE w.id > :upto AND e.previous_id IS NOT NULL
)
SELECT w.aggregate_id, e.id AS event_id, e.seq, e.mac FROM walk AS w JOIN audit_events AS e ON e.id = w.id
WHERE w.id <= :upto ORDER BY w.aggregate_id;

-- name: audit_head_sealed
SELECT * FROM audit_heads WHERE aggregate_id = :aggregate_id;

-- name: audit_chain
-- The newest `limit` events of one chain, oldest first: walked back from its head, so no index is needed.
WITH RECURSIVE walk (id, steps) AS (
  SELECT event_id, 1 FROM audit_heads WHERE aggregate_id = :aggregate_id
  UNION ALL
  SELECT e.previous_id, w.steps + 1 FROM walk AS w JOIN audit_events AS e ON e.id = w.id
  WHERE w.steps < :limit AND e.previous_id IS NOT NULL
)
SELECT e.* FROM walk AS w JOIN audit_events AS e ON e.id = w.id ORDER BY w.steps DESC;

-- name: audit_anchors_after
SELECT * FROM audit_anchors WHERE id > :after ORDER BY id LIMIT :limit;

-- name: audit_anchors_since
SELECT * FROM audit_anchors WHERE last_event_id >= :event_id ORDER BY id;

-- name: last_audit_anchor
SELECT * FROM audit_anchors ORDER BY id DESC LIMIT 1;

-- name: audit_mac
SELECT mac FROM audit_events WHERE id = :id;

-- name: insert_audit_anchor
-- Only when it seals more than the last one does.
INSERT INTO audit_anchors (id, at, last_event_id, chains, heads_sha256, key_id, seal)
SELECT (SELECT coalesce(max(id), 0) + 1 FROM audit_anchors), :at, :last_event_id, :chains, :heads_sha256, :key_id, :seal
WHERE NOT EXISTS (SELECT 1 FROM audit_anchors WHERE last_event_id >= :last_event_id)
RETURNING *;

-- --------------------------------------------------------------------------------------------- looking: trace, why, ops

-- name: operations_by_key
-- A key or the beginning of one: :upto is the first text after all that begin so.
SELECT * FROM operations WHERE operation_key >= :begin AND operation_key < :upto ORDER BY operation_key LIMIT :limit;

-- name: operations_of_aggregate
-- Whatever was asked about it, and what created it: found by its chain and by its effects, as operations have no index for it.
WITH RECURSIVE walk (id) AS (
  SELECT event_id FROM audit_heads WHERE aggregate_id = :aggregate_id
  UNION ALL
  SELECT e.previous_id FROM walk AS w JOIN audit_events AS e ON e.id = w.id WHERE e.previous_id IS NOT NULL
)
SELECT * FROM operations
WHERE (aggregate_id = :aggregate_id OR aggregate_id = 'new') AND (
  operation_key IN (
    SELECT e.operation_key FROM walk AS w CROSS JOIN audit_events AS e WHERE e.id = w.id AND e.operation_key IS NOT NULL)
  OR id IN (SELECT operation_id FROM effects WHERE aggregate_id = :aggregate_id))
ORDER BY id DESC
LIMIT :limit;

-- name: effects_of_operation
SELECT * FROM effects WHERE operation_id = :operation_id ORDER BY id;

-- name: attempts_of_effect
SELECT * FROM attempts WHERE effect_id = :effect_id ORDER BY fence;

-- name: attempts_of_operation
SELECT * FROM attempts WHERE operation_id = :operation_id ORDER BY fence;

-- name: last_audit_time
SELECT at FROM audit_events ORDER BY id DESC LIMIT 1;

-- name: last_audit_key
SELECT key_id FROM audit_events ORDER BY id DESC LIMIT 1;

-- name: audit_time
-- The first event from this id on.
SELECT id, at FROM audit_events WHERE id >= :id ORDER BY id LIMIT 1;

-- name: audit_page
SELECT * FROM audit_events WHERE id >= :first ORDER BY id LIMIT :limit;

-- name: audit_chain_since
-- One user action in its quote's chain, walked back from the end to the time it began.
WITH RECURSIVE walk (id) AS (
  SELECT event_id FROM audit_heads WHERE aggregate_id = :aggregate_id
  UNION ALL
  SELECT e.previous_id FROM walk AS w JOIN audit_events AS e ON e.id = w.id
  WHERE e.previous_id IS NOT NULL AND e.at >= :since
)
SELECT e.* FROM walk AS w CROSS JOIN audit_events AS e WHERE e.id = w.id AND e.correlation_id = :correlation_id ORDER BY e.id;

-- name: system_chains
-- The chains of events without an aggregate: `system`, and `system/` with the name of each of several writers.
SELECT aggregate_id FROM audit_heads
WHERE aggregate_id = 'system' OR aggregate_id > 'system/' AND aggregate_id < 'system0' ORDER BY aggregate_id;

-- name: newest_of_system
-- The newest event without an aggregate that has one of two types, walked back from the ends of the chains.
WITH RECURSIVE walk (id) AS (
  SELECT event_id FROM audit_heads WHERE aggregate_id = 'system' OR aggregate_id > 'system/' AND aggregate_id < 'system0'
  UNION ALL
  SELECT e.previous_id FROM walk AS w JOIN audit_events AS e ON e.id = w.id WHERE e.previous_id IS NOT NULL
)
SELECT e.* FROM walk AS w CROSS JOIN audit_events AS e
WHERE e.id = w.id AND (e.event_type = :event_type OR e.event_type = :or_type) ORDER BY e.id DESC LIMIT 1;

-- name: epoch
SELECT * FROM epochs WHERE epoch = :epoch;

-- name: ahead_of_effect
-- What its lane is held by: an older unfinished one that is not owed for later, or whatever is under way.
SELECT id FROM effects AS older
WHERE older.class = :class AND older.target = :target AND older.finished_at IS NULL AND older.id <> :id
  AND (older.id < :id AND (older.not_before IS NULL OR older.not_before <= :now OR older.next_attempt_at <= :now) OR older.state = 'in_flight')
ORDER BY older.id LIMIT 1;

-- name: ahead_of_operation
SELECT id FROM operations AS older
WHERE older.lane = :lane AND older.finished_at IS NULL AND older.aggregate_id <> 'new' AND older.id <> :id
  AND (older.id < :id OR older.state = 'in_progress')
ORDER BY older.id LIMIT 1;

-- name: trial_of_family
SELECT id FROM effects
WHERE state = 'in_flight' AND (class = :family OR class > :family || '.' AND class < :family || '/')
ORDER BY +id LIMIT 1;

-- name: unfinished_operations
SELECT * FROM (
  SELECT * FROM operations WHERE next_attempt_at IS NOT NULL
  UNION ALL
  SELECT * FROM operations WHERE state = 'in_progress') AS unfinished
WHERE (state = :state OR :state IS NULL) AND (actor = :actor OR :actor IS NULL) AND (action_kind = :action_kind OR :action_kind IS NULL)
  AND created_at >= :since
ORDER BY +id DESC
LIMIT :limit;

-- name: unfinished_effects
-- Found by the index of what is not finished, hence the sort by +id; the operation of each is joined for its actor and its kind.
SELECT e.* FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.finished_at IS NULL AND (e.state = :state OR :state IS NULL) AND (e.class = :class OR :class IS NULL)
  AND (e.aggregate_id = :aggregate_id OR :aggregate_id IS NULL) AND (o.actor = :actor OR :actor IS NULL)
  AND (o.action_kind = :action_kind OR :action_kind IS NULL) AND e.created_at >= :since
ORDER BY +e.id
LIMIT :limit;

-- name: finished_operations
SELECT * FROM operations
WHERE finished_at IS NOT NULL AND (state = :state OR :state IS NULL) AND (actor = :actor OR :actor IS NULL)
  AND (action_kind = :action_kind OR :action_kind IS NULL) AND created_at >= :since
ORDER BY id DESC
LIMIT :limit;

-- name: dead_operations
SELECT * FROM operations
WHERE ever_failed = 1 AND state = 'failed_terminal' AND (actor = :actor OR :actor IS NULL)
  AND (action_kind = :action_kind OR :action_kind IS NULL) AND created_at >= :since
ORDER BY +id DESC
LIMIT :limit;

-- name: waiting_of_gate
-- How many effects a hold of this class, or of this family, keeps waiting.
SELECT count(*) AS waiting FROM effects
WHERE next_attempt_at IS NOT NULL AND (class = :name OR class > :name || '.' AND class < :name || '/');

-- ----------------------------------------------------------------------------------------------------------- retention

-- name: deliveries_after
SELECT d.id AS id, d.received_at AS received_at, o.state AS state
FROM deliveries AS d LEFT JOIN operations AS o ON o.id = d.operation_id
WHERE d.id > :after ORDER BY d.id LIMIT :limit;

-- name: lock_job
-- One process at a time does this: each batch of a purge adds to the counts of the one before, and each anchor has the next id.
SELECT :name AS name;

-- name: forget_writers
-- Marks of processes that have ended; this engine keeps none.
SELECT name AS writer FROM meta WHERE :keep < 0;

-- name: delete_delivery
DELETE FROM deliveries WHERE id = :id;

-- name: expired_operations
-- The newest row of each table stays: its id must not be given out twice.
SELECT o.id, o.retain_until, o.aggregate_id, o.operation_key, o.payload_hash, o.state, o.outcome, o.finished_at,
  o.source, o.source_request_id, o.action_kind,
  o.id = (SELECT max(id) FROM operations) OR EXISTS (
    SELECT 1 FROM effects AS e
    WHERE e.operation_id = o.id AND (
      e.state NOT IN ('delivered', 'superseded', 'discarded')
      OR e.id = (SELECT max(id) FROM effects)
      OR EXISTS (SELECT 1 FROM attempts AS a WHERE a.effect_id = e.id AND a.id = (SELECT max(id) FROM attempts))))
  OR EXISTS (SELECT 1 FROM attempts AS a WHERE a.operation_id = o.id AND a.id = (SELECT max(id) FROM attempts)) AS kept
FROM operations AS o
WHERE o.retain_until IS NOT NULL AND (o.retain_until, o.id) > (:after, :after_id) AND o.retain_until <= :now
  AND o.state IN ('completed', 'discarded')
ORDER BY o.retain_until, o.id LIMIT :limit;

-- name: aggregates_of_operation
SELECT DISTINCT aggregate_id FROM effects WHERE operation_id = :operation_id AND aggregate_id <> 'new';

-- name: aggregate_is_busy
-- An effect that is not done, a command that waits or runs (each has an index of its own), or a dead one that may be replayed.
SELECT 1 AS busy FROM effects
WHERE aggregate_id = :aggregate_id AND state NOT IN ('delivered', 'superseded', 'discarded')
UNION ALL
SELECT 1 FROM operations WHERE lane = :aggregate_id AND finished_at IS NULL AND aggregate_id <> 'new'
UNION ALL
SELECT 1 FROM operations WHERE ever_failed = 1 AND state = 'failed_terminal' AND aggregate_id = :aggregate_id
LIMIT 1;

-- name: insert_tombstone
INSERT INTO tombstones (operation_key, payload_hash, state, outcome, finished_at, expires_at)
VALUES (:operation_key, :payload_hash, :state, :outcome, :finished_at, :expires_at)
ON CONFLICT (operation_key) DO NOTHING;

-- name: delete_attempts_of_effects
DELETE FROM attempts WHERE effect_id IN (SELECT id FROM effects WHERE operation_id = :id) RETURNING id;

-- name: delete_attempts_of_operation
DELETE FROM attempts WHERE operation_id = :id RETURNING id;

-- name: delete_effects_of_operation
DELETE FROM effects WHERE operation_id = :id RETURNING id;

-- name: delete_delivery_of_operation
DELETE FROM deliveries
WHERE source = :source AND source_request_id = :source_request_id AND action_kind = :action_kind AND operation_id = :id
RETURNING id;

-- name: delete_operation
DELETE FROM operations WHERE id = :id AND state IN ('completed', 'discarded') RETURNING id;

-- name: delete_tombstones
DELETE FROM tombstones WHERE operation_key IN (
  SELECT operation_key FROM tombstones WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)
RETURNING expires_at;

-- name: count_tombstones_expired
SELECT count(*) AS found FROM tombstones WHERE expires_at <= :now;

-- name: delete_holds
DELETE FROM holds WHERE id IN (SELECT id FROM holds WHERE ended_at <= :before ORDER BY id LIMIT :limit) RETURNING id;

-- name: count_holds_ended
SELECT count(*) AS found FROM holds WHERE ended_at <= :before;

-- name: retain_aggregate
WITH RECURSIVE walk (id) AS (
  SELECT event_id FROM audit_heads WHERE aggregate_id = :aggregate_id
  UNION ALL
  SELECT e.previous_id FROM walk AS w JOIN audit_events AS e ON e.id = w.id WHERE e.previous_id IS NOT NULL
)
UPDATE operations SET retain_until = :until
WHERE (aggregate_id = :aggregate_id OR aggregate_id = 'new') AND (
  operation_key IN (
    SELECT e.operation_key FROM walk AS w CROSS JOIN audit_events AS e WHERE e.id = w.id AND e.operation_key IS NOT NULL)
  OR id IN (SELECT operation_id FROM effects WHERE aggregate_id = :aggregate_id))
RETURNING id;

-- ------------------------------------------------------------------------------------------------------------ measures

-- name: put_meta
INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: delete_meta
DELETE FROM meta WHERE name = :name;

-- name: last_attempt_id
SELECT max(id) AS id FROM attempts;

-- name: count_audit_events
-- The join is made for deliveries alone: whose operation is gone was answered from its tombstone.
SELECT e.event_type AS event_type, e.failure_category AS category, o.source AS source, count(*) AS found
FROM audit_events AS e
LEFT JOIN operations AS o ON e.event_type IN ('delivery.duplicate', 'delivery.conflict') AND o.operation_key = e.operation_key
WHERE e.id > :after AND e.id <= :upto
  AND e.event_type IN (
    'operation.reserved', 'delivery.duplicate', 'delivery.conflict', 'operation.late_result', 'effect.late_result', 'system.error',
    'effect.resolved')
GROUP BY e.event_type, e.failure_category, o.source;

-- name: count_attempts
SELECT e.class AS class, a.kind AS kind, a.outcome AS outcome, a.fence > 1 AS again, count(*) AS found
FROM attempts AS a LEFT JOIN effects AS e ON e.id = a.effect_id
WHERE a.id > :after AND a.id <= :upto
GROUP BY e.class, a.kind, a.outcome, a.fence > 1;

-- name: measure_dead_letters
SELECT category, count(*) AS found, min(coalesce(first_failed_at, finished_at)) AS oldest FROM (
  SELECT category, first_failed_at, finished_at FROM effects WHERE ever_failed = 1 AND state = 'failed'
  UNION ALL
  SELECT category, first_failed_at, finished_at FROM operations WHERE ever_failed = 1 AND state = 'failed_terminal') AS dead
GROUP BY category;

-- name: dead_since
-- Of the rows that changed since then, those whose last failure is no older: a replay is a change, too.
SELECT count(*) AS found FROM dead_letters
WHERE updated_at >= :since AND :since <= coalesce(
  CASE WHEN status = 'pending' THEN updated_at END, CAST(json_extract(failure_history, '$[#-1].failed_at') AS BIGINT), last_attempt_at,
  updated_at);

-- name: replayed_dead_letters
-- How often each was replayed, those with the most replays first.
SELECT kind, id, prior_replay_count AS replays, length(failure_history) AS bytes FROM dead_letters
WHERE prior_replay_count > 0 ORDER BY prior_replay_count DESC, id;

-- name: measure_unfinished
-- How many are in each unfinished state, and since when the one that is due, or under way, longest is.
SELECT 'operation' AS kind, state, count(*) AS found, min(CASE WHEN next_attempt_at <= :now THEN next_attempt_at END) AS oldest
FROM operations WHERE next_attempt_at IS NOT NULL GROUP BY state
UNION ALL
SELECT 'operation', 'in_progress', count(*), min(claimed_at) FROM operations WHERE state = 'in_progress' HAVING count(*) > 0
UNION ALL
SELECT 'effect', state, count(*), min(CASE WHEN next_attempt_at <= :now THEN next_attempt_at END)
FROM effects WHERE next_attempt_at IS NOT NULL GROUP BY state
UNION ALL
SELECT 'effect', 'waiting', count(*), NULL FROM effects WHERE state = 'pending' AND next_attempt_at IS NULL HAVING count(*) > 0
UNION ALL
SELECT 'effect', 'in_flight', count(*), min(claimed_at) FROM effects WHERE state = 'in_flight' HAVING count(*) > 0;

-- name: measure_schedule
SELECT min(received_at) AS oldest FROM operations WHERE next_attempt_at <= :now AND source = 'scheduler';

-- name: stuck_rows
-- Unfinished rows that nothing will ever wake: no due time, no owner whose end could be noticed, nothing before them that moves.
SELECT 'op' || o.id AS reference, o.state AS state
FROM operations AS o WHERE o.state IN ('reserved', 'failed_retryable') AND o.next_attempt_at IS NULL
UNION ALL
SELECT 'op' || o.id, o.state FROM operations AS o
WHERE o.state = 'in_progress' AND (o.lease_until IS NULL OR NOT EXISTS (SELECT 1 FROM epochs WHERE epochs.epoch = o.epoch))
UNION ALL
SELECT CAST(e.id AS TEXT), e.state FROM effects AS e
WHERE e.state = 'in_flight' AND (e.lease_until IS NULL OR NOT EXISTS (SELECT 1 FROM epochs WHERE epochs.epoch = e.epoch))
UNION ALL
SELECT CAST(e.id AS TEXT), e.state FROM effects AS e LEFT JOIN effects AS parent ON parent.id = e.after_id
WHERE e.state IN ('pending', 'uncertain') AND e.next_attempt_at IS NULL
  AND (parent.id IS NULL OR parent.state IN ('delivered', 'superseded', 'discarded'));

-- -------------------------------------------------------------------------------------------------------------- history

-- name: history_not_bound
-- A ledger of a build that bound no rows, or one whose upgrade has not bound every row yet.
SELECT 1 AS unbound
WHERE NOT EXISTS (SELECT 1 FROM schema_migrations WHERE component = 'ledger' AND name = '0230_history.sql')
  OR EXISTS (SELECT 1 FROM meta WHERE name = 'history_unbound');

-- name: tables_there
SELECT name FROM sqlite_schema WHERE type = 'table';

-- name: operation_arrows
SELECT source, target FROM operation_arrows;

-- name: effect_arrows
SELECT source, target FROM effect_arrows;

-- name: operations_replayed
SELECT id, operation_key, source, source_request_id, action_kind, aggregate_id, lane, aggregate_version, payload_hash, payload,
  correlation_id, actor, actor_type, state, outcome
FROM operations WHERE id > :after ORDER BY id LIMIT :limit;

-- name: effects_replayed
SELECT id, effect_key, class, target, payload, state FROM effects WHERE id > :after ORDER BY id LIMIT :limit;
