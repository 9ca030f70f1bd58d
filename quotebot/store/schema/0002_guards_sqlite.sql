-- What SQLite itself refuses: a priced version rewritten or removed, a decision taken twice, a token made fresh again.

CREATE TRIGGER quote_versions_fixed BEFORE UPDATE ON quote_versions BEGIN SELECT RAISE(ABORT, 'a priced version is immutable'); END;
CREATE TRIGGER quote_versions_kept BEFORE DELETE ON quote_versions BEGIN SELECT RAISE(ABORT, 'a priced version is kept'); END;
CREATE TRIGGER approvals_decided_once BEFORE UPDATE ON approvals WHEN OLD.state <> 'pending'
BEGIN SELECT RAISE(ABORT, 'an approval is decided once'); END;
CREATE TRIGGER approvals_kept BEFORE DELETE ON approvals BEGIN SELECT RAISE(ABORT, 'an approval is kept'); END;
CREATE TRIGGER quotes_kept BEFORE DELETE ON quotes BEGIN SELECT RAISE(ABORT, 'a quote is kept'); END;
CREATE TRIGGER quotes_identity BEFORE UPDATE OF
  quote_id, account, requester, team_id, channel, created_at, created_by_operation, asked_hash, recorded_at, root_effect_key
ON quotes BEGIN SELECT RAISE(ABORT, 'a quote keeps its identity'); END;
CREATE TRIGGER one_time_tokens_fixed BEFORE UPDATE ON one_time_tokens BEGIN SELECT RAISE(ABORT, 'a used token stays used'); END;
CREATE TRIGGER one_time_tokens_kept BEFORE DELETE ON one_time_tokens BEGIN SELECT RAISE(ABORT, 'a used token is kept'); END;
