-- What SQLite itself refuses, from any program: illegal moves, reused fences, rewritten identities, edited audit.

CREATE TRIGGER operation_moves BEFORE UPDATE OF state ON operations
WHEN NEW.state <> OLD.state AND NOT EXISTS (SELECT 1 FROM operation_arrows WHERE source = OLD.state AND target = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal operation transition'); END;

CREATE TRIGGER effect_moves BEFORE UPDATE OF state ON effects
WHEN NEW.state <> OLD.state AND NOT EXISTS (SELECT 1 FROM effect_arrows WHERE source = OLD.state AND target = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal effect transition'); END;

CREATE TRIGGER operation_fence BEFORE UPDATE ON operations
WHEN NEW.fence < OLD.fence OR (NEW.state = 'in_progress' AND OLD.state <> 'in_progress' AND NEW.fence <= OLD.fence)
BEGIN SELECT RAISE(ABORT, 'claim without a new fence'); END;

CREATE TRIGGER effect_fence BEFORE UPDATE ON effects
WHEN NEW.fence < OLD.fence OR (NEW.state = 'in_flight' AND OLD.state <> 'in_flight' AND NEW.fence <= OLD.fence)
BEGIN SELECT RAISE(ABORT, 'claim without a new fence'); END;

CREATE TRIGGER operation_identity BEFORE UPDATE OF
  id, operation_key, source, source_request_id, action_kind, aggregate_id, lane, aggregate_version, payload_hash, payload
ON operations
BEGIN SELECT RAISE(ABORT, 'operation identity is immutable'); END;

CREATE TRIGGER effect_identity BEFORE UPDATE OF
  id, effect_key, operation_id, parent_id, class, semantics, target, aggregate_id, payload ON effects
BEGIN SELECT RAISE(ABORT, 'effect identity is immutable'); END;

CREATE TRIGGER operations_start_reserved BEFORE INSERT ON operations
WHEN NEW.state <> 'reserved' OR NEW.fence <> 0
BEGIN SELECT RAISE(ABORT, 'an operation starts reserved'); END;

CREATE TRIGGER effects_start_pending BEFORE INSERT ON effects
WHEN NEW.state <> 'pending' OR NEW.fence <> 0
BEGIN SELECT RAISE(ABORT, 'an effect starts pending'); END;

CREATE TRIGGER operations_stay BEFORE DELETE ON operations WHEN OLD.state NOT IN ('completed', 'discarded')
BEGIN SELECT RAISE(ABORT, 'unfinished and dead operations are never deleted'); END;

CREATE TRIGGER effects_stay BEFORE DELETE ON effects WHEN OLD.state NOT IN ('delivered', 'superseded', 'discarded')
BEGIN SELECT RAISE(ABORT, 'unfinished and dead effects are never deleted'); END;

CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit_events BEGIN SELECT RAISE(ABORT, 'audit is append only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit_events BEGIN SELECT RAISE(ABORT, 'audit is append only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit_events -- INSERT OR REPLACE deletes without firing the trigger above
WHEN EXISTS (SELECT 1 FROM audit_events WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'audit is append only'); END;

CREATE TRIGGER audit_head_forward BEFORE INSERT ON audit_heads -- fires for an upsert and for INSERT OR REPLACE, too
WHEN EXISTS (
  SELECT 1 FROM audit_heads WHERE aggregate_id = NEW.aggregate_id AND (seq >= NEW.seq OR event_id >= NEW.event_id))
BEGIN SELECT RAISE(ABORT, 'a chain only grows'); END;
CREATE TRIGGER audit_head_moves BEFORE UPDATE ON audit_heads
WHEN NEW.aggregate_id <> OLD.aggregate_id OR NEW.seq <= OLD.seq OR NEW.event_id <= OLD.event_id
BEGIN SELECT RAISE(ABORT, 'a chain only grows'); END;
CREATE TRIGGER audit_head_stays BEFORE DELETE ON audit_heads BEGIN SELECT RAISE(ABORT, 'a chain only grows'); END;

CREATE TRIGGER audit_anchor_no_update BEFORE UPDATE ON audit_anchors BEGIN SELECT RAISE(ABORT, 'anchors are append only'); END;
CREATE TRIGGER audit_anchor_no_delete BEFORE DELETE ON audit_anchors BEGIN SELECT RAISE(ABORT, 'anchors are append only'); END;
CREATE TRIGGER audit_anchor_no_replace BEFORE INSERT ON audit_anchors
WHEN EXISTS (SELECT 1 FROM audit_anchors WHERE id >= NEW.id OR last_event_id >= NEW.last_event_id)
BEGIN SELECT RAISE(ABORT, 'anchors are append only'); END;

INSERT INTO meta (name, value) VALUES ('ledger_id', lower(hex(randomblob(4))));
CREATE TRIGGER meta_ledger_id BEFORE UPDATE ON meta WHEN OLD.name = 'ledger_id'
BEGIN SELECT RAISE(ABORT, 'a ledger keeps its id'); END;
