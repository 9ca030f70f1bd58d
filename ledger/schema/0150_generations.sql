-- A ledger that was put back to a backup begins a new generation: what happened between the backup and that is lost here, but not in
-- Slack and Salesforce. The first generation has no row. Times are Unix milliseconds, UTC.

CREATE TABLE generations (
  generation INTEGER PRIMARY KEY CHECK (generation >= 2),
  started_at INTEGER NOT NULL,
  backup_made_at INTEGER NOT NULL, -- from here on, until it started, something may have been done that no row shows
  backup_sha256 TEXT NOT NULL,
  last_operation_id INTEGER NOT NULL, -- the newest command of the backup: whatever it owes may be there already
  doubt_until INTEGER NOT NULL, -- what is owed before this may be owed for the second time, whatever command it is of
  started_by TEXT NOT NULL
) STRICT;

ALTER TABLE effects ADD COLUMN lost_from INTEGER; -- since when it may have been done in a part of the ledger that was lost
ALTER TABLE effects ADD COLUMN look_first INTEGER NOT NULL DEFAULT 0; -- its next claim looks before it sends
