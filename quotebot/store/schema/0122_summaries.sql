-- What a model said of a quote version for its approvers, as it is shown: the first one stays.

CREATE TABLE quote_summaries (
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  summary TEXT NOT NULL,
  written_at INTEGER NOT NULL, -- Unix milliseconds, UTC
  PRIMARY KEY (quote_id, version)
) STRICT, WITHOUT ROWID;
