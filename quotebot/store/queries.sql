-- Every statement of the domain's store, named.

-- name: next_quote_number
INSERT INTO quote_numbers (year, last) VALUES (:year, 1)
ON CONFLICT (year) DO UPDATE SET last = quote_numbers.last + 1
RETURNING last;

-- name: insert_quote
INSERT INTO quotes (
  quote_id, version, state, account, requester, requester_name, team_id, channel, created_at, valid_until, created_by_operation, asked_hash,
  recorded_at, root_effect_key, updated_at)
VALUES (
  :quote_id, :version, :state, :account, :requester, :requester_name, :team_id, :channel, :created_at, :valid_until, :created_by_operation,
  :asked_hash, :recorded_at, :root_effect_key, :created_at);

-- name: record_opportunity
INSERT INTO quote_opportunities (quote_id, record_id, account_id) VALUES (:quote_id, :record_id, :account_id);

-- name: record_inherited_maker
INSERT INTO inherited_makers (quote_id, maker) VALUES (:quote_id, :maker);

-- name: earlier_makers
-- Makers of the versions before this one, back to the last one that people approved; with none, also those of a clone's source.
SELECT superseded_by AS maker FROM superseded_versions
WHERE quote_id = :quote_id AND version < :version - 1 AND version >= coalesce((
  SELECT max(quote_version) FROM approvals
  WHERE quote_id = :quote_id AND quote_version < :version AND state = 'approved' AND decided_role IS NOT NULL AND earlier IS NULL), 1)
UNION
SELECT maker FROM inherited_makers WHERE quote_id = :quote_id AND NOT EXISTS (
  SELECT 1 FROM approvals
  WHERE quote_id = :quote_id AND quote_version < :version AND state = 'approved' AND decided_role IS NOT NULL AND earlier IS NULL)
ORDER BY maker;

-- name: lock_twins
-- One of two equal creations at a time: PostgreSQL lets the second look after the first has committed.
SELECT :requester AS requester, :asked_hash AS asked_hash;

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
SELECT q.*, v.pricing, v.pricing_hash, p.superseded_by AS revised_by, p.superseded_at AS revised_at,
  s.recipient, s.sent_by, s.sent_at, f.frozen_by, f.frozen_at, c.reason AS closing_reason, c.closed_by, c.closed_at,
  y.record_id AS opportunity_id, y.account_id AS opportunity_account_id, d.channel AS card_channel,
  0 AS superseded
FROM quotes AS q
JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
LEFT JOIN superseded_versions AS p ON p.quote_id = q.quote_id AND p.version = q.version - 1
LEFT JOIN quote_sendings AS s ON s.quote_id = q.quote_id AND s.version = q.version
LEFT JOIN quote_freezings AS f ON f.quote_id = q.quote_id AND f.version = q.version
LEFT JOIN quote_closings AS c ON c.quote_id = q.quote_id
LEFT JOIN quote_opportunities AS y ON y.quote_id = q.quote_id
LEFT JOIN quote_places AS d ON d.quote_id = q.quote_id
WHERE q.quote_id = :quote_id;

-- name: load_superseded
-- One version that is no longer the head, as it was when the next one was made.
SELECT q.quote_id, v.version, o.state, q.account, q.requester, q.requester_name, q.team_id, q.channel, q.created_at, o.valid_until,
  q.thread_ts, v.pricing, v.pricing_hash, p.superseded_by AS revised_by, p.superseded_at AS revised_at,
  s.recipient, s.sent_by, s.sent_at, f.frozen_by, f.frozen_at, NULL AS closing_reason, NULL AS closed_by, NULL AS closed_at,
  y.record_id AS opportunity_id, y.account_id AS opportunity_account_id, d.channel AS card_channel,
  1 AS superseded
FROM superseded_versions AS o
JOIN quotes AS q ON q.quote_id = o.quote_id
JOIN quote_versions AS v ON v.quote_id = o.quote_id AND v.version = o.version
LEFT JOIN superseded_versions AS p ON p.quote_id = o.quote_id AND p.version = o.version - 1
LEFT JOIN quote_sendings AS s ON s.quote_id = o.quote_id AND s.version = o.version
LEFT JOIN quote_freezings AS f ON f.quote_id = o.quote_id AND f.version = o.version
LEFT JOIN quote_opportunities AS y ON y.quote_id = o.quote_id
LEFT JOIN quote_places AS d ON d.quote_id = o.quote_id
WHERE o.quote_id = :quote_id AND o.version = :version;

-- name: supersede_version
INSERT INTO superseded_versions (quote_id, version, state, valid_until, superseded_by, superseded_at)
VALUES (:quote_id, :version, :state, :valid_until, :superseded_by, :superseded_at);

-- name: next_version
-- any state that is not final -> priced, under the next number
UPDATE quotes SET version = version + 1, state = 'priced', valid_until = :valid_until, updated_at = :now
WHERE quote_id = :quote_id AND version = :version AND state = :old_state
RETURNING quote_id;

-- name: record_sending
INSERT INTO quote_sendings (quote_id, version, recipient, sent_by, sent_at)
VALUES (:quote_id, :version, :recipient, :sent_by, :sent_at);

-- name: record_freezing
INSERT INTO quote_freezings (quote_id, version, frozen_by, frozen_at) VALUES (:quote_id, :version, :frozen_by, :frozen_at);

-- name: record_closing
INSERT INTO quote_closings (quote_id, version, state, reason, closed_by, closed_at)
VALUES (:quote_id, :version, :state, :reason, :closed_by, :closed_at);

-- name: quote_origin
SELECT requester, channel FROM quotes WHERE quote_id = :quote_id;

-- name: list_quotes
-- The newest first. `states` is " priced sent ", empty for every state; `account` a piece of the customer's name, or empty. `seen` is
-- " C1 C2 ", channels, or NULL for all: of others only the quotes of these, beside the `viewer`'s own.
SELECT q.quote_id, q.version, q.state, q.account, q.requester, q.requester_name, q.team_id, q.channel, q.created_at, q.valid_until,
  json_extract(v.pricing, '$.net_total') AS net_total, json_extract(v.pricing, '$.currency') AS currency
FROM quotes AS q JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
WHERE q.team_id = :team_id
  AND (q.requester = :owner OR :owner IS NULL)
  AND (:states = '' OR instr(:states, ' ' || q.state || ' ') > 0)
  AND (:account = '' OR instr(lower(q.account), lower(:account)) > 0)
  AND (q.requester = :viewer OR instr(:seen, ' ' || q.channel || ' ') > 0 OR :seen IS NULL)
ORDER BY q.created_at DESC, q.quote_id DESC
LIMIT :limit OFFSET :offset;

-- name: last_quotes_of_account
-- Of the same customer by name, the newest first.
SELECT q.quote_id, q.version, q.state, q.account, q.requester, q.requester_name, q.team_id, q.channel, q.created_at, q.valid_until,
  json_extract(v.pricing, '$.net_total') AS net_total, json_extract(v.pricing, '$.currency') AS currency
FROM quotes AS q JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
WHERE q.team_id = :team_id AND lower(q.account) = lower(:account) AND q.quote_id <> :quote_id
ORDER BY q.created_at DESC, q.quote_id DESC
LIMIT :limit;

-- name: channels_of_account
-- Where quotes of others are for a customer with this piece of a name.
SELECT DISTINCT channel FROM quotes
WHERE team_id = :team_id AND requester <> :viewer AND instr(lower(account), lower(:account)) > 0;

