-- The roles of the policy that a request for approval was made under: who may decide it, and their names. A request without a row
-- has the roles of a policy that names none.

CREATE TABLE approval_roles (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  roles TEXT NOT NULL -- JSON, as in the policy's document
) STRICT, WITHOUT ROWID;

CREATE TRIGGER approval_roles_fixed BEFORE UPDATE ON approval_roles
BEGIN SELECT RAISE(ABORT, 'a request keeps its roles'); END;
CREATE TRIGGER approval_roles_kept BEFORE DELETE ON approval_roles
BEGIN SELECT RAISE(ABORT, 'a request keeps its roles'); END;
