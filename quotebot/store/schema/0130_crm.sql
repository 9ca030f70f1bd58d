-- What was last read of Salesforce, and where it and we disagree about a field that both may write.

CREATE TABLE crm_cursors (
  object TEXT PRIMARY KEY, -- Quote
  modstamp TEXT NOT NULL, -- the newest SystemModstamp that was read, as Salesforce writes it
  read_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE crm_conflicts ( -- the reconcile queue
  id INTEGER PRIMARY KEY,
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  record_id TEXT NOT NULL,
  field TEXT NOT NULL, -- Quote.Status
  ours TEXT NOT NULL,
  theirs TEXT NOT NULL,
  found_at INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ours', 'theirs', 'over')), -- over: they agree by themselves
  decided_by TEXT,
  decided_at INTEGER,
  reason TEXT,
  CHECK ((state = 'open') = (decided_at IS NULL)),
  CHECK (state NOT IN ('ours', 'theirs') OR (decided_by IS NOT NULL AND reason IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX crm_conflicts_open ON crm_conflicts (quote_id, version, field) WHERE state = 'open';
