-- A replayed dead letter keeps the category and the code of its last failure: its own are empty until it fails again.

DROP VIEW dead_letters;
CREATE VIEW dead_letters AS
SELECT
  'effect' AS kind, e.id AS id, o.operation_key AS operation_key, o.source AS source, o.source_request_id AS source_request_id,
  e.class AS class, e.target AS target, e.semantics AS semantics, e.maybe_sent AS maybe_sent, e.aggregate_id AS aggregate_id,
  e.correlation_id AS correlation_id, e.payload AS payload,
  coalesce(e.category, json_extract(e.failure_history, '$[#-1].category')) AS category,
  CASE WHEN e.category IS NULL THEN json_extract(e.failure_history, '$[#-1].code') ELSE e.code END AS code,
  e.last_error AS last_error,
  e.attempts AS attempts, e.first_failed_at AS first_failed_at, e.last_attempt_at AS last_attempt_at, e.created_at AS created_at,
  e.updated_at AS updated_at, e.cycle AS cycle, e.cycle - 1 AS prior_replay_count, e.handler_version AS handler_version,
  e.replayed_by AS replayed_by, e.state AS state, e.failure_history AS failure_history, e.external_ref AS external_ref,
  CASE
    WHEN e.state = 'failed' THEN 'pending' WHEN e.state = 'discarded' THEN 'discarded'
    WHEN e.state IN ('delivered', 'superseded') THEN 'replayed' ELSE 'replaying'
  END AS status
FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.ever_failed = 1
UNION ALL
SELECT
  'operation', o.id, o.operation_key, o.source, o.source_request_id, o.action_kind, o.lane, CAST(NULL AS TEXT), CAST(0 AS INTEGER),
  o.aggregate_id, o.correlation_id, o.payload,
  coalesce(o.category, json_extract(o.failure_history, '$[#-1].category')),
  CASE WHEN o.category IS NULL THEN json_extract(o.failure_history, '$[#-1].code') ELSE o.code END,
  o.last_error, o.attempts, o.first_failed_at, o.last_attempt_at,
  o.created_at, o.updated_at, o.cycle, o.cycle - 1, o.handler_version, o.replayed_by, o.state, o.failure_history,
  CAST(NULL AS TEXT),
  CASE
    WHEN o.state = 'failed_terminal' THEN 'pending' WHEN o.state = 'discarded' THEN 'discarded'
    WHEN o.state = 'completed' THEN 'replayed' ELSE 'replaying'
  END
FROM operations AS o
WHERE o.ever_failed = 1;
