-- What was read of Salesforce and is kept to offer it while the org does not answer. Off unless an installation asks for it.

CREATE TABLE crm_mirror (
  kind TEXT NOT NULL, -- accounts, contacts, opportunities, prices
  record_id TEXT NOT NULL,
  name TEXT NOT NULL,
  name_key TEXT NOT NULL, -- the name as it is looked for: without case
  account_id TEXT NOT NULL, -- empty: it has none
  facts TEXT NOT NULL CHECK (json_valid(facts)),
  PRIMARY KEY (kind, record_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX crm_mirror_names ON crm_mirror (kind, name_key);
CREATE INDEX crm_mirror_accounts ON crm_mirror (kind, account_id);

CREATE TABLE crm_mirror_cursors (
  kind TEXT PRIMARY KEY,
  read_as TEXT NOT NULL, -- which fields of which object were read: with others everything is read anew
  modstamp TEXT NOT NULL, -- of the record that was read last
  record_id TEXT NOT NULL,
  more INTEGER NOT NULL, -- whether there was more to read
  pages INTEGER NOT NULL, -- how many were read: a page counts once
  read_at INTEGER NOT NULL, -- Unix milliseconds
  whole_at INTEGER -- all that changed before this is here; null while it never was whole
) STRICT, WITHOUT ROWID;
