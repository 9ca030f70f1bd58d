-- The policy that a request for approval was made under. Its deadlines apply to the request until it ends, whatever policy is
-- active by then. Requests of earlier builds have no row.

CREATE TABLE approval_policies (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  policy TEXT NOT NULL, -- its name and version
  ruleset_hash TEXT NOT NULL, -- the ruleset that was active, which holds the policy unless the packaged one applied
  remind_ms INTEGER NOT NULL,
  escalate_ms INTEGER NOT NULL,
  expire_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER approval_policies_fixed BEFORE UPDATE ON approval_policies
BEGIN SELECT RAISE(ABORT, 'a request keeps its policy'); END;
CREATE TRIGGER approval_policies_kept BEFORE DELETE ON approval_policies
BEGIN SELECT RAISE(ABORT, 'a request keeps its policy'); END;
