-- The last quotes of the same customer are shown to each approver, the newest first.

CREATE INDEX quotes_of_account ON quotes (team_id, lower(account), created_at, quote_id);