-- name: name_of_requester
SELECT requester_name FROM quotes WHERE requester = :requester AND team_id = :team_id AND requester_name <> ''
ORDER BY recorded_at DESC LIMIT 1;

-- name: teams_of_quotes
SELECT (SELECT min(team_id) FROM quotes) AS first, (SELECT max(team_id) FROM quotes) AS last;

-- name: move_quote
UPDATE quotes SET state = :state, updated_at = :now
WHERE quote_id = :quote_id AND version = :version AND state = :old_state
RETURNING quote_id;

-- name: set_thread
UPDATE quotes SET thread_ts = :thread_ts, updated_at = :now WHERE quote_id = :quote_id
RETURNING quote_id;

-- name: own_operation_of_ref
-- By the first digits of its key; of two that share them, the newer one.
SELECT * FROM operations
WHERE operation_key >= :prefix AND operation_key < :prefix || 'g' AND actor = :actor AND team_id = :team_id
ORDER BY id DESC LIMIT 1;

-- name: quote_of_thread
SELECT q.quote_id FROM quotes AS q LEFT JOIN quote_places AS d ON d.quote_id = q.quote_id
WHERE q.thread_ts = :thread_ts AND coalesce(d.channel, q.channel) = :channel AND q.team_id = :team_id;

-- name: card_of_quote
SELECT coalesce(d.channel, q.channel) AS channel, q.thread_ts FROM quotes AS q LEFT JOIN quote_places AS d ON d.quote_id = q.quote_id
WHERE q.quote_id = :quote_id;

-- name: earlier_card_of_quote
SELECT 1 AS one FROM effects
WHERE aggregate_id = :quote_id AND class = :class AND external_ref = :ts AND json_extract(payload, '$.what') = 'root' LIMIT 1;

-- name: reminder_of_quote
SELECT 1 AS one FROM effects
WHERE aggregate_id = :quote_id AND class = :class AND json_extract(payload, '$.decide') IS NOT NULL
  AND (external_ref = :ts OR (external_ref IS NULL AND state IN ('in_flight', 'uncertain'))) LIMIT 1;

-- name: move_card
-- The first move is the last one.
INSERT INTO quote_places (quote_id, channel, moved_at) VALUES (:quote_id, :channel, :now)
ON CONFLICT (quote_id) DO NOTHING;

-- name: replace_root
INSERT INTO replaced_roots (quote_id, dead_ts, post_key, replaced_at) VALUES (:quote_id, :dead_ts, :post_key, :now)
ON CONFLICT (quote_id, dead_ts) DO NOTHING
RETURNING post_key;

-- name: replaced_root
SELECT post_key FROM replaced_roots WHERE quote_id = :quote_id AND dead_ts = :dead_ts;

-- name: count_approvals
SELECT count(*) AS requests FROM approvals WHERE quote_id = :quote_id AND quote_version = :quote_version;

-- name: latest_approval
-- Its id ends with a number that grows; a clock may have been set back between two requests.
SELECT a.*, p.policy, p.ruleset_hash, p.remind_ms, p.escalate_ms, p.expire_ms, c.calendar, r.roles AS own_roles, n.note FROM approvals AS a
LEFT JOIN approval_policies AS p ON p.approval_id = a.approval_id
LEFT JOIN approval_calendars AS c ON c.approval_id = a.approval_id
LEFT JOIN approval_roles AS r ON r.approval_id = a.approval_id
LEFT JOIN approval_notes AS n ON n.approval_id = a.approval_id
WHERE a.quote_id = :quote_id AND a.quote_version = :quote_version
ORDER BY length(a.approval_id) DESC, a.approval_id DESC LIMIT 1;

-- name: approval_of_id
SELECT a.*, p.policy, p.ruleset_hash, p.remind_ms, p.escalate_ms, p.expire_ms, c.calendar, r.roles AS own_roles, n.note FROM approvals AS a
LEFT JOIN approval_policies AS p ON p.approval_id = a.approval_id
LEFT JOIN approval_calendars AS c ON c.approval_id = a.approval_id
LEFT JOIN approval_roles AS r ON r.approval_id = a.approval_id
LEFT JOIN approval_notes AS n ON n.approval_id = a.approval_id
WHERE a.approval_id = :approval_id;

-- name: approval_copies
-- A post that failed shows nothing; when it is replayed, it shows the state of then.
SELECT c.approval_id, c.user_id, c.post_key, c.channel, c.ts, c.lost, c.drawings,
  c.ts IS NOT NULL OR EXISTS (
    SELECT 1 FROM effects AS e WHERE e.effect_key = c.post_key AND e.state IN ('pending', 'in_flight', 'uncertain')) AS shown
FROM approval_copies AS c WHERE c.approval_id = :approval_id AND c.user_id = coalesce(:user_id, c.user_id) ORDER BY c.user_id;

-- name: open_requests
-- One page: those after a request, the oldest first.
SELECT quote_id, approval_id, requested_at FROM approvals
WHERE state = 'pending' AND (requested_at, approval_id) > (:requested_at, :approval_id)
ORDER BY requested_at, approval_id LIMIT :limit;

-- name: approval_copies_of_operation
SELECT json_extract(payload, '$.user') AS user_id FROM effects WHERE operation_id = :operation_id AND class = 'slack.direct';

-- name: add_approval_copy
INSERT INTO approval_copies (approval_id, user_id, post_key, added_at) VALUES (:approval_id, :user_id, :post_key, :now);

-- name: place_approval_copy
UPDATE approval_copies SET channel = :channel, ts = :ts
WHERE approval_id = :approval_id AND user_id = :user_id AND post_key = :post_key;

-- name: draw_approval_copy
UPDATE approval_copies SET lost = :lost, drawings = drawings + 1 WHERE approval_id = :approval_id AND user_id = :user_id;

-- name: insert_approval
INSERT INTO approvals (
  approval_id, quote_id, quote_version, required_roles, reasons, state, requested_by, requested_at, decided_by, decided_role,
  decided_at, decision_reason, earlier)
VALUES (
  :approval_id, :quote_id, :quote_version, :required_roles, :reasons, :state, :requested_by, :requested_at, :decided_by,
  :decided_role, :decided_at, :decision_reason, :earlier);

-- name: insert_approval_policy
INSERT INTO approval_policies (approval_id, policy, ruleset_hash, remind_ms, escalate_ms, expire_ms)
VALUES (:approval_id, :policy, :ruleset_hash, :remind_ms, :escalate_ms, :expire_ms);

-- name: insert_approval_calendar
INSERT INTO approval_calendars (approval_id, calendar) VALUES (:approval_id, :calendar);

-- name: insert_approval_roles
INSERT INTO approval_roles (approval_id, roles) VALUES (:approval_id, :roles);

-- name: insert_approval_note
INSERT INTO approval_notes (approval_id, note) VALUES (:approval_id, :note);

-- name: zones_of_people
-- Of the people in a JSON list.
SELECT p.user_id, p.zone FROM json_each(:users) AS u CROSS JOIN people AS p ON p.team_id = :team_id AND p.user_id = u.value
WHERE p.zone <> '';

-- name: decide_approval
UPDATE approvals
SET state = :state, decided_by = :decided_by, decided_role = :decided_role, decided_at = :decided_at,
  decision_reason = :decision_reason
WHERE approval_id = :approval_id AND state = 'pending'
RETURNING approval_id;

