-- The name in a person's profile, for the documents of their quotes. Empty until Slack is asked again, within the hour.

ALTER TABLE people ADD COLUMN name TEXT NOT NULL DEFAULT '';
