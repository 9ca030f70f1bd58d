-- The quotes of records in Salesforce, by record id: a link to a record shows its quote. Each version has its own record.

CREATE TABLE crm_records (
  record_id TEXT PRIMARY KEY,
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id)
) STRICT, WITHOUT ROWID;

INSERT OR IGNORE INTO crm_records (record_id, quote_id)
SELECT e.external_ref, e.aggregate_id FROM effects AS e JOIN quotes AS q ON q.quote_id = e.aggregate_id
WHERE e.class = 'crm.create' AND e.state = 'delivered' AND e.external_ref IS NOT NULL;