-- name: last_decided_approval
-- What people last decided about any version of the quote, with the price they saw and the end of that version's offer. Nobody
-- decided an automatic approval, nor one that rests on an `earlier` one.
SELECT a.*, p.policy, p.ruleset_hash, p.remind_ms, p.escalate_ms, p.expire_ms, c.calendar, r.roles AS own_roles, n.note, v.pricing,
  coalesce(o.valid_until, q.valid_until) AS valid_until
FROM approvals AS a
LEFT JOIN approval_policies AS p ON p.approval_id = a.approval_id
LEFT JOIN approval_calendars AS c ON c.approval_id = a.approval_id
LEFT JOIN approval_roles AS r ON r.approval_id = a.approval_id
LEFT JOIN approval_notes AS n ON n.approval_id = a.approval_id
JOIN quote_versions AS v ON v.quote_id = a.quote_id AND v.version = a.quote_version
JOIN quotes AS q ON q.quote_id = a.quote_id
LEFT JOIN superseded_versions AS o ON o.quote_id = a.quote_id AND o.version = a.quote_version
WHERE a.quote_id = :quote_id AND a.state IN ('approved', 'rejected', 'changes_requested') AND a.decided_role IS NOT NULL
  AND a.earlier IS NULL
ORDER BY a.quote_version DESC, length(a.approval_id) DESC, a.approval_id DESC LIMIT 1;

-- name: last_deciders
SELECT s.decided_by, s.on_behalf_of FROM approval_slots AS s
WHERE s.decided_by IS NOT NULL AND s.approval_id = (
  SELECT a.approval_id FROM approvals AS a
  WHERE a.quote_id = :quote_id AND a.state = 'approved' AND a.decided_role IS NOT NULL AND a.earlier IS NULL
  ORDER BY a.quote_version DESC, length(a.approval_id) DESC, a.approval_id DESC LIMIT 1)
ORDER BY s.slot;

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

-- name: insert_delegation
INSERT INTO delegations (operation_key, team_id, absent, delegate, since, until, asked_at, reason)
VALUES (:operation_key, :team_id, :absent, :delegate, :since, :until, :asked_at, :reason);

-- name: delegations_at
-- Who is away at :now. Of absences of one person that overlap the one told of last counts, and none before they said they are back.
SELECT d.absent, d.delegate, d.since, d.until, d.reason FROM delegations AS d
WHERE d.team_id = :team_id AND d.since <= :now AND :now < d.until AND d.delegate IS NOT NULL
  AND coalesce(d.asked_at, d.since) <= :now AND NOT EXISTS (
  SELECT 1 FROM delegations AS n WHERE n.team_id = d.team_id AND n.absent = d.absent
    AND (n.delegate IS NULL OR n.since < d.until AND d.since < n.until) AND coalesce(n.asked_at, n.since) <= :now
    AND (coalesce(n.asked_at, n.since), n.operation_key) > (coalesce(d.asked_at, d.since), d.operation_key))
ORDER BY d.absent;

-- name: delegations_of
-- What a person is part of at :now or later: their own absences, and those in which they are asked instead.
SELECT d.absent, d.delegate, d.since, d.until, d.reason FROM delegations AS d
WHERE d.team_id = :team_id AND (d.absent = :user OR d.delegate = :user) AND :now < d.until AND d.delegate IS NOT NULL
  AND NOT EXISTS (
  SELECT 1 FROM delegations AS n WHERE n.team_id = d.team_id AND n.absent = d.absent
    AND (n.delegate IS NULL OR n.since < d.until AND d.since < n.until) AND coalesce(n.asked_at, n.since) <= :now
    AND (coalesce(n.asked_at, n.since), n.operation_key) > (coalesce(d.asked_at, d.since), d.operation_key))
ORDER BY d.since, d.absent, d.operation_key;

-- name: known_person
SELECT kind, fetched_at, name, zone, email, phone FROM people WHERE team_id = :team_id AND user_id = :user_id;

-- name: keep_person
-- What Slack said last counts, whichever of two answers is written first. One of more than `trusted_ms` later was written under a
-- clock that was ahead.
INSERT INTO people (team_id, user_id, kind, fetched_at, name, zone, email, phone)
VALUES (:team_id, :user_id, :kind, :fetched_at, :name, :zone, :email, :phone)
ON CONFLICT (team_id, user_id) DO UPDATE
SET kind = excluded.kind, fetched_at = excluded.fetched_at, name = excluded.name, zone = excluded.zone,
  email = excluded.email, phone = excluded.phone
WHERE excluded.fetched_at >= people.fetched_at OR people.fetched_at - excluded.fetched_at > :trusted_ms;

-- name: acts_for_others
-- The people in whose names a quote was made, changed or decided about until a time, and who did it: the system user at a terminal,
-- or the operator who edited a dead command. Of a clone also the event that made it: its source, and when it was copied.
WITH RECURSIVE walk (id) AS (
  SELECT event_id FROM audit_heads WHERE aggregate_id = :quote_id
  UNION ALL
  SELECT e.previous_id FROM walk AS w JOIN audit_events AS e ON e.id = w.id WHERE e.previous_id IS NOT NULL
)
SELECT DISTINCT e.actor, json_extract(e.after, '$.terminal_user') AS terminal_user, json_extract(e.after, '$.edited_by') AS edited_by,
  json_extract(e.after, '$.cloned_from') AS cloned_from, e.at
FROM walk AS w CROSS JOIN audit_events AS e
WHERE e.id = w.id AND (e.event_type LIKE 'quote.%' OR e.event_type LIKE 'approval.%') AND e.event_type <> 'approval.refused'
  AND e.at <= :until AND (json_extract(e.after, '$.terminal_user') IS NOT NULL OR json_extract(e.after, '$.edited_by') IS NOT NULL
    OR json_extract(e.after, '$.cloned_from') IS NOT NULL);

-- name: transport_of_operation
-- By the request id that the operation was first seen under: deliveries have no index of their operations.
SELECT d.transport FROM operations AS o JOIN deliveries AS d
  ON d.source = o.source AND d.source_request_id = o.source_request_id AND d.action_kind = o.action_kind
WHERE o.id = :operation_id;

-- name: quotes_to_expire
-- A quote with a command under way waits for its end: what was asked in time is decided first.
SELECT q.quote_id, q.team_id, q.valid_until FROM quotes AS q
WHERE q.valid_until <= :until
  AND q.state <> 'accepted' AND q.state <> 'lost' AND q.state <> 'cancelled' AND q.state <> 'expired'
  AND NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.lane = q.quote_id AND o.aggregate_id <> 'new' AND o.finished_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM schedule_marks AS m
    WHERE m.job = :job AND m.name = q.quote_id AND m.anchor = q.valid_until AND m.marked_at <= :now)
ORDER BY q.valid_until, q.quote_id LIMIT :limit;

-- name: stale_drafts
SELECT q.quote_id, q.team_id, q.updated_at FROM quotes AS q
WHERE q.updated_at <= :until AND q.state IN ('draft', 'validated', 'priced') AND q.valid_until > :now
  AND NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.lane = q.quote_id AND o.aggregate_id <> 'new' AND o.finished_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM schedule_marks AS m
    WHERE m.job = :job AND m.name = q.quote_id AND m.anchor = q.updated_at AND m.marked_at <= :now)
ORDER BY q.updated_at, q.quote_id LIMIT :limit;

