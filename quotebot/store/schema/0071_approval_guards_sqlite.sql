-- What SQLite itself refuses: a decision taken twice, a slot forgotten, a request approved while a yes is missing.

CREATE TRIGGER approvals_decided_once BEFORE UPDATE ON approvals WHEN OLD.state <> 'pending'
BEGIN SELECT RAISE(ABORT, 'an approval is decided once'); END;
CREATE TRIGGER approvals_kept BEFORE DELETE ON approvals BEGIN SELECT RAISE(ABORT, 'an approval is kept'); END;
CREATE TRIGGER approvals_every_slot BEFORE UPDATE OF state ON approvals
WHEN OLD.state = 'pending' AND NEW.state = 'approved' AND EXISTS (
  SELECT 1 FROM approval_slots AS s WHERE s.approval_id = NEW.approval_id AND s.state <> 'approved')
BEGIN SELECT RAISE(ABORT, 'an approval needs every slot'); END;
CREATE TRIGGER approval_slots_decided_once BEFORE UPDATE ON approval_slots
WHEN OLD.state NOT IN ('waiting', 'pending', 'escalated')
BEGIN SELECT RAISE(ABORT, 'a slot is decided once'); END;
CREATE TRIGGER approval_slots_identity BEFORE UPDATE OF approval_id, slot, stage, roles, dual_control ON approval_slots
BEGIN SELECT RAISE(ABORT, 'a slot keeps its identity'); END;
CREATE TRIGGER approval_slots_kept BEFORE DELETE ON approval_slots BEGIN SELECT RAISE(ABORT, 'a slot is kept'); END;
CREATE TRIGGER delegations_fixed BEFORE UPDATE ON delegations BEGIN SELECT RAISE(ABORT, 'a delegation is kept as it was'); END;
CREATE TRIGGER delegations_kept BEFORE DELETE ON delegations BEGIN SELECT RAISE(ABORT, 'a delegation is kept'); END;
