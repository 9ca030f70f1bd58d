-- The ledger: what was asked (operations), how it came (deliveries), what is owed (effects), what was tried (attempts).
-- No foreign key points into the domain. Times are Unix milliseconds, UTC. JSON is TEXT.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID; -- ledger_id: part of every outside key

CREATE TABLE epochs ( -- one row per process that may claim
  epoch INTEGER PRIMARY KEY AUTOINCREMENT,
  role TEXT NOT NULL CHECK (role IN ('bot', 'cli')),
  pid INTEGER NOT NULL,
  build TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  end_reason TEXT
) STRICT;

CREATE TABLE operation_arrows (source TEXT NOT NULL, target TEXT NOT NULL, PRIMARY KEY (source, target)) STRICT, WITHOUT ROWID;
INSERT INTO operation_arrows VALUES
  ('reserved', 'in_progress'), ('reserved', 'discarded'),
  ('in_progress', 'completed'), ('in_progress', 'failed_retryable'), ('in_progress', 'failed_terminal'), ('in_progress', 'reserved'),
  ('failed_retryable', 'in_progress'), ('failed_retryable', 'failed_terminal'), ('failed_retryable', 'discarded'),
  ('failed_terminal', 'reserved'), ('failed_terminal', 'discarded');

CREATE TABLE effect_arrows (source TEXT NOT NULL, target TEXT NOT NULL, PRIMARY KEY (source, target)) STRICT, WITHOUT ROWID;
INSERT INTO effect_arrows VALUES
  ('pending', 'in_flight'), ('pending', 'superseded'), ('pending', 'failed'), ('pending', 'discarded'),
  ('in_flight', 'delivered'), ('in_flight', 'pending'), ('in_flight', 'uncertain'), ('in_flight', 'failed'), ('in_flight', 'superseded'),
  ('uncertain', 'in_flight'), ('uncertain', 'delivered'), ('uncertain', 'failed'), ('uncertain', 'superseded'),
  ('failed', 'pending'), ('failed', 'uncertain'), ('failed', 'delivered'), ('failed', 'superseded'), ('failed', 'discarded');