-- name: slots_to_remind
-- Each of the three has an index of the open slots by its time; the CROSS JOIN makes SQLite begin there. A request ends with
-- its version and with its quote; were one left open, it would be due for nothing all the same.
SELECT s.approval_id, s.slot, s.remind_at AS due_at, a.quote_id, q.team_id
FROM approval_slots AS s CROSS JOIN approvals AS a CROSS JOIN quotes AS q
WHERE a.approval_id = s.approval_id AND q.quote_id = a.quote_id
  AND s.state = 'pending' AND s.reminded_at IS NULL AND s.remind_at <= :until
  AND a.state = 'pending' AND a.quote_version = q.version AND q.state = 'pending_approval' AND q.valid_until > :now
  AND NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.lane = q.quote_id AND o.aggregate_id <> 'new' AND o.finished_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM schedule_marks AS m
    WHERE m.job = :job AND m.name = s.approval_id || '/' || s.slot AND m.anchor = s.remind_at AND m.marked_at <= :now)
ORDER BY s.remind_at, s.approval_id, s.slot LIMIT :limit;

-- name: slots_to_escalate
SELECT s.approval_id, s.slot, s.escalate_at AS due_at, a.quote_id, q.team_id
FROM approval_slots AS s CROSS JOIN approvals AS a CROSS JOIN quotes AS q
WHERE a.approval_id = s.approval_id AND q.quote_id = a.quote_id
  AND (s.state = 'pending' OR s.state = 'escalated') AND s.escalate_at <= :until
  AND a.state = 'pending' AND a.quote_version = q.version AND q.state = 'pending_approval' AND q.valid_until > :now
  AND NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.lane = q.quote_id AND o.aggregate_id <> 'new' AND o.finished_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM schedule_marks AS m
    WHERE m.job = :job AND m.name = s.approval_id || '/' || s.slot AND m.anchor = s.escalate_at AND m.marked_at <= :now)
ORDER BY s.escalate_at, s.approval_id, s.slot LIMIT :limit;

-- name: slots_to_expire
SELECT s.approval_id, s.slot, s.expires_at AS due_at, a.quote_id, q.team_id
FROM approval_slots AS s CROSS JOIN approvals AS a CROSS JOIN quotes AS q
WHERE a.approval_id = s.approval_id AND q.quote_id = a.quote_id
  AND (s.state = 'pending' OR s.state = 'escalated') AND s.expires_at <= :until
  AND a.state = 'pending' AND a.quote_version = q.version AND q.state = 'pending_approval' AND q.valid_until > :now
  AND NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.lane = q.quote_id AND o.aggregate_id <> 'new' AND o.finished_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM schedule_marks AS m
    WHERE m.job = :job AND m.name = s.approval_id || '/' || s.slot AND m.anchor = s.expires_at AND m.marked_at <= :now)
ORDER BY s.expires_at, s.approval_id, s.slot LIMIT :limit;

-- name: touched_at
SELECT updated_at FROM quotes WHERE quote_id = :quote_id;

-- name: schedule_mark
SELECT anchor, slot, marked_at FROM schedule_marks WHERE job = :job AND name = :name;

-- name: mark_slot
INSERT INTO schedule_marks (job, name, anchor, slot, outcome, marked_at) VALUES (:job, :name, :anchor, :slot, :outcome, :now)
ON CONFLICT (job, name) DO UPDATE
SET anchor = excluded.anchor, slot = excluded.slot, outcome = excluded.outcome, marked_at = excluded.marked_at;

-- name: active_ruleset
SELECT version, hash FROM rulesets WHERE state = 'active';

-- name: ruleset_document
SELECT document FROM rulesets WHERE version = :version;

-- name: ruleset_version
-- Without its document, which may be large.
SELECT version, hash, label, products, books, state, origin, note, imported_by, imported_at, activated_by, activated_at, retired_at
FROM rulesets WHERE version = :version;

-- name: ruleset_of_hash
SELECT version FROM rulesets WHERE hash = :hash AND state <> 'discarded';

-- name: ruleset_of_label
SELECT version FROM rulesets WHERE label = :label AND state <> 'discarded';

-- name: ruleset_versions
-- The newest first, those before a version.
SELECT version, hash, label, products, books, state, origin, note, imported_by, imported_at, activated_by, activated_at, retired_at
FROM rulesets WHERE version < :before ORDER BY version DESC LIMIT :limit;

-- name: next_ruleset_version
SELECT coalesce(max(version), 0) + 1 AS version FROM rulesets;

-- name: insert_ruleset
INSERT INTO rulesets (version, hash, label, products, books, document, state, origin, note, imported_by, imported_at)
VALUES (:version, :hash, :label, :products, :books, :document, 'draft', :origin, :note, :imported_by, :imported_at);

-- name: retire_ruleset
-- active -> retired
UPDATE rulesets SET state = 'retired', retired_at = :now WHERE state = 'active'
RETURNING version;

-- name: activate_ruleset
-- draft, retired -> active
UPDATE rulesets SET state = 'active', activated_by = :actor, activated_at = :now, retired_at = NULL
WHERE version = :version AND (state = 'draft' OR state = 'retired')
RETURNING version;

-- name: discard_ruleset
-- draft -> discarded
UPDATE rulesets SET state = 'discarded' WHERE version = :version AND state = 'draft'
RETURNING version;

-- name: ruleset_request
SELECT fingerprint, answer FROM ruleset_requests WHERE request_id = :request_id;

-- name: insert_ruleset_request
INSERT INTO ruleset_requests (request_id, fingerprint, answer, requested_by, requested_at)
VALUES (:request_id, :fingerprint, :answer, :requested_by, :requested_at);

-- name: snapshots_after
-- Every priced version of every quote, in order, some at a time.
SELECT quote_id, version, ruleset, pricing, pricing_hash FROM quote_versions
WHERE quote_id > :quote_id OR (quote_id = :quote_id AND version > :version)
ORDER BY quote_id, version LIMIT :limit;

-- name: count_snapshots
-- All of them: every id is above the empty one. Only a progress bar asks.
SELECT count(*) AS snapshots FROM quote_versions WHERE quote_id > '';

-- name: dead_effects_with_card
SELECT count(*) AS cards FROM effects AS e
WHERE e.ever_failed = 1 AND e.updated_at >= :since AND e.state = 'failed'
  AND EXISTS (SELECT 1 FROM letter_cards AS c WHERE c.reference = '' || e.id);

-- name: dead_operations_with_card
SELECT count(*) AS cards FROM operations AS o
WHERE o.ever_failed = 1 AND o.updated_at >= :since AND o.state = 'failed_terminal'
  AND EXISTS (SELECT 1 FROM letter_cards AS c WHERE c.reference = 'op' || o.id);

-- name: dead_effects_without_card
-- Those that wait longest first, of whose present cycle no card tells. What failed about a card is no letter that gets a card.
SELECT '' || e.id AS reference, o.team_id, e.class, e.cycle,
  e.class || '/' || coalesce(e.category, 'unknown') || '/' || coalesce(e.code, 'unknown') AS cause
FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.ever_failed = 1 AND e.updated_at >= :since AND e.state = 'failed'
  AND substr(e.aggregate_id, 1, 7) <> 'letter:' AND substr(e.aggregate_id, 1, 4) <> 'ops:'
  AND NOT EXISTS (SELECT 1 FROM letter_cards AS c WHERE c.reference = '' || e.id AND c.cycle >= e.cycle)
  AND NOT EXISTS (SELECT 1 FROM ops_cards AS k WHERE k.closed_at IS NULL AND k.subject = 'cause:' ||
    e.class || '/' || coalesce(e.category, 'unknown') || '/' || coalesce(e.code, 'unknown'))
