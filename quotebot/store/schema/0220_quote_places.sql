-- Quotes whose card is not in the channel they were made in: facts of a quote are not posted into a channel that another
-- organization shares, so the card goes to a direct message of the requester and stays there. Times are Unix ms, UTC.

CREATE TABLE quote_places (
  quote_id TEXT PRIMARY KEY REFERENCES quotes (quote_id),
  channel TEXT NOT NULL, -- the direct-message channel that holds the card and its thread
  moved_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER quote_places_fixed BEFORE UPDATE ON quote_places
BEGIN SELECT RAISE(ABORT, 'a card moves once'); END;
CREATE TRIGGER quote_places_kept BEFORE DELETE ON quote_places
BEGIN SELECT RAISE(ABORT, 'the place of a card is kept'); END;
