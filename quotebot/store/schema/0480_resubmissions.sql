-- The note to the approvers of a version that was submitted again as it is, after an approver had asked for changes. Other requests have
-- no row.

CREATE TABLE approval_notes (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  note TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER approval_notes_fixed BEFORE UPDATE ON approval_notes
BEGIN SELECT RAISE(ABORT, 'a request keeps its note'); END;
CREATE TRIGGER approval_notes_kept BEFORE DELETE ON approval_notes
BEGIN SELECT RAISE(ABORT, 'a request keeps its note'); END;

-- As in 0081, with the arrow from draft to pending_approval.
DROP TRIGGER quotes_arrows;
CREATE TRIGGER quotes_arrows BEFORE UPDATE OF state ON quotes
WHEN NEW.version = OLD.version AND NEW.state <> OLD.state AND (OLD.state || ' ' || NEW.state) NOT IN (
  'draft validated', 'draft pending_approval', 'draft cancelled', 'draft expired',
  'validated priced', 'validated cancelled', 'validated expired',
  'priced pending_approval', 'priced approved', 'priced draft', 'priced cancelled', 'priced expired',
  'pending_approval approved', 'pending_approval rejected', 'pending_approval draft', 'pending_approval cancelled',
  'pending_approval expired',
  'approved finalized', 'approved draft', 'approved cancelled', 'approved expired',
  'rejected draft', 'rejected cancelled', 'rejected expired',
  'finalized sent', 'finalized cancelled', 'finalized expired',
  'sent accepted', 'sent lost', 'sent cancelled', 'sent expired')
BEGIN SELECT RAISE(ABORT, 'a quote has no such arrow'); END;
