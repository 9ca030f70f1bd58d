-- The Home tab of each person who has opened it: the section that they chose, and its page. Only these tabs are redrawn when
-- something changes for the person.

CREATE TABLE homes (
  team_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  section TEXT NOT NULL,
  page INTEGER NOT NULL CHECK (page >= 1),
  shown_at INTEGER NOT NULL, -- Unix milliseconds
  PRIMARY KEY (team_id, user_id)
) STRICT, WITHOUT ROWID;

-- The time zone in a person's profile, an IANA name. Empty until Slack is asked again, within the hour.
ALTER TABLE people ADD COLUMN zone TEXT NOT NULL DEFAULT '';
