-- The ledger: what was asked (operations), how it came (deliveries), what is owed (effects), what was tried (attempts).
-- No foreign key points into the domain. Times are Unix milliseconds, UTC. JSON is TEXT.
-- Checks are chains of OR: SQLite builds a throw-away index for an IN list at every single statement.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID; -- ledger_id: part of every outside key

CREATE TABLE epochs ( -- one row per process that may claim
  epoch INTEGER PRIMARY KEY AUTOINCREMENT,
  role TEXT NOT NULL CHECK (role = 'bot' OR role = 'cli'),
  pid INTEGER NOT NULL,
  build TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL, -- its last sign of life; leases say the same row by row
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
  source TEXT NOT NULL
    CHECK (source = 'slack_slash' OR source = 'slack_interactive' OR source = 'slack_event' OR source = 'cli' OR
      source = 'scheduler' OR source = 'effect'),
  source_request_id TEXT NOT NULL,
  action_kind TEXT NOT NULL,
  aggregate_id TEXT NOT NULL,
  lane TEXT NOT NULL, -- first in, first out within it: the aggregate, or the command itself when it creates one
  aggregate_version INTEGER, -- what the person saw
  pinned_version INTEGER, -- the head when it was reserved; not part of the key
  payload_hash TEXT NOT NULL CHECK (length(payload_hash) = 64),
  payload TEXT NOT NULL CHECK (json_valid(payload) AND length(payload) <= 65536),
  correlation_id TEXT NOT NULL,
  actor TEXT NOT NULL,
  actor_type TEXT NOT NULL CHECK (actor_type = 'user' OR actor_type = 'operator' OR actor_type = 'system'),
  team_id TEXT NOT NULL,
  received_at INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'reserved'
    CHECK (state = 'reserved' OR state = 'in_progress' OR state = 'completed' OR state = 'failed_retryable' OR
      state = 'failed_terminal' OR state = 'discarded'),
  outcome TEXT CHECK (outcome = 'applied' OR outcome = 'refused'),
  response TEXT CHECK (response IS NULL OR json_valid(response)),
  next_attempt_at INTEGER, -- due time; NULL when nothing wakes it by time
  claims INTEGER NOT NULL DEFAULT 0, -- since the last settle: counted in the claim, for poison
  attempts INTEGER NOT NULL DEFAULT 0, -- in this cycle: counted in the settle, for the budget
  fence INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER,
  lease_until INTEGER,
  claimed_at INTEGER,
  cycle INTEGER NOT NULL DEFAULT 1,
  ever_failed INTEGER NOT NULL DEFAULT 0, -- a dead letter, now or once
  handler_version TEXT, -- the build a replay runs with
  replayed_by TEXT,
  replaces_id INTEGER, -- the operation whose payload this one edits
  category TEXT,
  last_error TEXT,
  first_failed_at INTEGER,
  last_attempt_at INTEGER,
  failure_history TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(failure_history)),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  finished_at INTEGER,
  retain_until INTEGER, -- purged after this; NULL: not known yet, so kept
  CHECK ((state = 'in_progress') = (epoch IS NOT NULL)),
  CHECK ((state = 'in_progress') = (lease_until IS NOT NULL)),
  CHECK ((state = 'reserved' OR state = 'failed_retryable') = (next_attempt_at IS NOT NULL)),
  CHECK ((state = 'completed') = (outcome IS NOT NULL)),
  CHECK ((state = 'completed' OR state = 'failed_terminal' OR state = 'discarded') = (finished_at IS NOT NULL))
) STRICT;
CREATE INDEX operations_due ON operations (next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX operations_lane ON operations (lane, id)
  WHERE finished_at IS NULL AND aggregate_id <> 'new';
CREATE UNIQUE INDEX operations_in_progress ON operations (lane) WHERE state = 'in_progress';
CREATE INDEX operations_suspect ON operations (id) WHERE claims > 1;
CREATE INDEX operations_dead ON operations (updated_at) WHERE ever_failed = 1;
CREATE INDEX operations_retention ON operations (retain_until) WHERE retain_until IS NOT NULL;

CREATE TABLE deliveries ( -- a request id is bound to the operation decided at first sight
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  source_request_id TEXT NOT NULL,
  action_kind TEXT NOT NULL,
  operation_id INTEGER NOT NULL,
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
  parent_id INTEGER, -- the effect whose settling owed this one
  class TEXT NOT NULL,
  semantics TEXT NOT NULL
    CHECK (semantics = 'convergent' OR semantics = 'append' OR semantics = 'keyed' OR semantics = 'pure' OR
      semantics = 'repeat_once'),
  target TEXT NOT NULL, -- lane = (class, target): one in flight, first in first out
  aggregate_id TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  after_id INTEGER, -- waits for this one's result: no due time until it is delivered
  supersede_key TEXT, -- a newer pending one with the same key makes this one needless
  payload TEXT NOT NULL CHECK (json_valid(payload) AND length(payload) <= 262144),
  steps TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(steps)), -- results of the durable steps of a multi-call effect
  state TEXT NOT NULL DEFAULT 'pending'
    CHECK (state = 'pending' OR state = 'in_flight' OR state = 'uncertain' OR state = 'delivered' OR state = 'failed' OR
      state = 'superseded' OR state = 'discarded'),
  next_attempt_at INTEGER,
  not_before INTEGER, -- owed for later: until then it holds no lane
  expires_at INTEGER, -- needless after this (its URL is dead)
  aged_from INTEGER NOT NULL, -- its age counts from here, without the time its class was held
  claims INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  fence INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER,
  lease_until INTEGER,
  claimed_at INTEGER,
  uncertain_since INTEGER,
  maybe_sent INTEGER NOT NULL DEFAULT 0, -- some attempt of any cycle may have reached the other side
  cycle INTEGER NOT NULL DEFAULT 1,
  ever_failed INTEGER NOT NULL DEFAULT 0, -- a dead letter, now or once
  handler_version TEXT, -- the build a replay runs with
  replayed_by TEXT,
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
  CHECK (state = 'pending' OR state = 'uncertain' OR next_attempt_at IS NULL),
    CHECK ((state <> 'pending' AND state <> 'uncertain') OR next_attempt_at IS NOT NULL OR
      (state = 'pending' AND after_id IS NOT NULL)),
  CHECK (state <> 'uncertain' OR uncertain_since IS NOT NULL),
  CHECK ((state = 'delivered' OR state = 'failed' OR state = 'superseded' OR state = 'discarded') = (finished_at IS NOT NULL))
) STRICT;
CREATE INDEX effects_due ON effects (class, next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX effects_lane ON effects (class, target, id) WHERE finished_at IS NULL;
CREATE UNIQUE INDEX effects_in_flight ON effects (class, target) WHERE state = 'in_flight';
CREATE INDEX effects_waiting ON effects (after_id) WHERE state = 'pending' AND next_attempt_at IS NULL;
CREATE INDEX effects_supersede ON effects (supersede_key) WHERE state = 'pending' AND supersede_key IS NOT NULL;
CREATE INDEX effects_aggregate ON effects (aggregate_id, id);
CREATE INDEX effects_operation ON effects (operation_id, parent_id);
CREATE INDEX effects_suspect ON effects (id) WHERE claims > 1;
CREATE INDEX effects_dead ON effects (updated_at) WHERE ever_failed = 1;

CREATE TABLE attempts ( -- one row per attempt that ended, or died with its process; a command that completed needs none
  id INTEGER PRIMARY KEY,
  operation_id INTEGER,
  effect_id INTEGER,
  cycle INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind = 'execute' OR kind = 'send' OR kind = 'reconcile'),
  started_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  outcome TEXT NOT NULL, -- delivered, retry, doubt, bury, drop, hold, released, died
  http_status INTEGER,
  category TEXT,
  error TEXT,
  retry_after_ms INTEGER,
  delay_ms INTEGER, -- the drawn delay before the next attempt
  CHECK ((effect_id IS NULL) <> (operation_id IS NULL))
) STRICT;
CREATE UNIQUE INDEX attempts_effect ON attempts (effect_id, fence) WHERE effect_id IS NOT NULL;
CREATE UNIQUE INDEX attempts_operation ON attempts (operation_id, fence) WHERE operation_id IS NOT NULL;

