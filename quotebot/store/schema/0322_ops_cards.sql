-- Cards of the operators' channel that are about more than one dead letter: one for each cause of which many wait, one for each
-- login that is refused. A subject has one row, whose message is the newest; each later message of a subject replaces it.

CREATE TABLE ops_cards (
  subject TEXT PRIMARY KEY, -- cause:crm.create/mapping/INVALID_FIELD, pause:crm
  team_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  post_key TEXT NOT NULL, -- the effect that posts the card; what updates it waits for that
  ts TEXT, -- of the message, once it was posted
  revision INTEGER NOT NULL, -- the commands about this subject
  shown TEXT NOT NULL, -- its state when the last of them was executed
  opened_at INTEGER NOT NULL,
  refreshed_at INTEGER NOT NULL,
  closed_at INTEGER, -- nothing of it waits any more
  decided_by TEXT, -- who replayed all, up to when
  decided_at INTEGER,
  CHECK ((decided_by IS NULL) = (decided_at IS NULL))
) STRICT, WITHOUT ROWID;

ALTER TABLE letter_cards ADD COLUMN cycle INTEGER NOT NULL DEFAULT 1; -- of the letter, when it was announced last
ALTER TABLE letter_cards ADD COLUMN class TEXT;
CREATE INDEX letter_cards_announced ON letter_cards (announced_at);
