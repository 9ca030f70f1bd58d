-- Cards that somebody deleted in Slack: each is replaced once, by the post that follows. Times are Unix ms, UTC.

CREATE TABLE replaced_roots (
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  dead_ts TEXT NOT NULL, -- of the message that is gone
  post_key TEXT NOT NULL, -- the effect that posts the one in its place
  replaced_at INTEGER NOT NULL,
  PRIMARY KEY (quote_id, dead_ts)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER replaced_roots_fixed BEFORE UPDATE ON replaced_roots
BEGIN SELECT RAISE(ABORT, 'a lost card is replaced once'); END;
CREATE TRIGGER replaced_roots_kept BEFORE DELETE ON replaced_roots
BEGIN SELECT RAISE(ABORT, 'which card replaced which is kept'); END;
