-- What is forgotten in time (quotebot/forgetting.py), found by its age, and how often somebody asked for approval today.

CREATE INDEX readings_by_age ON readings (answered_at) WHERE answered_by IS NOT NULL;
CREATE INDEX model_calls_by_age ON model_calls (called_at);
CREATE INDEX quote_summaries_by_age ON quote_summaries (written_at);
CREATE INDEX crm_conflicts_by_age ON crm_conflicts (decided_at) WHERE state <> 'open';
CREATE INDEX approvals_of_a_day ON approvals (requested_by, requested_at);

DROP TRIGGER crm_conflicts_kept;
CREATE TRIGGER crm_conflicts_open_kept BEFORE DELETE ON crm_conflicts WHEN OLD.state = 'open'
BEGIN SELECT RAISE(ABORT, 'an open difference is kept'); END;