CREATE TABLE operations (
  id INTEGER PRIMARY KEY,
  operation_key TEXT NOT NULL UNIQUE CHECK (length(operation_key) = 64),
  source TEXT NOT NULL CHECK (source IN ('slack_slash', 'slack_interactive', 'slack_event', 'cli', 'scheduler', 'effect')),
  source_request_id TEXT NOT NULL,
  action_kind TEXT NOT NULL,
  aggregate_id TEXT NOT NULL,
  aggregate_version INTEGER,
  payload_hash TEXT NOT NULL CHECK (length(payload_hash) = 64),
  payload TEXT NOT NULL CHECK (json_valid(payload) AND length(payload) <= 65536),
  correlation_id TEXT NOT NULL,
  actor TEXT NOT NULL,
  actor_type TEXT NOT NULL CHECK (actor_type IN ('user', 'operator', 'system')),
  team_id TEXT NOT NULL,
  received_at INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'reserved'
    CHECK (state IN ('reserved', 'in_progress', 'completed', 'failed_retryable', 'failed_terminal', 'discarded')),
  outcome TEXT CHECK (outcome IN ('applied', 'refused')),
  response TEXT CHECK (response IS NULL OR json_valid(response)),
  next_attempt_at INTEGER, -- due time; NULL when nothing wakes it by time
  claims INTEGER NOT NULL DEFAULT 0, -- since the last settle: counted in the claim, for poison
  attempts INTEGER NOT NULL DEFAULT 0, -- in this cycle: counted in the settle, for the budget
  fence INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER REFERENCES epochs (epoch),
  lease_until INTEGER,
  cycle INTEGER NOT NULL DEFAULT 1,
  category TEXT,
  last_error TEXT,
  first_failed_at INTEGER,
  last_attempt_at INTEGER,
  failure_history TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(failure_history)),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  finished_at INTEGER,
  CHECK ((state = 'in_progress') = (epoch IS NOT NULL)),
  CHECK ((state = 'in_progress') = (lease_until IS NOT NULL)),
  CHECK ((state IN ('reserved', 'failed_retryable')) = (next_attempt_at IS NOT NULL)),
  CHECK ((state = 'completed') = (outcome IS NOT NULL)),
  CHECK ((state IN ('completed', 'failed_terminal', 'discarded')) = (finished_at IS NOT NULL))
) STRICT;
CREATE INDEX operations_due ON operations (next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX operations_unfinished ON operations (aggregate_id, id) WHERE state IN ('reserved', 'in_progress', 'failed_retryable');
CREATE UNIQUE INDEX operations_one_runner ON operations (aggregate_id) WHERE state = 'in_progress' AND aggregate_id <> 'new';
CREATE INDEX operations_held ON operations (epoch) WHERE epoch IS NOT NULL;
CREATE INDEX operations_dead ON operations (updated_at) WHERE state = 'failed_terminal';
CREATE INDEX operations_correlation ON operations (correlation_id);

CREATE TABLE deliveries ( -- a request id is bound to the operation decided at first sight
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  source_request_id TEXT NOT NULL,
  action_kind TEXT NOT NULL,
  operation_id INTEGER NOT NULL REFERENCES operations (id),
  fingerprint TEXT NOT NULL,
  transport TEXT NOT NULL CHECK (json_valid(transport)), -- envelope id, retry number, response_url: never hashed
  seen INTEGER NOT NULL DEFAULT 1,
  received_at INTEGER NOT NULL,
  last_seen_at INTEGER NOT NULL,
  UNIQUE (source, source_request_id, action_kind)
) STRICT;

CREATE TABLE effects (
  id INTEGER PRIMARY KEY,
  effect_key TEXT NOT NULL UNIQUE CHECK (length(effect_key) = 64),
  operation_id INTEGER NOT NULL REFERENCES operations (id),
  parent_id INTEGER REFERENCES effects (id),
  class TEXT NOT NULL,
  semantics TEXT NOT NULL CHECK (semantics IN ('convergent', 'append', 'keyed', 'pure', 'repeat_once')),
  target TEXT NOT NULL, -- lane = (class, target): one in flight, first in first out
  aggregate_id TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  after_id INTEGER REFERENCES effects (id), -- waits for this one's result
  supersede_key TEXT, -- a newer pending one with the same key makes this one needless
  payload TEXT NOT NULL CHECK (json_valid(payload) AND length(payload) <= 262144),
  steps TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(steps)), -- results of the durable steps of a multi-call effect
  state TEXT NOT NULL DEFAULT 'pending'
    CHECK (state IN ('pending', 'in_flight', 'uncertain', 'delivered', 'failed', 'superseded', 'discarded')),
  next_attempt_at INTEGER,
  not_before INTEGER, -- owed for later: until then it holds no lane
  expires_at INTEGER,
  claims INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER REFERENCES epochs (epoch),
  lease_until INTEGER,
  uncertain_since INTEGER,
  maybe_sent INTEGER NOT NULL DEFAULT 0, -- some attempt of any cycle may have reached the other side
  cycle INTEGER NOT NULL DEFAULT 1,
  category TEXT,
  last_error TEXT,
  first_failed_at INTEGER,
  last_attempt_at INTEGER,
  failure_history TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(failure_history)),
  external_ref TEXT, -- the other side's id of the deed
  result TEXT CHECK (result IS NULL OR json_valid(result)),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  finished_at INTEGER,
  CHECK ((state = 'in_flight') = (epoch IS NOT NULL)),
  CHECK ((state = 'in_flight') = (lease_until IS NOT NULL)),
  CHECK ((state IN ('pending', 'uncertain')) = (next_attempt_at IS NOT NULL)),
  CHECK (state <> 'uncertain' OR uncertain_since IS NOT NULL),
  CHECK ((state IN ('delivered', 'failed', 'superseded', 'discarded')) = (finished_at IS NOT NULL))
) STRICT;
CREATE INDEX effects_due ON effects (class, next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX effects_lane ON effects (class, target, id) WHERE state IN ('pending', 'in_flight', 'uncertain');
CREATE UNIQUE INDEX effects_one_in_flight ON effects (class, target) WHERE state = 'in_flight';
CREATE INDEX effects_held ON effects (epoch) WHERE epoch IS NOT NULL;
CREATE INDEX effects_supersede ON effects (supersede_key) WHERE state = 'pending' AND supersede_key IS NOT NULL;
CREATE INDEX effects_aggregate ON effects (aggregate_id, id);
CREATE INDEX effects_dead ON effects (updated_at) WHERE state = 'failed';
CREATE INDEX effects_operation ON effects (operation_id);

CREATE TABLE attempts (
  id INTEGER PRIMARY KEY,
  operation_id INTEGER REFERENCES operations (id),
  effect_id INTEGER REFERENCES effects (id),
  cycle INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  epoch INTEGER NOT NULL REFERENCES epochs (epoch),
  kind TEXT NOT NULL CHECK (kind IN ('execute', 'send', 'reconcile')),
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  outcome TEXT, -- delivered, retry, uncertain, failed, ...; NULL: the process died
  http_status INTEGER,
  category TEXT,
  error TEXT,
  retry_after_ms INTEGER,
  delay_ms INTEGER, -- the drawn delay before the next attempt
  CHECK ((effect_id IS NULL) <> (operation_id IS NULL)),
  UNIQUE (effect_id, fence),
  UNIQUE (operation_id, fence)
) STRICT;

CREATE TABLE pauses ( -- a paused class claims nothing; its effects wait with this as their cause
  class TEXT PRIMARY KEY,
  reason TEXT NOT NULL,
  paused_at INTEGER NOT NULL,
  paused_by TEXT NOT NULL,
  until_at INTEGER -- NULL: until somebody resumes it
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_events (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  event_type TEXT NOT NULL,
  operation_key TEXT,
  effect_id INTEGER,
  correlation_id TEXT,
  aggregate_id TEXT,
  actor TEXT NOT NULL,
  actor_type TEXT NOT NULL,
  retry_count INTEGER,
  failure_category TEXT,
  recovery_action TEXT,
  before TEXT CHECK (before IS NULL OR json_valid(before)),
  after TEXT CHECK (after IS NULL OR json_valid(after)),
  schema_version INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX audit_aggregate ON audit_events (aggregate_id, id);

CREATE VIEW dead_letters AS
SELECT
  'effect' AS kind, e.id AS id, o.operation_key AS operation_key, o.source AS source, o.source_request_id AS source_request_id,
  e.class AS class, e.aggregate_id AS aggregate_id, e.correlation_id AS correlation_id, e.payload AS payload, e.category AS category,
  e.last_error AS last_error, e.attempts AS attempts, e.first_failed_at AS first_failed_at, e.last_attempt_at AS last_attempt_at,
  e.created_at AS created_at, e.updated_at AS updated_at, e.cycle - 1 AS prior_replay_count,
  e.state AS state, e.failure_history AS failure_history, e.external_ref AS external_ref, e.cycle AS cycle,
  CASE
    WHEN e.state = 'failed' THEN 'pending' WHEN e.state = 'discarded' THEN 'discarded'
    WHEN e.state IN ('delivered', 'superseded') THEN 'replayed' ELSE 'replaying'
  END AS status
FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.state IN ('failed', 'discarded') OR e.cycle > 1
UNION ALL
SELECT
  'operation', o.id, o.operation_key, o.source, o.source_request_id, o.action_kind, o.aggregate_id, o.correlation_id, o.payload,
  o.category, o.last_error, o.attempts, o.first_failed_at, o.last_attempt_at, o.created_at, o.updated_at,
  o.cycle - 1, o.state, o.failure_history, NULL, o.cycle,
  CASE
    WHEN o.state = 'failed_terminal' THEN 'pending' WHEN o.state = 'discarded' THEN 'discarded'
    WHEN o.state = 'completed' THEN 'replayed' ELSE 'replaying'
  END
FROM operations AS o
WHERE o.state IN ('failed_terminal', 'discarded') OR o.cycle > 1;
