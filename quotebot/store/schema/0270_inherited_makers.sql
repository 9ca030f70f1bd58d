-- People who made the versions that a cloned quote was copied from: they do not approve the copy either.

CREATE TABLE inherited_makers (
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id), -- the copy
  maker TEXT NOT NULL, -- Slack user id
  PRIMARY KEY (quote_id, maker)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER inherited_makers_fixed BEFORE UPDATE ON inherited_makers
BEGIN SELECT RAISE(ABORT, 'a clone keeps the makers of its source'); END;
CREATE TRIGGER inherited_makers_kept BEFORE DELETE ON inherited_makers
BEGIN SELECT RAISE(ABORT, 'a clone keeps the makers of its source'); END;
