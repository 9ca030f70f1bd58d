-- What becomes of a quote's versions: superseded by the next one, sent to somebody; and how the quote ended. Times are Unix ms, UTC.

CREATE TABLE superseded_versions ( -- the version's last state, and who made the one after it
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN (
    'draft', 'validated', 'priced', 'pending_approval', 'approved', 'rejected', 'finalized', 'sent')),
  valid_until INTEGER NOT NULL,
  superseded_by TEXT NOT NULL,
  superseded_at INTEGER NOT NULL,
  PRIMARY KEY (quote_id, version),
  FOREIGN KEY (quote_id, version) REFERENCES quote_versions (quote_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE quote_sendings ( -- a version is sent once
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  recipient TEXT NOT NULL,
  sent_by TEXT NOT NULL,
  sent_at INTEGER NOT NULL,
  PRIMARY KEY (quote_id, version),
  FOREIGN KEY (quote_id, version) REFERENCES quote_versions (quote_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE quote_closings ( -- a quote ends once
  quote_id TEXT PRIMARY KEY REFERENCES quotes (quote_id),
  version INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('accepted', 'lost', 'cancelled')),
  reason TEXT,
  closed_by TEXT NOT NULL,
  closed_at INTEGER NOT NULL,
  CHECK (state <> 'lost' OR reason IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX quotes_listed ON quotes (team_id, created_at DESC, quote_id DESC);