CREATE TABLE gates ( -- whether a class of effects ("crm.create") or a family of classes ("crm") may be claimed; no row: it flows
  name TEXT PRIMARY KEY,
  state TEXT NOT NULL DEFAULT 'flowing'
    CHECK (state = 'flowing' OR state = 'held' OR state = 'half_open'), -- half open: one at a time
  cause TEXT CHECK (cause = 'auth' OR cause = 'operator' OR cause = 'breaker' OR cause = 'throttled'),
  reason TEXT,
  held_by TEXT,
  held_at INTEGER,
  until_at INTEGER, -- NULL: until somebody resumes it
  resumed_at INTEGER, -- a refused login whose attempt began before this says nothing new
  failures INTEGER NOT NULL DEFAULT 0, -- transient ones in a row
  failing TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(failing)), -- the last distinct effects among them
  CHECK ((state = 'held') = (held_at IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE holds ( -- every time a gate was held: ages stop meanwhile
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  cause TEXT NOT NULL,
  held_at INTEGER NOT NULL,
  ended_at INTEGER
) STRICT;
CREATE INDEX holds_name ON holds (name, ended_at);

CREATE TABLE audit_events ( -- append only; each event signs the one before it in its aggregate's chain
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  event_type TEXT NOT NULL,
  aggregate_id TEXT NOT NULL, -- the chain; `system` where there is no aggregate yet
  seq INTEGER NOT NULL, -- place in the chain, from 1
  previous_id INTEGER, -- the event before it in the chain
  operation_key TEXT,
  effect_id INTEGER,
  correlation_id TEXT,
  actor TEXT NOT NULL,
  actor_type TEXT NOT NULL,
  retry_count INTEGER,
  failure_category TEXT,
  recovery_action TEXT,
  before TEXT,
  after TEXT,
  schema_version INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  mac BLOB NOT NULL CHECK (length(mac) = 32)
) STRICT;

CREATE TABLE audit_heads ( -- the end of each chain, sealed: a chain cut short no longer fits
  aggregate_id TEXT PRIMARY KEY,
  event_id INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  mac BLOB NOT NULL CHECK (length(mac) = 32),
  key_id TEXT NOT NULL,
  seal BLOB NOT NULL CHECK (length(seal) = 32)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_anchors ( -- every hour: all heads under one seal, copied outside the file
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  last_event_id INTEGER NOT NULL,
  chains INTEGER NOT NULL,
  heads_sha256 TEXT NOT NULL,
  key_id TEXT NOT NULL,
  seal BLOB NOT NULL CHECK (length(seal) = 32)
) STRICT;

CREATE TABLE tombstones ( -- what stays of a purged operation
  operation_key TEXT PRIMARY KEY,
  payload_hash TEXT NOT NULL,
  state TEXT NOT NULL,
  outcome TEXT,
  finished_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_expired ON tombstones (expires_at);

-- The casts give both halves the same types: only then are they read in order, each by its index, instead of sorted as a whole.
CREATE VIEW dead_letters AS
SELECT
  'effect' AS kind, e.id AS id, o.operation_key AS operation_key, o.source AS source, o.source_request_id AS source_request_id,
  e.class AS class, e.target AS target, e.semantics AS semantics, e.maybe_sent AS maybe_sent, e.aggregate_id AS aggregate_id,
  e.correlation_id AS correlation_id, e.payload AS payload, e.category AS category, e.last_error AS last_error,
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
  o.aggregate_id, o.correlation_id, o.payload, o.category, o.last_error, o.attempts, o.first_failed_at, o.last_attempt_at,
  o.created_at, o.updated_at, o.cycle, o.cycle - 1, o.handler_version, o.replayed_by, o.state, o.failure_history,
  CAST(NULL AS TEXT),
  CASE
    WHEN o.state = 'failed_terminal' THEN 'pending' WHEN o.state = 'discarded' THEN 'discarded'
    WHEN o.state = 'completed' THEN 'replayed' ELSE 'replaying'
  END
FROM operations AS o
WHERE o.ever_failed = 1;
