-- An approval request has slots, each one yes that has to be given; it may end undecided, or rest on an earlier one. Times are Unix
-- milliseconds, UTC. Who is away has a delegate.

CREATE TABLE approvals_with_slots (
  approval_id TEXT PRIMARY KEY,
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  quote_version INTEGER NOT NULL,
  required_roles TEXT NOT NULL CHECK (json_valid(required_roles)),
  reasons TEXT NOT NULL CHECK (json_valid(reasons)),
  state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'changes_requested', 'expired', 'invalidated')),
  requested_by TEXT NOT NULL,
  requested_at INTEGER NOT NULL,
  decided_by TEXT,
  decided_role TEXT,
  decided_at INTEGER,
  decision_reason TEXT,
  earlier TEXT, -- the approval whose decisions still hold
  CHECK ((state = 'pending') = (decided_at IS NULL)),
  CHECK (earlier IS NULL OR state = 'approved')
) STRICT, WITHOUT ROWID;
INSERT INTO approvals_with_slots SELECT *, NULL FROM approvals;
DROP TABLE approvals;
ALTER TABLE approvals_with_slots RENAME TO approvals;
CREATE UNIQUE INDEX approvals_one_pending ON approvals (quote_id, quote_version) WHERE state = 'pending';
CREATE INDEX approvals_quote ON approvals (quote_id, quote_version, requested_at);

CREATE TABLE approval_slots (
  approval_id TEXT NOT NULL REFERENCES approvals (approval_id),
  slot INTEGER NOT NULL CHECK (slot >= 1),
  stage INTEGER NOT NULL CHECK (stage >= 1),
  roles TEXT NOT NULL CHECK (json_valid(roles)), -- any one of them
  asked TEXT NOT NULL CHECK (json_valid(asked)), -- whose holders are asked now
  assignee TEXT,
  dual_control INTEGER NOT NULL CHECK (dual_control IN (0, 1)),
  state TEXT NOT NULL CHECK (state IN ('waiting', 'pending', 'escalated', 'approved', 'rejected', 'expired', 'closed')),
  opened_at INTEGER,
  remind_at INTEGER,
  escalate_at INTEGER,
  expires_at INTEGER,
  reminded_at INTEGER,
  escalated_at INTEGER,
  decided_by TEXT,
  decided_role TEXT,
  on_behalf_of TEXT,
  decided_at INTEGER,
  reason TEXT,
  PRIMARY KEY (approval_id, slot),
  CHECK ((state IN ('waiting', 'pending', 'escalated')) = (decided_at IS NULL)),
  CHECK ((state IN ('approved', 'rejected')) = (decided_by IS NOT NULL)),
  CHECK (state NOT IN ('pending', 'escalated') OR opened_at IS NOT NULL)
) STRICT, WITHOUT ROWID;
-- What is open is little, whatever was decided before it.
CREATE INDEX approval_slots_to_remind ON approval_slots (remind_at) WHERE state = 'pending' AND reminded_at IS NULL;
CREATE INDEX approval_slots_to_escalate ON approval_slots (escalate_at) WHERE state = 'pending' OR state = 'escalated';
CREATE INDEX approval_slots_to_expire ON approval_slots (expires_at) WHERE state = 'pending' OR state = 'escalated';

-- Requests of before had one decision for all their roles.
INSERT INTO approval_slots (
  approval_id, slot, stage, roles, asked, dual_control, state, opened_at, remind_at, escalate_at, expires_at, decided_by,
  decided_role, decided_at)
SELECT a.approval_id, r.key + 1, 1, json_array(r.value), json_array(r.value), 0, a.state, a.requested_at,
  a.requested_at + 7200000, a.requested_at + 14400000, a.requested_at + 259200000, a.decided_by,
  CASE WHEN json_array_length(a.required_roles) = 1 THEN a.decided_role WHEN a.decided_by IS NOT NULL THEN r.value END, a.decided_at
FROM approvals AS a, json_each(a.required_roles) AS r;

CREATE TABLE delegations ( -- never changed: the newest of a person is the one in force
  operation_key TEXT PRIMARY KEY, -- one per command
  team_id TEXT NOT NULL,
  absent TEXT NOT NULL,
  delegate TEXT, -- NULL: the person is back
  since INTEGER NOT NULL,
  until INTEGER NOT NULL,
  CHECK (delegate IS NULL OR delegate <> absent)
) STRICT, WITHOUT ROWID;
CREATE INDEX delegations_absent ON delegations (team_id, absent, since);