ORDER BY e.updated_at, e.id
LIMIT :limit;

-- name: dead_operations_without_card
-- As dead_effects_without_card.
SELECT 'op' || o.id AS reference, o.team_id, o.action_kind AS class, o.cycle,
  o.action_kind || '/' || coalesce(o.category, 'unknown') || '/' || coalesce(o.code, 'unknown') AS cause
FROM operations AS o
WHERE o.ever_failed = 1 AND o.updated_at >= :since AND o.state = 'failed_terminal'
  AND substr(o.aggregate_id, 1, 7) <> 'letter:' AND substr(o.aggregate_id, 1, 4) <> 'ops:'
  AND NOT EXISTS (SELECT 1 FROM letter_cards AS c WHERE c.reference = 'op' || o.id AND c.cycle >= o.cycle)
  AND NOT EXISTS (SELECT 1 FROM ops_cards AS k WHERE k.closed_at IS NULL AND k.subject = 'cause:' ||
    o.action_kind || '/' || coalesce(o.category, 'unknown') || '/' || coalesce(o.code, 'unknown'))
ORDER BY o.updated_at, o.id
LIMIT :limit;

-- name: recent_letter_cards
SELECT class, count(*) AS cards FROM letter_cards WHERE announced_at > :since AND class IS NOT NULL GROUP BY class;

-- name: waiting_of_cause
SELECT count(*) AS letters, count(DISTINCT aggregate_id) AS aggregates, min(updated_at) AS oldest_at,
  max(CAST(json_extract(failure_history, '$[#-1].replayed_at') AS BIGINT)) AS replayed_at
FROM dead_letters
WHERE updated_at >= :since AND status = 'pending' AND substr(aggregate_id, 1, 7) <> 'letter:' AND substr(aggregate_id, 1, 4) <> 'ops:'
  AND class || '/' || coalesce(category, 'unknown') || '/' || coalesce(code, 'unknown') = :cause;

-- name: waiting_of_causes
SELECT class || '/' || coalesce(category, 'unknown') || '/' || coalesce(code, 'unknown') AS cause, count(*) AS letters,
  count(DISTINCT aggregate_id) AS aggregates, min(updated_at) AS oldest_at,
  max(CAST(json_extract(failure_history, '$[#-1].replayed_at') AS BIGINT)) AS replayed_at
FROM dead_letters
WHERE updated_at >= :since AND status = 'pending' AND substr(aggregate_id, 1, 7) <> 'letter:' AND substr(aggregate_id, 1, 4) <> 'ops:'
GROUP BY 1;

-- name: dead_letters_of_cause
SELECT kind, id, class, aggregate_id, correlation_id, last_error, updated_at, cycle FROM dead_letters
WHERE updated_at >= :since AND status = 'pending' AND substr(aggregate_id, 1, 7) <> 'letter:' AND substr(aggregate_id, 1, 4) <> 'ops:'
  AND class || '/' || coalesce(category, 'unknown') || '/' || coalesce(code, 'unknown') = :cause
  AND (updated_at <= :upto OR :upto IS NULL)
ORDER BY updated_at, id
LIMIT :limit;

-- name: newest_of_cause
SELECT last_error FROM dead_letters
WHERE updated_at >= :since AND status = 'pending' AND substr(aggregate_id, 1, 7) <> 'letter:' AND substr(aggregate_id, 1, 4) <> 'ops:'
  AND class || '/' || coalesce(category, 'unknown') || '/' || coalesce(code, 'unknown') = :cause
ORDER BY updated_at DESC, id DESC LIMIT 1;

-- name: waiting_of_family
SELECT count(*) AS effects, count(DISTINCT aggregate_id) AS aggregates, min(created_at) AS oldest_at FROM effects
WHERE class > :family || '.' AND class < :family || '/' AND next_attempt_at IS NOT NULL AND state IN ('pending', 'uncertain');

-- name: team_of_family
SELECT o.team_id FROM effects AS e JOIN operations AS o ON o.id = e.operation_id
WHERE e.class > :family || '.' AND e.class < :family || '/' AND e.next_attempt_at IS NOT NULL LIMIT 1;

-- name: ops_card
-- What redraws the card waits for its message; the command that posted it may have been purged since.
SELECT c.*, (SELECT e.effect_key FROM effects AS e WHERE e.effect_key = c.post_key AND c.ts IS NULL) AS awaited
FROM ops_cards AS c WHERE c.subject = :subject;

-- name: open_ops_cards
SELECT c.*, (SELECT e.effect_key FROM effects AS e WHERE e.effect_key = c.post_key AND c.ts IS NULL) AS awaited
FROM ops_cards AS c WHERE c.closed_at IS NULL ORDER BY c.subject;

-- name: put_ops_card
INSERT INTO ops_cards (subject, team_id, channel, post_key, revision, shown, opened_at, refreshed_at)
VALUES (:subject, :team_id, :channel, :post_key, 1, :shown, :now, :now)
ON CONFLICT (subject) DO UPDATE SET channel = excluded.channel, post_key = excluded.post_key, ts = NULL,
  revision = ops_cards.revision + 1, shown = excluded.shown, opened_at = excluded.opened_at, refreshed_at = excluded.refreshed_at,
  closed_at = NULL, decided_by = NULL, decided_at = NULL
RETURNING subject;

-- name: refresh_ops_card
UPDATE ops_cards SET shown = :shown, revision = revision + 1, refreshed_at = :now, closed_at = CASE WHEN :over = 1 THEN CAST(:now AS BIGINT) END
WHERE subject = :subject
RETURNING subject;

-- name: place_ops_card
UPDATE ops_cards SET ts = :ts WHERE subject = :subject AND post_key = :post_key
RETURNING subject;

-- name: decide_ops_card
UPDATE ops_cards SET decided_by = :decided_by, decided_at = :upto WHERE subject = :subject
RETURNING subject;

-- name: insert_letter_card
INSERT INTO letter_cards (reference, channel, post_key, announced_at, cycle, class)
VALUES (:reference, :channel, :post_key, :now, :cycle, :class)
ON CONFLICT (reference) DO UPDATE SET channel = excluded.channel, post_key = excluded.post_key, ts = NULL,
  announced_at = excluded.announced_at, cycle = excluded.cycle, class = excluded.class, decision = NULL, decided_by = NULL,
  decided_at = NULL, reason = NULL
WHERE excluded.cycle > letter_cards.cycle
RETURNING reference;

-- name: letter_card
SELECT c.*, (SELECT e.effect_key FROM effects AS e WHERE e.effect_key = c.post_key AND c.ts IS NULL) AS awaited
FROM letter_cards AS c WHERE c.reference = :reference;

-- name: place_letter_card
UPDATE letter_cards SET ts = :ts WHERE reference = :reference AND post_key = :post_key
RETURNING reference;

-- name: forget_letter_cards
-- Of letters that were purged: nobody can press anything about them any more.
DELETE FROM letter_cards WHERE reference IN (
  SELECT c.reference FROM letter_cards AS c
  WHERE CASE WHEN substr(c.reference, 1, 2) = 'op'
    THEN NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.id = CAST(substr(c.reference, 3) AS INTEGER))
    ELSE NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.id = CAST(c.reference AS INTEGER)) END
  LIMIT :limit)
RETURNING reference;

-- name: count_orphaned_letter_cards
SELECT count(*) AS found FROM letter_cards AS c
WHERE CASE WHEN substr(c.reference, 1, 2) = 'op'
  THEN NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.id = CAST(substr(c.reference, 3) AS INTEGER))
  ELSE NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.id = CAST(c.reference AS INTEGER)) END;

