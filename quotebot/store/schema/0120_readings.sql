-- Messages that a model was asked to read: who is answered, and whether they were. One row answers one person once.

CREATE TABLE readings (
  operation_key TEXT PRIMARY KEY, -- of the command that asks for it
  team_id TEXT NOT NULL,
  user_id TEXT NOT NULL, -- the author, who alone is answered
  asked_at INTEGER NOT NULL, -- Unix milliseconds, UTC
  answered_by TEXT UNIQUE, -- the command that answered: the token of what it proposed
  answered_at INTEGER,
  read_by TEXT CHECK (read_by IN ('model', 'rules')),
  proposal TEXT, -- the creation that the author may confirm, as its command is stored
  CHECK ((answered_by IS NULL) = (answered_at IS NULL) AND (answered_by IS NULL) = (read_by IS NULL)),
  CHECK (proposal IS NULL OR answered_by IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX readings_of_a_day ON readings (team_id, user_id, asked_at);
CREATE INDEX readings_unanswered ON readings (asked_at) WHERE answered_by IS NULL;

-- Every call of the model: what came of it, and hashes of what was said. The texts are there only where they are to be kept.
CREATE TABLE model_calls (
  id INTEGER PRIMARY KEY,
  effect_key TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  model TEXT NOT NULL,
  outcome TEXT NOT NULL, -- "ok", or the code of the failure
  request_sha256 TEXT NOT NULL,
  answer_sha256 TEXT,
  request TEXT,
  answer TEXT,
  called_at INTEGER NOT NULL -- Unix milliseconds, UTC
) STRICT;

CREATE INDEX model_calls_of_an_effect ON model_calls (effect_key);
