-- Statements of the store that PostgreSQL takes in another form: each replaces the one of the same name in quotebot/store/queries.sql.

-- name: zones_of_people
SELECT p.user_id, p.zone FROM people AS p
WHERE p.team_id = :team_id AND p.user_id IN (SELECT json_array_elements_text(:users::json)) AND p.zone <> '';

-- name: homes_to_redraw
SELECT h.user_id FROM homes AS h
WHERE h.team_id = :team_id AND h.user_id IN (SELECT json_array_elements_text(:users::json))
  AND NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.supersede_key = 'home:' || h.user_id AND e.state = 'pending')
ORDER BY h.user_id;

-- name: approvals_waiting
SELECT a.quote_id, a.quote_version, a.approval_id, min(s.expires_at) AS due_at
FROM approvals AS a
  JOIN quotes AS q ON q.quote_id = a.quote_id AND q.version = a.quote_version
  JOIN approval_slots AS s ON s.approval_id = a.approval_id AND (s.state = 'pending' OR s.state = 'escalated')
WHERE a.state = 'pending' AND q.team_id = :team_id AND q.state = 'pending_approval'
GROUP BY a.approval_id
ORDER BY due_at, a.requested_at, a.approval_id LIMIT :limit;

-- name: gone_holders
SELECT DISTINCT p.user_id FROM people AS p
WHERE p.kind <> 'member' AND p.user_id IN (SELECT json_array_elements_text(:users::json))
  AND p.team_id = coalesce(:team_id, p.team_id);

-- name: open_slots
SELECT s.approval_id, s.slot, s.roles, s.asked, s.assignee, s.opened_at, a.quote_id, a.requested_by, q.version, q.requester, q.team_id
FROM approvals AS a
  JOIN quotes AS q ON q.quote_id = a.quote_id AND q.version = a.quote_version
  JOIN approval_slots AS s ON s.approval_id = a.approval_id AND (s.state = 'pending' OR s.state = 'escalated')
WHERE a.state = 'pending' AND q.state = 'pending_approval'
  AND NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.lane = q.quote_id AND o.aggregate_id <> 'new' AND o.finished_at IS NULL)
ORDER BY s.approval_id, s.slot;

-- name: lock_twins
SELECT :requester AS requester, :asked_hash AS asked_hash
FROM pg_advisory_xact_lock(hashtextextended(:requester || ' ' || :asked_hash, 0));
