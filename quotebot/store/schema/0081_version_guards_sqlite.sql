-- The arrows of quotebot/domain/lifecycle.py, held by SQLite itself: an illegal move is impossible even from a shell.

CREATE TRIGGER quotes_arrows BEFORE UPDATE OF state ON quotes
WHEN NEW.version = OLD.version AND NEW.state <> OLD.state AND (OLD.state || ' ' || NEW.state) NOT IN (
  'draft validated', 'draft cancelled', 'draft expired',
  'validated priced', 'validated cancelled', 'validated expired',
  'priced pending_approval', 'priced approved', 'priced draft', 'priced cancelled', 'priced expired',
  'pending_approval approved', 'pending_approval rejected', 'pending_approval draft', 'pending_approval cancelled',
  'pending_approval expired',
  'approved finalized', 'approved draft', 'approved cancelled', 'approved expired',
  'rejected draft', 'rejected cancelled', 'rejected expired',
  'finalized sent', 'finalized cancelled', 'finalized expired',
  'sent accepted', 'sent lost', 'sent cancelled', 'sent expired')
BEGIN SELECT RAISE(ABORT, 'a quote has no such arrow'); END;

CREATE TRIGGER quotes_versions BEFORE UPDATE OF version ON quotes
WHEN NEW.version <> OLD.version AND (
  NEW.version <> OLD.version + 1
  OR NEW.state <> 'priced'
  OR OLD.state IN ('accepted', 'lost', 'cancelled', 'expired')
  OR NOT EXISTS (SELECT 1 FROM quote_versions AS v WHERE v.quote_id = OLD.quote_id AND v.version = NEW.version)
  OR NOT EXISTS (SELECT 1 FROM superseded_versions AS s WHERE s.quote_id = OLD.quote_id AND s.version = OLD.version))
BEGIN SELECT RAISE(ABORT, 'a quote goes from version to version, priced, and never once it is final'); END;

CREATE TRIGGER superseded_versions_fixed BEFORE UPDATE ON superseded_versions
BEGIN SELECT RAISE(ABORT, 'a superseded version stays as it was'); END;
CREATE TRIGGER superseded_versions_kept BEFORE DELETE ON superseded_versions
BEGIN SELECT RAISE(ABORT, 'a superseded version is kept'); END;
CREATE TRIGGER quote_sendings_fixed BEFORE UPDATE ON quote_sendings BEGIN SELECT RAISE(ABORT, 'what was sent was sent'); END;
CREATE TRIGGER quote_sendings_kept BEFORE DELETE ON quote_sendings BEGIN SELECT RAISE(ABORT, 'what was sent is kept'); END;
CREATE TRIGGER quote_closings_fixed BEFORE UPDATE ON quote_closings BEGIN SELECT RAISE(ABORT, 'a quote ends once'); END;
CREATE TRIGGER quote_closings_kept BEFORE DELETE ON quote_closings BEGIN SELECT RAISE(ABORT, 'how a quote ended is kept'); END;
