-- From here on every commit binds the rows it wrote to the audit (ledger/history.py). A ledger that was used before is bound row by
-- row as it is found, at its first start; until that is done this row says so.

INSERT INTO meta (name, value) SELECT 'history_unbound', '' WHERE EXISTS (SELECT 1 FROM audit_events);
