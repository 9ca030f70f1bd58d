-- Who finalized a version, and when. Times are Unix ms, UTC.

CREATE TABLE quote_freezings ( -- a version is finalized once
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  frozen_by TEXT NOT NULL,
  frozen_at INTEGER NOT NULL,
  PRIMARY KEY (quote_id, version),
  FOREIGN KEY (quote_id, version) REFERENCES quote_versions (quote_id, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER quote_freezings_fixed BEFORE UPDATE ON quote_freezings
BEGIN SELECT RAISE(ABORT, 'a version is finalized once'); END;
CREATE TRIGGER quote_freezings_kept BEFORE DELETE ON quote_freezings
BEGIN SELECT RAISE(ABORT, 'who finalized a version is kept'); END;
