-- Who wants a daily digest, and when the next one is due. It is due on working mornings of the person's own time zone.

CREATE TABLE digests (
  team_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  due_at INTEGER NOT NULL, -- Unix milliseconds
  PRIMARY KEY (team_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX digests_due ON digests (due_at);
