-- Every statement of the domain's store, named.

-- name: next_quote_number
INSERT INTO quote_numbers (year, last) VALUES (:year, 1)
ON CONFLICT (year) DO UPDATE SET last = last + 1
RETURNING last;

-- name: insert_quote
INSERT INTO quotes (
  quote_id, version, state, account, requester, requester_name, team_id, channel, created_at, valid_until, created_by_operation, asked_hash,
  recorded_at, root_effect_key, updated_at)
VALUES (
  :quote_id, :version, :state, :account, :requester, :requester_name, :team_id, :channel, :created_at, :valid_until, :created_by_operation,
  :asked_hash, :recorded_at, :root_effect_key, :created_at);

-- name: find_twin
-- No look at unfinished operations is needed: of two equal creations the one that is executed second finds the quote of the first.
SELECT quote_id, version, recorded_at FROM quotes
WHERE requester = :requester AND asked_hash = :asked_hash AND recorded_at >= :since AND team_id = :team_id
ORDER BY recorded_at DESC LIMIT 1;

-- name: find_offer
SELECT actor, team_id, action_kind, payload FROM operations
WHERE operation_key = :token AND state = 'completed' AND json_extract(response, '$.code') = :code;

-- name: find_token_use
SELECT quote_id FROM one_time_tokens WHERE token = :token;

-- name: use_token
INSERT INTO one_time_tokens (token, quote_id, used_at) VALUES (:token, :quote_id, :now);

-- name: head_version
SELECT version FROM quotes WHERE quote_id = :quote_id;

-- name: insert_quote_version
INSERT INTO quote_versions (quote_id, version, ruleset, pricing, pricing_hash, created_at)
VALUES (:quote_id, :version, :ruleset, :pricing, :pricing_hash, :created_at);

-- name: load_quote
SELECT q.*, v.pricing, v.pricing_hash FROM quotes AS q
JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
WHERE q.quote_id = :quote_id;

-- name: move_quote
UPDATE quotes SET state = :state, updated_at = :now
WHERE quote_id = :quote_id AND version = :version AND state = :old_state
RETURNING quote_id;

-- name: set_thread
UPDATE quotes SET thread_ts = :thread_ts, updated_at = :now WHERE quote_id = :quote_id
RETURNING quote_id;

-- name: count_approvals
SELECT count(*) AS requests FROM approvals WHERE quote_id = :quote_id AND quote_version = :quote_version;

-- name: latest_approval
SELECT * FROM approvals WHERE quote_id = :quote_id AND quote_version = :quote_version
ORDER BY requested_at DESC, approval_id DESC LIMIT 1;

-- name: insert_approval
INSERT INTO approvals (
  approval_id, quote_id, quote_version, required_roles, reasons, state, requested_by, requested_at, decided_by, decided_role,
  decided_at, decision_reason, earlier)
VALUES (
  :approval_id, :quote_id, :quote_version, :required_roles, :reasons, :state, :requested_by, :requested_at, :decided_by,
  :decided_role, :decided_at, :decision_reason, :earlier);

-- name: decide_approval
UPDATE approvals
SET state = :state, decided_by = :decided_by, decided_role = :decided_role, decided_at = :decided_at,
  decision_reason = :decision_reason
WHERE approval_id = :approval_id AND state = 'pending'
RETURNING approval_id;

-- name: last_decided_approval
-- What people last decided about any version of the quote, with the price they saw. Nobody decided an automatic approval.
SELECT a.*, v.pricing FROM approvals AS a
JOIN quote_versions AS v ON v.quote_id = a.quote_id AND v.version = a.quote_version
WHERE a.quote_id = :quote_id AND a.state IN ('approved', 'rejected', 'changes_requested') AND a.decided_role IS NOT NULL
ORDER BY a.decided_at DESC, a.approval_id DESC LIMIT 1;

-- name: approval_slots
SELECT * FROM approval_slots WHERE approval_id = :approval_id ORDER BY slot;