-- name: decide_letter
UPDATE letter_cards SET decision = :decision, decided_by = :decided_by, decided_at = :now, reason = :reason
WHERE reference = :reference
RETURNING reference;

-- name: insert_reading
INSERT INTO readings (operation_key, team_id, user_id, asked_at) VALUES (:operation_key, :team_id, :user_id, :asked_at)
RETURNING operation_key;

-- name: answer_reading
-- Whoever comes first answers; nobody answers again.
UPDATE readings SET answered_by = :answered_by, answered_at = :now, read_by = :read_by, proposal = :proposal
WHERE operation_key = :operation_key AND answered_by IS NULL
RETURNING operation_key;

-- name: reading
SELECT r.operation_key, r.team_id, r.user_id, r.asked_at, r.answered_by, o.payload
FROM readings AS r JOIN operations AS o ON o.operation_key = r.operation_key
WHERE r.operation_key = :operation_key;

-- name: readings_today
-- What answered itself never asked the model.
SELECT count(*) AS asked FROM readings
WHERE team_id = :team_id AND user_id = :user_id AND asked_at >= :since AND (answered_by IS NULL OR answered_by <> operation_key);

-- name: reading_proposed
SELECT user_id, team_id, proposal FROM readings WHERE answered_by = :token AND proposal IS NOT NULL;

-- name: model_asked
SELECT state, category, result FROM effects WHERE effect_key = :effect_key;

-- name: readings_unanswered
-- What the model was given its time for.
SELECT r.operation_key, r.team_id, r.asked_at + :wait_ms AS due_at FROM readings AS r
WHERE r.answered_by IS NULL AND r.asked_at <= :now - :wait_ms
  AND NOT EXISTS (
    SELECT 1 FROM schedule_marks AS m
    WHERE m.job = :job AND m.name = r.operation_key AND m.anchor = r.asked_at + :wait_ms AND m.marked_at <= :now)
ORDER BY r.asked_at, r.operation_key LIMIT :limit;

-- name: insert_model_call
INSERT INTO model_calls (
  effect_key, correlation_id, model, outcome, request_sha256, answer_sha256, request, answer, called_at)
VALUES (:effect_key, :correlation_id, :model, :outcome, :request_sha256, :answer_sha256, :request, :answer, :now)
RETURNING id;

-- name: insert_summary
INSERT INTO quote_summaries (quote_id, version, summary, written_at) VALUES (:quote_id, :version, :summary, :now)
ON CONFLICT (quote_id, version) DO NOTHING
RETURNING version;

-- name: summary
SELECT summary FROM quote_summaries WHERE quote_id = :quote_id AND version = :version;

-- name: insert_advice
INSERT INTO quote_advice (quote_id, version, basis, advice) VALUES (:quote_id, :version, :basis, :advice);

-- name: advice
SELECT advice FROM quote_advice WHERE quote_id = :quote_id AND version = :version AND basis = :basis;
-- ------------------------------------------------------------------------------------------------------- generations

-- name: quote_numbers
SELECT year, last FROM quote_numbers;

-- name: skip_quote_numbers
INSERT INTO quote_numbers (year, last) VALUES (:year, :last)
ON CONFLICT (year) DO UPDATE SET last = CASE WHEN quote_numbers.last > excluded.last THEN quote_numbers.last ELSE excluded.last END;

-- name: cards_of_open_quotes
SELECT q.quote_id, q.root_effect_key, o.id AS operation_id, o.operation_key, o.correlation_id, o.attempts
FROM quotes AS q JOIN operations AS o ON o.operation_key = q.created_by_operation
WHERE q.thread_ts IS NOT NULL
  AND q.state <> 'accepted' AND q.state <> 'lost' AND q.state <> 'cancelled' AND q.state <> 'expired'
ORDER BY q.quote_id;
-- name: insert_artefact
INSERT INTO artefacts (render_key, sha256, quote_id, version, pages, rendered_at)
VALUES (:render_key, :sha256, :quote_id, :version, :pages, :now)
ON CONFLICT DO NOTHING;

-- name: artefact_of_key
-- The newest: one of the same key is there twice when the same document became other bytes, after its file was lost.
SELECT * FROM artefacts WHERE render_key = :render_key ORDER BY rendered_at DESC, sha256 LIMIT 1;

-- name: artefacts_after
SELECT * FROM artefacts WHERE (render_key, sha256) > (:render_key, :sha256) ORDER BY render_key, sha256 LIMIT :limit;

-- name: insert_document_set
INSERT INTO document_sets (sha256, content, stored_at) VALUES (:sha256, :content, :now) ON CONFLICT DO NOTHING;

-- name: pin_document_set
INSERT INTO document_pins (quote_id, version, sha256, pinned_at) VALUES (:quote_id, :version, :sha256, :now)
ON CONFLICT DO NOTHING;

-- name: pin_document_contact
INSERT INTO document_contacts (quote_id, version, email, phone) VALUES (:quote_id, :version, :email, :phone) ON CONFLICT DO NOTHING;

-- name: document_contact_of
SELECT email, phone FROM document_contacts WHERE quote_id = :quote_id AND version = :version;

-- name: has_document_set
SELECT 1 AS one FROM document_sets WHERE sha256 = :sha256;

-- name: document_set_of
SELECT s.content FROM document_pins AS p JOIN document_sets AS s USING (sha256)
WHERE p.quote_id = :quote_id AND p.version = :version;

-- name: renders_under_way
SELECT 1 AS one FROM effects WHERE state = 'in_flight' AND class IN ('pdf.render', 'slack.file') LIMIT 1;

-- name: keep_crm_record
INSERT INTO crm_records (record_id, quote_id) VALUES (:record_id, :quote_id) ON CONFLICT (record_id) DO NOTHING;

-- name: quote_of_crm_record
-- By the 15 characters that identify a record; three more are their checksum.
SELECT quote_id FROM crm_records WHERE record_id >= :record_id AND record_id < :record_id || '~' LIMIT 1;

-- name: crm_cursor
SELECT modstamp FROM crm_cursors WHERE object = :object;

-- name: move_crm_cursor
-- Only from where the reading began: what was read twice counts once.
INSERT INTO crm_cursors (object, modstamp, read_at)
SELECT :object, :modstamp, :now
WHERE coalesce((SELECT modstamp FROM crm_cursors WHERE object = :object), '') = :came_from
ON CONFLICT (object) DO UPDATE SET modstamp = excluded.modstamp, read_at = excluded.read_at
RETURNING object;

-- name: open_crm_conflict
INSERT INTO crm_conflicts (quote_id, version, record_id, field, ours, theirs, what, found_at)
VALUES (:quote_id, :version, :record_id, :field, :ours, :theirs, :what, :now)
ON CONFLICT (quote_id, version, field) WHERE state = 'open'
DO UPDATE SET ours = excluded.ours, theirs = excluded.theirs, record_id = excluded.record_id
RETURNING id, found_at;

-- name: crm_conflict_of
SELECT * FROM crm_conflicts WHERE quote_id = :quote_id AND version = :version AND field = :field AND state = 'open';

-- name: crm_conflicts_of
SELECT id FROM crm_conflicts WHERE quote_id = :quote_id AND field = :field AND state = 'open'
  AND (version = :version OR :version IS NULL) AND (version <> :but OR :but IS NULL);

-- name: crm_conflict
SELECT * FROM crm_conflicts WHERE id = :id;

