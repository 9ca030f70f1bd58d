-- What SQLite itself refuses: a difference settled twice, or forgotten.

CREATE TRIGGER crm_conflicts_settled_once BEFORE UPDATE ON crm_conflicts WHEN OLD.state <> 'open'
BEGIN SELECT RAISE(ABORT, 'a difference is settled once'); END;
CREATE TRIGGER crm_conflicts_identity BEFORE UPDATE OF id, quote_id, version, field ON crm_conflicts
BEGIN SELECT RAISE(ABORT, 'a difference keeps its identity'); END;
CREATE TRIGGER crm_conflicts_kept BEFORE DELETE ON crm_conflicts BEGIN SELECT RAISE(ABORT, 'a difference is kept'); END;
