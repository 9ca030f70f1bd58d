-- The cards of dead letters in the operators' channel: which letter has one, where it is, and what was decided last by its buttons.

CREATE TABLE letter_cards (
  reference TEXT PRIMARY KEY, -- as `quotebot dead list` shows it: 118, op12
  channel TEXT NOT NULL,
  post_key TEXT NOT NULL, -- the effect that posts the card; what updates it waits for that
  ts TEXT, -- of the message, once it was posted
  announced_at INTEGER NOT NULL,
  decision TEXT CHECK (decision IN ('retried', 'discarded')),
  decided_by TEXT,
  decided_at INTEGER,
  reason TEXT,
  CHECK ((decision IS NULL) = (decided_by IS NULL) AND (decision IS NULL) = (decided_at IS NULL))
) STRICT, WITHOUT ROWID;
