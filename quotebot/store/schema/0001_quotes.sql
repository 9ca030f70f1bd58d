-- Quotes, their immutable priced versions and their approvals. Times are Unix milliseconds, UTC. The ledger knows none of this.

CREATE TABLE quote_numbers (year INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT;

CREATE TABLE quotes (
  quote_id TEXT PRIMARY KEY,
  version INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN (
    'draft', 'validated', 'priced', 'pending_approval', 'approved', 'rejected', 'finalized', 'sent', 'accepted', 'lost',
    'cancelled', 'expired')),
  account TEXT NOT NULL,
  requester TEXT NOT NULL,
  requester_name TEXT NOT NULL,
  team_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  valid_until INTEGER NOT NULL,
  created_by_operation TEXT NOT NULL UNIQUE, -- one creation per operation, whatever happens to the ledger
  asked_hash TEXT NOT NULL CHECK (length(asked_hash) = 64), -- of the payload as executed: who asks for it again is asked back
  recorded_at INTEGER NOT NULL, -- when it was executed; created_at is when it was asked for
  root_effect_key TEXT NOT NULL, -- the effect that posts the status card
  thread_ts TEXT, -- its ts, once Slack answered
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX quotes_requester ON quotes (requester, asked_hash, recorded_at);

CREATE TABLE one_time_tokens ( -- a "Create another" button works once: the row is written with the quote it made
  token TEXT PRIMARY KEY, -- the key of the operation that was refused as a re-submission
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE quote_versions ( -- what was priced, never changed
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  version INTEGER NOT NULL,
  ruleset TEXT NOT NULL,
  pricing TEXT NOT NULL CHECK (json_valid(pricing)),
  pricing_hash TEXT NOT NULL CHECK (length(pricing_hash) = 64),
  created_at INTEGER NOT NULL,
  PRIMARY KEY (quote_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE approvals (
  approval_id TEXT PRIMARY KEY,
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  quote_version INTEGER NOT NULL,
  required_roles TEXT NOT NULL CHECK (json_valid(required_roles)),
  reasons TEXT NOT NULL CHECK (json_valid(reasons)),
  state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'rejected')),
  requested_by TEXT NOT NULL,
  requested_at INTEGER NOT NULL,
  decided_by TEXT,
  decided_role TEXT,
  decided_at INTEGER,
  decision_reason TEXT,
  CHECK ((state = 'pending') = (decided_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX approvals_one_pending ON approvals (quote_id, quote_version) WHERE state = 'pending';
CREATE INDEX approvals_quote ON approvals (quote_id, quote_version, requested_at);
