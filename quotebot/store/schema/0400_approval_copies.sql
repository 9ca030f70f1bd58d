-- The direct message that asks one person to decide one request. It is redrawn after every change of the request, and its buttons
-- are accepted from this message and this person alone.

CREATE TABLE approval_copies (
  approval_id TEXT NOT NULL REFERENCES approvals (approval_id),
  user_id TEXT NOT NULL,
  post_key TEXT NOT NULL, -- the effect that posts it; what updates it waits for that
  channel TEXT, -- the direct-message channel and the message in it, once it was posted
  ts TEXT,
  added_at INTEGER NOT NULL,
  PRIMARY KEY (approval_id, user_id),
  CHECK ((channel IS NULL) = (ts IS NULL))
) STRICT, WITHOUT ROWID;