-- name: insert_approval_slot
INSERT INTO approval_slots (
  approval_id, slot, stage, roles, asked, assignee, dual_control, state, opened_at, remind_at, escalate_at, expires_at,
  reminded_at, escalated_at, decided_by, decided_role, on_behalf_of, decided_at, reason)
VALUES (
  :approval_id, :slot, :stage, :roles, :asked, :assignee, :dual_control, :state, :opened_at, :remind_at, :escalate_at, :expires_at,
  :reminded_at, :escalated_at, :decided_by, :decided_role, :on_behalf_of, :decided_at, :reason);

-- name: move_approval_slot
UPDATE approval_slots
SET state = :state, asked = :asked, assignee = :assignee, opened_at = :opened_at, remind_at = :remind_at,
  escalate_at = :escalate_at, expires_at = :expires_at, reminded_at = :reminded_at, escalated_at = :escalated_at,
  decided_by = :decided_by, decided_role = :decided_role, on_behalf_of = :on_behalf_of, decided_at = :decided_at, reason = :reason
WHERE approval_id = :approval_id AND slot = :slot AND state = :old_state
RETURNING slot;

-- name: slots_to_remind
-- Each of the three has an index of the open slots by its time; the CROSS JOIN makes SQLite begin there.
SELECT s.approval_id, s.slot, s.remind_at AS due_at, a.quote_id, a.quote_version, q.team_id
FROM approval_slots AS s CROSS JOIN approvals AS a USING (approval_id) CROSS JOIN quotes AS q USING (quote_id)
WHERE s.state = 'pending' AND s.reminded_at IS NULL AND s.remind_at <= :now
  AND a.state = 'pending' AND a.quote_version = q.version AND q.state = 'pending_approval'
ORDER BY s.remind_at, s.approval_id, s.slot LIMIT :at_most;

-- name: slots_to_escalate
SELECT s.approval_id, s.slot, s.escalate_at AS due_at, a.quote_id, a.quote_version, q.team_id
FROM approval_slots AS s CROSS JOIN approvals AS a USING (approval_id) CROSS JOIN quotes AS q USING (quote_id)
WHERE (s.state = 'pending' OR s.state = 'escalated') AND s.escalate_at <= :now
  AND a.state = 'pending' AND a.quote_version = q.version AND q.state = 'pending_approval'
ORDER BY s.escalate_at, s.approval_id, s.slot LIMIT :at_most;

-- name: slots_to_expire
SELECT s.approval_id, s.slot, s.expires_at AS due_at, a.quote_id, a.quote_version, q.team_id
FROM approval_slots AS s CROSS JOIN approvals AS a USING (approval_id) CROSS JOIN quotes AS q USING (quote_id)
WHERE (s.state = 'pending' OR s.state = 'escalated') AND s.expires_at <= :now
  AND a.state = 'pending' AND a.quote_version = q.version AND q.state = 'pending_approval'
ORDER BY s.expires_at, s.approval_id, s.slot LIMIT :at_most;

-- name: insert_delegation
INSERT INTO delegations (operation_key, team_id, absent, delegate, since, until)
VALUES (:operation_key, :team_id, :absent, :delegate, :since, :until);

-- name: delegations_at
-- The newest of each person, if it is in force and names somebody.
SELECT d.absent, d.delegate, d.since, d.until FROM delegations AS d
WHERE d.team_id = :team_id AND d.since <= :now AND :now < d.until AND d.delegate IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM delegations AS n WHERE n.team_id = d.team_id AND n.absent = d.absent AND n.since <= :now
    AND (n.since, n.operation_key) > (d.since, d.operation_key))
ORDER BY d.absent;

-- name: transport_of_operation
-- By the request id that the operation was first seen under: deliveries have no index of their operations.
SELECT d.transport FROM operations AS o JOIN deliveries AS d
  ON d.source = o.source AND d.source_request_id = o.source_request_id AND d.action_kind = o.action_kind
WHERE o.id = :operation_id;
