-- Who somebody is, as Slack last said. It is asked again when that was too long ago; only full members approve.

CREATE TABLE people (
  team_id TEXT NOT NULL, -- the workspace they acted in
  user_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('member', 'guest', 'bot', 'deactivated', 'stranger')),
  fetched_at INTEGER NOT NULL, -- Unix milliseconds, UTC
  PRIMARY KEY (team_id, user_id)
) STRICT, WITHOUT ROWID;
