-- Versions of the ruleset. What a version says never changes; which one is active does, and every snapshot names its own by hash.
-- Times are Unix milliseconds, UTC.

CREATE TABLE rulesets (
  version INTEGER PRIMARY KEY CHECK (version >= 1), -- never used again
  hash TEXT NOT NULL CHECK (length(hash) = 64), -- of the canonical document: its identity
  label TEXT NOT NULL, -- name and version as the document says
  products INTEGER NOT NULL, -- how many its document has
  books INTEGER NOT NULL,
  document TEXT NOT NULL CHECK (json_valid(document)), -- canonical
  state TEXT NOT NULL CHECK (state IN ('draft', 'active', 'retired', 'discarded')),
  origin TEXT NOT NULL, -- the files it was read from
  note TEXT,
  imported_by TEXT NOT NULL,
  imported_at INTEGER NOT NULL,
  activated_by TEXT, -- the last time
  activated_at INTEGER,
  retired_at INTEGER,
  CHECK ((state IN ('active', 'retired')) = (activated_at IS NOT NULL)),
  CHECK ((state = 'retired') = (retired_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX rulesets_one_active ON rulesets (state) WHERE state = 'active';
CREATE UNIQUE INDEX rulesets_hash ON rulesets (hash) WHERE state <> 'discarded';
CREATE UNIQUE INDEX rulesets_label ON rulesets (label) WHERE state <> 'discarded';

CREATE TABLE ruleset_requests ( -- the same request twice is one change: the second gets the answer of the first
  request_id TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL CHECK (length(fingerprint) = 64),
  answer TEXT NOT NULL CHECK (json_valid(answer)),
  requested_by TEXT NOT NULL,
  requested_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
