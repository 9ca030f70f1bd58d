-- What SQLite itself refuses: a version that is rewritten, forgotten, or moved along an arrow that is not drawn.

CREATE TRIGGER rulesets_begin BEFORE INSERT ON rulesets WHEN NEW.state <> 'draft'
BEGIN SELECT RAISE(ABORT, 'a version of the ruleset begins as a draft'); END;
CREATE TRIGGER rulesets_content BEFORE UPDATE OF
  version, hash, label, products, books, document, origin, note, imported_by, imported_at ON rulesets
BEGIN SELECT RAISE(ABORT, 'a version of the ruleset keeps its content'); END;
CREATE TRIGGER rulesets_kept BEFORE DELETE ON rulesets BEGIN SELECT RAISE(ABORT, 'a version of the ruleset is kept'); END;
CREATE TRIGGER rulesets_arrows BEFORE UPDATE OF state ON rulesets
WHEN (OLD.state || ' ' || NEW.state) NOT IN ('draft active', 'draft discarded', 'active retired', 'retired active')
BEGIN SELECT RAISE(ABORT, 'a version of the ruleset has no such arrow'); END;
CREATE TRIGGER ruleset_requests_fixed BEFORE UPDATE ON ruleset_requests
BEGIN SELECT RAISE(ABORT, 'an answered request stays as it was answered'); END;
CREATE TRIGGER ruleset_requests_kept BEFORE DELETE ON ruleset_requests
BEGIN SELECT RAISE(ABORT, 'an answered request is kept'); END;
