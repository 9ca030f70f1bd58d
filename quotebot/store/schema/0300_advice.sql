-- Advice about the approval of a priced version, for its card: computed with the price and never changed.

CREATE TABLE quote_advice (
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  basis TEXT NOT NULL, -- the ruleset and the policy that it depends on
  advice TEXT NOT NULL, -- JSON
  PRIMARY KEY (quote_id, version)
) STRICT, WITHOUT ROWID;
