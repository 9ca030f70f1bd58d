-- The opportunity in Salesforce that a quote was asked for; most quotes have none.

CREATE TABLE quote_opportunities (
  quote_id TEXT PRIMARY KEY REFERENCES quotes (quote_id),
  record_id TEXT NOT NULL,
  account_id TEXT NOT NULL -- whose it was when it was chosen
) STRICT, WITHOUT ROWID;
