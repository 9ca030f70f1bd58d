-- What the scheduler fired or dropped last, by job and by what the slot was of. That no slot is fired twice does not rest on this:
-- the ledger's deliveries, operations and tombstones see to it. This keeps what is over from being named at every look.

CREATE TABLE schedule_marks (
  job TEXT NOT NULL,
  name TEXT NOT NULL, -- a quote, an approval, an approver's slot
  anchor INTEGER NOT NULL, -- a mark says nothing about the slots of another anchor
  slot INTEGER NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome = 'fired' OR outcome = 'dropped'),
  marked_at INTEGER NOT NULL, -- in the future once the clock was put back: then it says nothing
  PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;

-- Looked at every second: each index holds only the quotes that can still expire, or be forgotten.
CREATE INDEX quotes_open ON quotes (valid_until)
  WHERE state <> 'accepted' AND state <> 'lost' AND state <> 'cancelled' AND state <> 'expired';
CREATE INDEX quotes_drafts ON quotes (updated_at) WHERE state IN ('draft', 'validated', 'priced');