-- name: crm_conflicts_listed
SELECT * FROM crm_conflicts WHERE id < :before AND (state = 'open' OR :everything = 1) ORDER BY id DESC LIMIT :limit;

-- name: settle_crm_conflict
UPDATE crm_conflicts SET state = :state, decided_by = :decided_by, decided_at = :now, reason = :reason
WHERE id = :id AND state = 'open'
RETURNING id;
-- ------------------------------------------------------------------------------------------------------- forgetting

-- name: approvals_requested_today
SELECT count(*) AS asked FROM approvals WHERE requested_by = :user AND requested_at >= :since;

-- name: count_forgettable
-- What the four statements after this one would delete.
SELECT
  (SELECT count(*) FROM readings WHERE answered_by IS NOT NULL AND answered_at < :model_before) AS readings,
  (SELECT count(*) FROM model_calls WHERE called_at < :model_before) AS model_calls,
  (SELECT count(*) FROM quote_summaries AS s WHERE s.written_at < :model_before AND NOT EXISTS (
    SELECT 1 FROM approvals AS a WHERE a.quote_id = s.quote_id AND a.quote_version = s.version AND a.state = 'pending'))
    AS quote_summaries,
  (SELECT count(*) FROM crm_conflicts WHERE state <> 'open' AND decided_at < :reconcile_before) AS crm_conflicts;

-- name: forget_readings
DELETE FROM readings WHERE operation_key IN (
  SELECT operation_key FROM readings WHERE answered_by IS NOT NULL AND answered_at < :before ORDER BY answered_at LIMIT :limit)
RETURNING operation_key;

-- name: forget_model_calls
DELETE FROM model_calls WHERE id IN (SELECT id FROM model_calls WHERE called_at < :before ORDER BY called_at LIMIT :limit)
RETURNING id;

-- name: forget_summaries
-- What approvers may still look at stays.
DELETE FROM quote_summaries WHERE (quote_id, version) IN (
  SELECT s.quote_id, s.version FROM quote_summaries AS s
  WHERE s.written_at < :before AND NOT EXISTS (
    SELECT 1 FROM approvals AS a WHERE a.quote_id = s.quote_id AND a.quote_version = s.version AND a.state = 'pending')
  ORDER BY s.written_at LIMIT :limit)
RETURNING quote_id;

-- name: forget_conflicts
DELETE FROM crm_conflicts WHERE id IN (
  SELECT id FROM crm_conflicts WHERE state <> 'open' AND decided_at < :before ORDER BY decided_at LIMIT :limit)
RETURNING id;

-- ---------------------------------------------------------------------------------------------------------- the mirror

-- name: mirror_cursor
SELECT * FROM crm_mirror_cursors WHERE kind = :kind;

-- name: mirror_cursors
SELECT c.*, (SELECT count(*) FROM crm_mirror AS m WHERE m.kind = c.kind) AS records FROM crm_mirror_cursors AS c ORDER BY c.kind;

-- name: move_mirror_cursor
-- Only from the page that was read before: what somebody else read meanwhile is not gone over with something older.
INSERT INTO crm_mirror_cursors (kind, read_as, modstamp, record_id, more, pages, read_at, whole_at)
SELECT :kind, :read_as, :modstamp, :record_id, :more, 1, :now, :whole_at
WHERE coalesce((SELECT pages FROM crm_mirror_cursors WHERE kind = :kind), 0) = :pages
ON CONFLICT (kind) DO UPDATE SET read_as = excluded.read_as, modstamp = excluded.modstamp, record_id = excluded.record_id,
  more = excluded.more, pages = crm_mirror_cursors.pages + 1, read_at = excluded.read_at, whole_at = excluded.whole_at
RETURNING pages;

-- name: mirror_record
INSERT INTO crm_mirror (kind, record_id, name, name_key, account_id, facts)
VALUES (:kind, :record_id, :name, :name_key, :account_id, :facts)
ON CONFLICT (kind, record_id) DO UPDATE SET name = excluded.name, name_key = excluded.name_key, account_id = excluded.account_id,
  facts = excluded.facts;

-- name: unmirror_record
DELETE FROM crm_mirror WHERE kind = :kind AND record_id = :record_id;

-- name: unmirror_kind
DELETE FROM crm_mirror WHERE kind = :kind;

-- name: mirrored_kinds
SELECT kind FROM crm_mirror_cursors;

-- name: forget_mirror_cursor
DELETE FROM crm_mirror_cursors WHERE kind = :kind;

-- name: mirrored_names
-- Names that begin so; `past` is the first text behind all of them.
SELECT name FROM crm_mirror WHERE kind = :kind AND name_key >= :beginning AND name_key < :past
GROUP BY name_key, name ORDER BY name_key LIMIT :limit;

-- name: mirrored_accounts
-- Only of a complete copy: a part of one may lack another account of the name.
SELECT record_id, facts FROM crm_mirror WHERE kind = 'accounts' AND name_key = :name_key AND name = :name
  AND EXISTS (SELECT 1 FROM crm_mirror_cursors WHERE kind = 'accounts' AND whole_at IS NOT NULL) LIMIT 2;

-- name: mirrored_account
-- An id of 15 characters is the beginning of that of 18.
SELECT record_id, facts FROM crm_mirror WHERE kind = 'accounts' AND record_id >= :record_id AND record_id < :record_id || '~' LIMIT 2;

-- name: mirrored_contacts
SELECT DISTINCT c.name, json_extract(c.facts, '$.email') AS email, c.name_key FROM crm_mirror AS a
JOIN crm_mirror AS c ON c.kind = 'contacts' AND c.account_id = a.record_id
WHERE a.kind = 'accounts' AND a.name_key = :account_key AND (:typed = '' OR instr(c.name_key, :typed) > 0)
ORDER BY c.name_key LIMIT :limit;

-- name: mirrored_opportunities
SELECT o.record_id, o.account_id, o.name, o.facts FROM crm_mirror AS a
JOIN crm_mirror AS o ON o.kind = 'opportunities' AND o.account_id = a.record_id
WHERE a.kind = 'accounts' AND a.name_key = :account_key AND CAST(json_extract(o.facts, '$.closed') AS INTEGER) = 0
  AND (:typed = '' OR instr(o.name_key, :typed) > 0)
ORDER BY json_extract(o.facts, '$.closes'), o.name_key LIMIT :limit;

-- ------------------------------------------------------------------------------------------------------------- history

-- name: quotes_replayed
-- What the events of each quote say in words: its head with the latest approval request.
SELECT q.quote_id, q.version, q.state, q.valid_until, q.requester, q.channel, q.account, v.pricing_hash,
  json_extract(v.pricing, '$.net_total') AS net_total,
  json_extract(v.pricing, '$.currency') AS currency, a.approval_id, a.required_roles, a.decided_by, a.decided_role
FROM quotes AS q
LEFT JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
LEFT JOIN approvals AS a ON a.approval_id = (
  SELECT l.approval_id FROM approvals AS l WHERE l.quote_id = q.quote_id AND l.quote_version = q.version
  ORDER BY length(l.approval_id) DESC, l.approval_id DESC LIMIT 1)
WHERE q.quote_id > :after ORDER BY q.quote_id LIMIT :limit;

-- name: quote_replayed
-- As quotes_replayed, of one quote.
SELECT q.quote_id, q.version, q.state, q.valid_until, q.requester, q.channel, q.account, v.pricing_hash,
  json_extract(v.pricing, '$.net_total') AS net_total,
  json_extract(v.pricing, '$.currency') AS currency, a.approval_id, a.required_roles, a.decided_by, a.decided_role
FROM quotes AS q
LEFT JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
LEFT JOIN approvals AS a ON a.approval_id = (
  SELECT l.approval_id FROM approvals AS l WHERE l.quote_id = q.quote_id AND l.quote_version = q.version
  ORDER BY length(l.approval_id) DESC, l.approval_id DESC LIMIT 1)
WHERE q.quote_id = :quote_id;

-- name: quote_numbers_given
-- The last number of every year by the quotes there are: Q-2026-0042.
SELECT CAST(substr(quote_id, 3, 4) AS INTEGER) AS year, max(CAST(substr(quote_id, 8) AS INTEGER)) AS last
FROM quotes GROUP BY 1;

-- name: put_quote_numbers
INSERT INTO quote_numbers (year, last) VALUES (:year, :last) ON CONFLICT (year) DO UPDATE SET last = excluded.last;

-- name: delete_quote_numbers
DELETE FROM quote_numbers WHERE year = :year;

-- name: heads_priced_since
-- The newest version of each quote, if it was priced since then, in order, some at a time.
SELECT q.quote_id, q.version, q.account, v.pricing FROM quotes AS q
JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
WHERE q.quote_id > :quote_id AND v.created_at >= :since
ORDER BY q.quote_id LIMIT :limit;

-- name: commands_not_shown
-- What people asked before :before and is unfinished, about a quote or for a new one, and of which nothing was shown yet, neither a
-- card nor a reply.
WITH unfinished (id) AS (
  SELECT id FROM operations WHERE next_attempt_at > 0
  UNION ALL
  SELECT id FROM operations WHERE lane > '' AND state = 'in_progress'
)
SELECT o.* FROM unfinished AS u CROSS JOIN operations AS o
WHERE o.id = u.id AND o.actor_type <> 'system' AND o.created_at <= :before
  AND CASE WHEN o.aggregate_id = 'new' THEN o.source IN ('slack_slash', 'slack_interactive')
    ELSE o.state <> 'failed_retryable' AND EXISTS (SELECT 1 FROM quotes AS q WHERE q.quote_id = o.aggregate_id) END
  AND NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.operation_id = o.id AND e.class IN (:card, :reply))
ORDER BY o.id
LIMIT :limit;

-- name: quotes_for_report
-- The quotes made in a period, each in its newest version, in order, some at a time.
SELECT q.quote_id, q.version, q.state, q.account, q.requester, q.created_at, v.pricing, c.closed_at, c.reason,
  (SELECT min(a.requested_at) FROM approvals AS a WHERE a.quote_id = q.quote_id) AS submitted_at,
  (SELECT max(a.decided_at) FROM approvals AS a WHERE a.quote_id = q.quote_id AND a.state = 'approved') AS approved_at,
  (SELECT min(s.sent_at) FROM quote_sendings AS s WHERE s.quote_id = q.quote_id) AS sent_at
FROM quotes AS q
JOIN quote_versions AS v ON v.quote_id = q.quote_id AND v.version = q.version
LEFT JOIN quote_closings AS c ON c.quote_id = q.quote_id
WHERE q.quote_id > :after AND q.created_at >= :since AND q.created_at < :until AND (q.team_id = :team_id OR :team_id IS NULL)
ORDER BY q.quote_id LIMIT :limit;

-- name: approvals_for_report
-- The requests for approval made in a period, in order, some at a time.
SELECT a.approval_id, a.state, a.required_roles, a.requested_at, a.decided_at, a.earlier, q.requester FROM approvals AS a
JOIN quotes AS q ON q.quote_id = a.quote_id
WHERE a.approval_id > :after AND a.requested_at >= :since AND a.requested_at < :until
  AND (q.team_id = :team_id OR :team_id IS NULL)
ORDER BY a.approval_id LIMIT :limit;

-- name: approvals_waiting
-- Of a workspace, the next due first. The index of the undecided ones leads to them.
SELECT a.quote_id, a.quote_version, a.approval_id, min(s.expires_at) AS due_at
FROM approvals AS a INDEXED BY approvals_one_pending
  CROSS JOIN quotes AS q ON q.quote_id = a.quote_id AND q.version = a.quote_version
  CROSS JOIN approval_slots AS s ON s.approval_id = a.approval_id AND (s.state = 'pending' OR s.state = 'escalated')
WHERE a.state = 'pending' AND q.team_id = :team_id AND q.state = 'pending_approval'
GROUP BY a.approval_id
ORDER BY due_at, a.requested_at, a.approval_id LIMIT :limit;

-- name: home_choice
SELECT section, page FROM homes WHERE team_id = :team_id AND user_id = :user_id;

-- name: open_home
INSERT INTO homes (team_id, user_id, section, page, shown_at) VALUES (:team_id, :user_id, :section, :page, :now)
ON CONFLICT (team_id, user_id) DO UPDATE SET shown_at = excluded.shown_at;

-- name: choose_home
UPDATE homes SET section = :section, page = :page, shown_at = :now WHERE team_id = :team_id AND user_id = :user_id;

-- name: homes_to_redraw
-- Of the people in a JSON list.
SELECT h.user_id FROM json_each(:users) AS u CROSS JOIN homes AS h ON h.team_id = :team_id AND h.user_id = u.value
WHERE NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.supersede_key = 'home:' || h.user_id AND e.state = 'pending')
ORDER BY h.user_id;

-- name: last_home_drawn
-- The newest, with the time of the last attempt of all.
SELECT state, maybe_sent, result, last_attempt_at,
  (SELECT max(each.last_attempt_at) FROM effects AS each WHERE each.aggregate_id = :aggregate_id) AS last_at
FROM effects
WHERE aggregate_id = :aggregate_id AND last_attempt_at IS NOT NULL
ORDER BY id DESC LIMIT 1;

-- name: digest_of
SELECT due_at FROM digests WHERE team_id = :team_id AND user_id = :user_id;

-- name: drop_digest
DELETE FROM digests WHERE team_id = :team_id AND user_id = :user_id;

-- name: insert_digest
INSERT INTO digests (team_id, user_id, due_at) VALUES (:team_id, :user_id, :due_at);

-- name: digests_due
SELECT team_id, user_id, due_at FROM digests WHERE due_at <= :now ORDER BY due_at, user_id LIMIT :limit;

-- name: gone_holders
-- Of the people in a JSON list, in one workspace, or in any without one. The index holds no full members.
SELECT DISTINCT p.user_id FROM people AS p INDEXED BY people_gone
WHERE p.kind <> 'member' AND p.user_id IN (SELECT value FROM json_each(:users)) AND p.team_id = coalesce(:team_id, p.team_id);

-- name: open_slots
SELECT s.approval_id, s.slot, s.roles, s.asked, s.assignee, s.opened_at, a.quote_id, a.requested_by, q.version, q.requester, q.team_id
FROM approvals AS a INDEXED BY approvals_one_pending
  CROSS JOIN quotes AS q ON q.quote_id = a.quote_id AND q.version = a.quote_version
  CROSS JOIN approval_slots AS s ON s.approval_id = a.approval_id AND (s.state = 'pending' OR s.state = 'escalated')
WHERE a.state = 'pending' AND q.state = 'pending_approval'
  AND NOT EXISTS (SELECT 1 FROM operations AS o WHERE o.lane = q.quote_id AND o.aggregate_id <> 'new' AND o.finished_at IS NULL)
ORDER BY s.approval_id, s.slot;
