-- contract: of the first build.
-- Tables of the store for PostgreSQL: those of quotebot/store/schema as its migrations leave them. Times are Unix ms, UTC.

CREATE TABLE quote_numbers (year BIGINT PRIMARY KEY, last BIGINT NOT NULL);

CREATE TABLE quotes (
  quote_id TEXT PRIMARY KEY,
  version BIGINT NOT NULL,
  state TEXT NOT NULL CHECK (state IN (
    'draft', 'validated', 'priced', 'pending_approval', 'approved', 'rejected', 'finalized', 'sent', 'accepted', 'lost',
    'cancelled', 'expired')),
  account TEXT NOT NULL,
  requester TEXT NOT NULL,
  requester_name TEXT NOT NULL,
  team_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  valid_until BIGINT NOT NULL,
  created_by_operation TEXT NOT NULL UNIQUE, -- one creation per operation, whatever happens to the ledger
  asked_hash TEXT NOT NULL CHECK (length(asked_hash) = 64), -- of the payload as executed: who asks for it again is asked back
  recorded_at BIGINT NOT NULL, -- when it was executed; created_at is when it was asked for
  root_effect_key TEXT NOT NULL, -- the effect that posts the status card
  thread_ts TEXT, -- its ts, once Slack answered
  updated_at BIGINT NOT NULL
);
CREATE INDEX quotes_requester ON quotes (requester, asked_hash, recorded_at);
CREATE INDEX quotes_open ON quotes (valid_until)
  WHERE state <> 'accepted' AND state <> 'lost' AND state <> 'cancelled' AND state <> 'expired';
CREATE INDEX quotes_drafts ON quotes (updated_at) WHERE state IN ('draft', 'validated', 'priced');
CREATE INDEX quotes_listed ON quotes (team_id, created_at DESC, quote_id DESC);
CREATE INDEX quotes_thread ON quotes (thread_ts) WHERE thread_ts IS NOT NULL;
CREATE INDEX quotes_of_account ON quotes (team_id, lower(account), created_at, quote_id);

CREATE TABLE one_time_tokens ( -- a "Create another" button works once: the row is written with the quote it made
  token TEXT PRIMARY KEY, -- the key of the operation that was refused as a re-submission
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  used_at BIGINT NOT NULL
);

CREATE TABLE quote_versions ( -- what was priced, never changed
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  version BIGINT NOT NULL,
  ruleset TEXT NOT NULL,
  pricing TEXT NOT NULL CHECK (pricing::json IS NOT NULL),
  pricing_hash TEXT NOT NULL CHECK (length(pricing_hash) = 64),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (quote_id, version)
);

CREATE TABLE approvals (
  approval_id TEXT PRIMARY KEY,
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  quote_version BIGINT NOT NULL,
  required_roles TEXT NOT NULL CHECK (required_roles::json IS NOT NULL),
  reasons TEXT NOT NULL CHECK (reasons::json IS NOT NULL),
  state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'changes_requested', 'expired', 'invalidated')),
  requested_by TEXT NOT NULL,
  requested_at BIGINT NOT NULL,
  decided_by TEXT,
  decided_role TEXT,
  decided_at BIGINT,
  decision_reason TEXT,
  earlier TEXT, -- the approval whose decisions still hold
  CHECK ((state = 'pending') = (decided_at IS NULL)),
  CHECK (earlier IS NULL OR state = 'approved')
);
CREATE UNIQUE INDEX approvals_one_pending ON approvals (quote_id, quote_version) WHERE state = 'pending';
CREATE INDEX approvals_quote ON approvals (quote_id, quote_version, requested_at);
CREATE INDEX approvals_of_a_day ON approvals (requested_by, requested_at);

CREATE TABLE schedule_marks (
  job TEXT NOT NULL,
  name TEXT NOT NULL, -- a quote, an approval, an approver's slot
  anchor BIGINT NOT NULL, -- a mark says nothing about the slots of another anchor
  slot BIGINT NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome = 'fired' OR outcome = 'dropped'),
  marked_at BIGINT NOT NULL, -- in the future once the clock was put back: then it says nothing
  PRIMARY KEY (job, name)
);

CREATE TABLE approval_slots (
  approval_id TEXT NOT NULL REFERENCES approvals (approval_id),
  slot BIGINT NOT NULL CHECK (slot >= 1),
  stage BIGINT NOT NULL CHECK (stage >= 1),
  roles TEXT NOT NULL CHECK (roles::json IS NOT NULL), -- any one of them
  asked TEXT NOT NULL CHECK (asked::json IS NOT NULL), -- whose holders are asked now
  assignee TEXT,
  dual_control BIGINT NOT NULL CHECK (dual_control IN (0, 1)),
  state TEXT NOT NULL CHECK (state IN ('waiting', 'pending', 'escalated', 'approved', 'rejected', 'expired', 'closed')),
  opened_at BIGINT,
  remind_at BIGINT,
  escalate_at BIGINT,
  expires_at BIGINT,
  reminded_at BIGINT,
  escalated_at BIGINT,
  decided_by TEXT,
  decided_role TEXT,
  on_behalf_of TEXT,
  decided_at BIGINT,
  reason TEXT,
  PRIMARY KEY (approval_id, slot),
  CHECK ((state IN ('waiting', 'pending', 'escalated')) = (decided_at IS NULL)),
  CHECK ((state IN ('approved', 'rejected')) = (decided_by IS NOT NULL)),
  CHECK (state NOT IN ('pending', 'escalated') OR opened_at IS NOT NULL)
);
CREATE INDEX approval_slots_to_remind ON approval_slots (remind_at) WHERE state = 'pending' AND reminded_at IS NULL;
CREATE INDEX approval_slots_to_escalate ON approval_slots (escalate_at) WHERE state = 'pending' OR state = 'escalated';
CREATE INDEX approval_slots_to_expire ON approval_slots (expires_at) WHERE state = 'pending' OR state = 'escalated';

CREATE TABLE delegations ( -- never changed: the newest of a person is the one in force
  operation_key TEXT PRIMARY KEY, -- one per command
  team_id TEXT NOT NULL,
  absent TEXT NOT NULL,
  delegate TEXT, -- NULL: the person is back
  since BIGINT NOT NULL,
  until BIGINT NOT NULL,
  asked_at BIGINT,
  reason TEXT,
  CHECK (delegate IS NULL OR delegate <> absent)
);
CREATE INDEX delegations_absent ON delegations (team_id, absent, since);

CREATE TABLE superseded_versions ( -- the version's last state, and who made the one after it
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  state TEXT NOT NULL CHECK (state IN (
    'draft', 'validated', 'priced', 'pending_approval', 'approved', 'rejected', 'finalized', 'sent')),
  valid_until BIGINT NOT NULL,
  superseded_by TEXT NOT NULL,
  superseded_at BIGINT NOT NULL,
  PRIMARY KEY (quote_id, version),
  FOREIGN KEY (quote_id, version) REFERENCES quote_versions (quote_id, version)
);

CREATE TABLE quote_sendings ( -- a version is sent once
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  recipient TEXT NOT NULL,
  sent_by TEXT NOT NULL,
  sent_at BIGINT NOT NULL,
  PRIMARY KEY (quote_id, version),
  FOREIGN KEY (quote_id, version) REFERENCES quote_versions (quote_id, version)
);

CREATE TABLE quote_closings ( -- a quote ends once
  quote_id TEXT PRIMARY KEY REFERENCES quotes (quote_id),
  version BIGINT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('accepted', 'lost', 'cancelled')),
  reason TEXT,
  closed_by TEXT NOT NULL,
  closed_at BIGINT NOT NULL,
  CHECK (state <> 'lost' OR reason IS NOT NULL)
);

CREATE TABLE rulesets (
  version BIGINT PRIMARY KEY CHECK (version >= 1), -- never used again
  hash TEXT NOT NULL CHECK (length(hash) = 64), -- of the canonical document: its identity
  label TEXT NOT NULL, -- name and version as the document says
  products BIGINT NOT NULL, -- how many its document has
  books BIGINT NOT NULL,
  document TEXT NOT NULL CHECK (document::json IS NOT NULL), -- canonical
  state TEXT NOT NULL CHECK (state IN ('draft', 'active', 'retired', 'discarded')),
  origin TEXT NOT NULL, -- the files it was read from
  note TEXT,
  imported_by TEXT NOT NULL,
  imported_at BIGINT NOT NULL,
  activated_by TEXT, -- the last time
  activated_at BIGINT,
  retired_at BIGINT,
  CHECK ((state IN ('active', 'retired')) = (activated_at IS NOT NULL)),
  CHECK ((state = 'retired') = (retired_at IS NOT NULL))
);
CREATE UNIQUE INDEX rulesets_one_active ON rulesets (state) WHERE state = 'active';
CREATE UNIQUE INDEX rulesets_hash ON rulesets (hash) WHERE state <> 'discarded';
CREATE UNIQUE INDEX rulesets_label ON rulesets (label) WHERE state <> 'discarded';

CREATE TABLE ruleset_requests ( -- the same request twice is one change: the second gets the answer of the first
  request_id TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL CHECK (length(fingerprint) = 64),
  answer TEXT NOT NULL CHECK (answer::json IS NOT NULL),
  requested_by TEXT NOT NULL,
  requested_at BIGINT NOT NULL
);

CREATE TABLE people (
  team_id TEXT NOT NULL, -- the workspace they acted in
  user_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('member', 'guest', 'bot', 'deactivated', 'stranger')),
  fetched_at BIGINT NOT NULL, -- Unix milliseconds, UTC
  name TEXT NOT NULL DEFAULT '',
  zone TEXT NOT NULL DEFAULT '',
  email TEXT NOT NULL DEFAULT '',
  phone TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (team_id, user_id)
);
CREATE INDEX people_gone ON people (user_id) WHERE kind <> 'member';

CREATE TABLE letter_cards (
  reference TEXT PRIMARY KEY, -- as `quotebot dead list` shows it: 118, op12
  channel TEXT NOT NULL,
  post_key TEXT NOT NULL, -- the effect that posts the card; what updates it waits for that
  ts TEXT, -- of the message, once it was posted
  announced_at BIGINT NOT NULL,
  decision TEXT CHECK (decision IN ('retried', 'discarded')),
  decided_by TEXT,
  decided_at BIGINT,
  reason TEXT,
  cycle BIGINT NOT NULL DEFAULT 1,
  class TEXT,
  CHECK ((decision IS NULL) = (decided_by IS NULL) AND (decision IS NULL) = (decided_at IS NULL))
);
CREATE INDEX letter_cards_announced ON letter_cards (announced_at);

CREATE TABLE readings (
  operation_key TEXT PRIMARY KEY, -- of the command that asks for it
  team_id TEXT NOT NULL,
  user_id TEXT NOT NULL, -- the author, who alone is answered
  asked_at BIGINT NOT NULL, -- Unix milliseconds, UTC
  answered_by TEXT UNIQUE, -- the command that answered: the token of what it proposed
  answered_at BIGINT,
  read_by TEXT CHECK (read_by IN ('model', 'rules')),
  proposal TEXT, -- the creation that the author may confirm, as its command is stored
  CHECK ((answered_by IS NULL) = (answered_at IS NULL) AND (answered_by IS NULL) = (read_by IS NULL)),
  CHECK (proposal IS NULL OR answered_by IS NOT NULL)
);
CREATE INDEX readings_of_a_day ON readings (team_id, user_id, asked_at);
CREATE INDEX readings_unanswered ON readings (asked_at) WHERE answered_by IS NULL;
CREATE INDEX readings_by_age ON readings (answered_at) WHERE answered_by IS NOT NULL;

CREATE TABLE model_calls (
  id BIGINT PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
  effect_key TEXT NOT NULL,
  correlation_id TEXT NOT NULL,
  model TEXT NOT NULL,
  outcome TEXT NOT NULL, -- "ok", or the code of the failure
  request_sha256 TEXT NOT NULL,
  answer_sha256 TEXT,
  request TEXT,
  answer TEXT,
  called_at BIGINT NOT NULL -- Unix milliseconds, UTC
);
CREATE INDEX model_calls_of_an_effect ON model_calls (effect_key);
CREATE INDEX model_calls_by_age ON model_calls (called_at);

CREATE TABLE quote_summaries (
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  summary TEXT NOT NULL,
  written_at BIGINT NOT NULL, -- Unix milliseconds, UTC
  PRIMARY KEY (quote_id, version)
);
CREATE INDEX quote_summaries_by_age ON quote_summaries (written_at);

CREATE TABLE crm_cursors (
  object TEXT PRIMARY KEY, -- Quote
  modstamp TEXT NOT NULL, -- the newest SystemModstamp that was read, as Salesforce writes it
  read_at BIGINT NOT NULL
);

CREATE TABLE crm_records ( -- the quotes of records in Salesforce, by record id: each version has its own record
  record_id TEXT PRIMARY KEY,
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id)
);

CREATE TABLE crm_conflicts ( -- the reconcile queue
  id BIGINT PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  record_id TEXT NOT NULL,
  field TEXT NOT NULL, -- Quote.Status
  ours TEXT NOT NULL,
  theirs TEXT NOT NULL,
  found_at BIGINT NOT NULL,
  state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ours', 'theirs', 'over')), -- over: they agree by themselves
  decided_by TEXT,
  decided_at BIGINT,
  reason TEXT,
  what TEXT NOT NULL DEFAULT 'status' CHECK (what IN ('status', 'amount', 'stage')),
  CHECK ((state = 'open') = (decided_at IS NULL)),
  CHECK (state NOT IN ('ours', 'theirs') OR (decided_by IS NOT NULL AND reason IS NOT NULL))
);
CREATE UNIQUE INDEX crm_conflicts_open ON crm_conflicts (quote_id, version, field) WHERE state = 'open';
CREATE INDEX crm_conflicts_by_age ON crm_conflicts (decided_at) WHERE state <> 'open';

CREATE TABLE artefacts (
  render_key TEXT NOT NULL CHECK (length(render_key) = 64), -- of document, template, fonts, logo: known before rendering
  sha256 TEXT NOT NULL CHECK (length(sha256) = 64), -- of the file
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  pages BIGINT NOT NULL,
  rendered_at BIGINT NOT NULL,
  PRIMARY KEY (render_key, sha256)
);

CREATE TABLE artefact_blobs ( -- the files of the documents, so that every machine has them
  sha256 TEXT PRIMARY KEY CHECK (encode(sha256(bytes), 'hex') = sha256),
  bytes BYTEA NOT NULL,
  stored_at BIGINT NOT NULL -- by the server's clock
);
ALTER TABLE artefact_blobs ALTER COLUMN bytes SET STORAGE EXTERNAL; -- a PDF is compressed already

CREATE TABLE replaced_roots (
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id),
  dead_ts TEXT NOT NULL, -- of the message that is gone
  post_key TEXT NOT NULL, -- the effect that posts the one in its place
  replaced_at BIGINT NOT NULL,
  PRIMARY KEY (quote_id, dead_ts)
);

CREATE TABLE quote_freezings ( -- a version is finalized once
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  frozen_by TEXT NOT NULL,
  frozen_at BIGINT NOT NULL,
  PRIMARY KEY (quote_id, version),
  FOREIGN KEY (quote_id, version) REFERENCES quote_versions (quote_id, version)
);

CREATE TABLE quote_opportunities (
  quote_id TEXT PRIMARY KEY REFERENCES quotes (quote_id),
  record_id TEXT NOT NULL,
  account_id TEXT NOT NULL -- whose it was when it was chosen
);

CREATE TABLE crm_mirror (
  kind TEXT NOT NULL, -- accounts, contacts, opportunities, prices
  record_id TEXT NOT NULL,
  name TEXT NOT NULL,
  name_key TEXT NOT NULL, -- the name as it is looked for: without case
  account_id TEXT NOT NULL, -- empty: it has none
  facts TEXT NOT NULL CHECK (facts::json IS NOT NULL),
  PRIMARY KEY (kind, record_id)
);
CREATE INDEX crm_mirror_names ON crm_mirror (kind, name_key);
CREATE INDEX crm_mirror_accounts ON crm_mirror (kind, account_id);

CREATE TABLE crm_mirror_cursors (
  kind TEXT PRIMARY KEY,
  read_as TEXT NOT NULL, -- which fields of which object were read: with others everything is read anew
  modstamp TEXT NOT NULL, -- of the record that was read last
  record_id TEXT NOT NULL,
  more BIGINT NOT NULL, -- whether there was more to read
  pages BIGINT NOT NULL, -- how many were read: a page counts once
  read_at BIGINT NOT NULL, -- Unix milliseconds
  whole_at BIGINT -- all that changed before this is here; null while it never was whole
);

CREATE TABLE quote_places (
  quote_id TEXT PRIMARY KEY REFERENCES quotes (quote_id),
  channel TEXT NOT NULL, -- the direct-message channel that holds the card and its thread
  moved_at BIGINT NOT NULL
);

CREATE TABLE inherited_makers (
  quote_id TEXT NOT NULL REFERENCES quotes (quote_id), -- the copy
  maker TEXT NOT NULL, -- Slack user id
  PRIMARY KEY (quote_id, maker)
);

CREATE TABLE quote_advice (
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  basis TEXT NOT NULL, -- the ruleset and the policy that it depends on
  advice TEXT NOT NULL, -- JSON
  PRIMARY KEY (quote_id, version)
);

CREATE TABLE ops_cards (
  subject TEXT PRIMARY KEY, -- cause:crm.create/mapping/INVALID_FIELD, pause:crm
  team_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  post_key TEXT NOT NULL, -- the effect that posts the card; what updates it waits for that
  ts TEXT, -- of the message, once it was posted
  revision BIGINT NOT NULL, -- the commands about this subject
  shown TEXT NOT NULL, -- its state when the last of them was executed
  opened_at BIGINT NOT NULL,
  refreshed_at BIGINT NOT NULL,
  closed_at BIGINT, -- nothing of it waits any more
  decided_by TEXT, -- who replayed all, up to when
  decided_at BIGINT,
  CHECK ((decided_by IS NULL) = (decided_at IS NULL))
);

CREATE TABLE approval_policies (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  policy TEXT NOT NULL, -- its name and version
  ruleset_hash TEXT NOT NULL, -- the ruleset that was active, which holds the policy unless the packaged one applied
  remind_ms BIGINT NOT NULL,
  escalate_ms BIGINT NOT NULL,
  expire_ms BIGINT NOT NULL
);

CREATE TABLE approval_copies (
  approval_id TEXT NOT NULL REFERENCES approvals (approval_id),
  user_id TEXT NOT NULL,
  post_key TEXT NOT NULL, -- the effect that posts it; what updates it waits for that
  channel TEXT, -- the direct-message channel and the message in it, once it was posted
  ts TEXT,
  added_at BIGINT NOT NULL,
  lost BIGINT NOT NULL DEFAULT 0,
  drawings BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (approval_id, user_id),
  CHECK ((channel IS NULL) = (ts IS NULL))
);

CREATE TABLE homes (
  team_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  section TEXT NOT NULL,
  page BIGINT NOT NULL CHECK (page >= 1),
  shown_at BIGINT NOT NULL, -- Unix milliseconds
  PRIMARY KEY (team_id, user_id)
);

CREATE TABLE approval_calendars (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  calendar TEXT NOT NULL -- JSON, with the time zone of people whose own is not known
);

CREATE TABLE digests (
  team_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  due_at BIGINT NOT NULL, -- Unix milliseconds
  PRIMARY KEY (team_id, user_id)
);
CREATE INDEX digests_due ON digests (due_at);

CREATE TABLE document_sets (
  sha256 TEXT PRIMARY KEY CHECK (length(sha256) = 64), -- of the content
  content TEXT NOT NULL,
  stored_at BIGINT NOT NULL
);

CREATE TABLE document_pins (
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  sha256 TEXT NOT NULL REFERENCES document_sets (sha256),
  pinned_at BIGINT NOT NULL,
  PRIMARY KEY (quote_id, version)
);

CREATE TABLE approval_roles (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  roles TEXT NOT NULL -- JSON, as in the policy's document
);

CREATE TABLE document_contacts (
  quote_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  email TEXT NOT NULL,
  phone TEXT NOT NULL,
  PRIMARY KEY (quote_id, version)
);

CREATE TABLE approval_notes (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  note TEXT NOT NULL
);

-- Refusals of the database itself (`refuse` is the ledger's).

CREATE TRIGGER quote_versions_fixed BEFORE UPDATE ON quote_versions FOR EACH ROW
  EXECUTE FUNCTION refuse('a priced version is immutable');
CREATE TRIGGER quote_versions_kept BEFORE DELETE ON quote_versions FOR EACH ROW
  EXECUTE FUNCTION refuse('a priced version is kept');
CREATE TRIGGER quote_versions_not_emptied BEFORE TRUNCATE ON quote_versions EXECUTE FUNCTION refuse('a priced version is kept');
CREATE TRIGGER quotes_kept BEFORE DELETE ON quotes FOR EACH ROW EXECUTE FUNCTION refuse('a quote is kept');
CREATE TRIGGER quotes_not_emptied BEFORE TRUNCATE ON quotes EXECUTE FUNCTION refuse('a quote is kept');
CREATE TRIGGER quotes_identity BEFORE UPDATE OF
  quote_id, account, requester, team_id, channel, created_at, created_by_operation, asked_hash, recorded_at, root_effect_key
ON quotes FOR EACH ROW
  EXECUTE FUNCTION refuse('a quote keeps its identity');
CREATE TRIGGER one_time_tokens_fixed BEFORE UPDATE ON one_time_tokens FOR EACH ROW
  EXECUTE FUNCTION refuse('a used token stays used');
CREATE TRIGGER one_time_tokens_kept BEFORE DELETE ON one_time_tokens FOR EACH ROW EXECUTE FUNCTION refuse('a used token is kept');
CREATE TRIGGER one_time_tokens_not_emptied BEFORE TRUNCATE ON one_time_tokens EXECUTE FUNCTION refuse('a used token is kept');
CREATE TRIGGER approvals_decided_once BEFORE UPDATE ON approvals FOR EACH ROW
  WHEN (OLD.state <> 'pending') EXECUTE FUNCTION refuse('an approval is decided once');
CREATE TRIGGER approvals_kept BEFORE DELETE ON approvals FOR EACH ROW EXECUTE FUNCTION refuse('an approval is kept');
CREATE TRIGGER approvals_not_emptied BEFORE TRUNCATE ON approvals EXECUTE FUNCTION refuse('an approval is kept');
CREATE TRIGGER approval_slots_decided_once BEFORE UPDATE ON approval_slots FOR EACH ROW
  WHEN (OLD.state NOT IN ('waiting', 'pending', 'escalated')) EXECUTE FUNCTION refuse('a slot is decided once');
CREATE TRIGGER approval_slots_identity BEFORE UPDATE OF approval_id, slot, stage, roles, dual_control ON approval_slots FOR EACH ROW
  EXECUTE FUNCTION refuse('a slot keeps its identity');
CREATE TRIGGER approval_slots_kept BEFORE DELETE ON approval_slots FOR EACH ROW EXECUTE FUNCTION refuse('a slot is kept');
CREATE TRIGGER approval_slots_not_emptied BEFORE TRUNCATE ON approval_slots EXECUTE FUNCTION refuse('a slot is kept');
CREATE TRIGGER delegations_fixed BEFORE UPDATE ON delegations FOR EACH ROW
  EXECUTE FUNCTION refuse('a delegation is kept as it was');
CREATE TRIGGER delegations_kept BEFORE DELETE ON delegations FOR EACH ROW EXECUTE FUNCTION refuse('a delegation is kept');
CREATE TRIGGER delegations_not_emptied BEFORE TRUNCATE ON delegations EXECUTE FUNCTION refuse('a delegation is kept');
CREATE TRIGGER superseded_versions_fixed BEFORE UPDATE ON superseded_versions FOR EACH ROW
  EXECUTE FUNCTION refuse('a superseded version stays as it was');
CREATE TRIGGER superseded_versions_kept BEFORE DELETE ON superseded_versions FOR EACH ROW
  EXECUTE FUNCTION refuse('a superseded version is kept');
CREATE TRIGGER superseded_versions_not_emptied BEFORE TRUNCATE ON superseded_versions
  EXECUTE FUNCTION refuse('a superseded version is kept');
CREATE TRIGGER quote_sendings_fixed BEFORE UPDATE ON quote_sendings FOR EACH ROW EXECUTE FUNCTION refuse('what was sent was sent');
CREATE TRIGGER quote_sendings_kept BEFORE DELETE ON quote_sendings FOR EACH ROW EXECUTE FUNCTION refuse('what was sent is kept');
CREATE TRIGGER quote_sendings_not_emptied BEFORE TRUNCATE ON quote_sendings EXECUTE FUNCTION refuse('what was sent is kept');
CREATE TRIGGER quote_closings_fixed BEFORE UPDATE ON quote_closings FOR EACH ROW EXECUTE FUNCTION refuse('a quote ends once');
CREATE TRIGGER quote_closings_kept BEFORE DELETE ON quote_closings FOR EACH ROW
  EXECUTE FUNCTION refuse('how a quote ended is kept');
CREATE TRIGGER quote_closings_not_emptied BEFORE TRUNCATE ON quote_closings EXECUTE FUNCTION refuse('how a quote ended is kept');
CREATE TRIGGER rulesets_begin BEFORE INSERT ON rulesets FOR EACH ROW
  WHEN (NEW.state <> 'draft') EXECUTE FUNCTION refuse('a version of the ruleset begins as a draft');
CREATE TRIGGER rulesets_content BEFORE UPDATE OF
  version, hash, label, products, books, document, origin, note, imported_by, imported_at
ON rulesets FOR EACH ROW
  EXECUTE FUNCTION refuse('a version of the ruleset keeps its content');
CREATE TRIGGER rulesets_kept BEFORE DELETE ON rulesets FOR EACH ROW EXECUTE FUNCTION refuse('a version of the ruleset is kept');
CREATE TRIGGER rulesets_not_emptied BEFORE TRUNCATE ON rulesets EXECUTE FUNCTION refuse('a version of the ruleset is kept');
CREATE TRIGGER rulesets_arrows BEFORE UPDATE OF state ON rulesets FOR EACH ROW
  WHEN ((OLD.state || ' ' || NEW.state) NOT IN ('draft active', 'draft discarded', 'active retired', 'retired active'))
  EXECUTE FUNCTION refuse('a version of the ruleset has no such arrow');
CREATE TRIGGER ruleset_requests_fixed BEFORE UPDATE ON ruleset_requests FOR EACH ROW
  EXECUTE FUNCTION refuse('an answered request stays as it was answered');
CREATE TRIGGER ruleset_requests_kept BEFORE DELETE ON ruleset_requests FOR EACH ROW
  EXECUTE FUNCTION refuse('an answered request is kept');
CREATE TRIGGER ruleset_requests_not_emptied BEFORE TRUNCATE ON ruleset_requests
  EXECUTE FUNCTION refuse('an answered request is kept');
CREATE TRIGGER readings_answered_once BEFORE UPDATE ON readings FOR EACH ROW
  WHEN (OLD.answered_by IS NOT NULL) EXECUTE FUNCTION refuse('this message was answered');
CREATE TRIGGER crm_conflicts_settled_once BEFORE UPDATE ON crm_conflicts FOR EACH ROW
  WHEN (OLD.state <> 'open') EXECUTE FUNCTION refuse('a difference is settled once');
CREATE TRIGGER crm_conflicts_identity BEFORE UPDATE OF id, quote_id, version, field ON crm_conflicts FOR EACH ROW
  EXECUTE FUNCTION refuse('a difference keeps its identity');
CREATE TRIGGER artefacts_fixed BEFORE UPDATE ON artefacts FOR EACH ROW
  EXECUTE FUNCTION refuse('a rendered document stays as it is');
CREATE TRIGGER artefacts_kept BEFORE DELETE ON artefacts FOR EACH ROW EXECUTE FUNCTION refuse('a rendered document is kept');
CREATE TRIGGER artefacts_not_emptied BEFORE TRUNCATE ON artefacts EXECUTE FUNCTION refuse('a rendered document is kept');
CREATE TRIGGER replaced_roots_fixed BEFORE UPDATE ON replaced_roots FOR EACH ROW
  EXECUTE FUNCTION refuse('a lost card is replaced once');
CREATE TRIGGER replaced_roots_kept BEFORE DELETE ON replaced_roots FOR EACH ROW
  EXECUTE FUNCTION refuse('which card replaced which is kept');
CREATE TRIGGER replaced_roots_not_emptied BEFORE TRUNCATE ON replaced_roots
  EXECUTE FUNCTION refuse('which card replaced which is kept');
CREATE TRIGGER quote_freezings_fixed BEFORE UPDATE ON quote_freezings FOR EACH ROW
  EXECUTE FUNCTION refuse('a version is finalized once');
CREATE TRIGGER quote_freezings_kept BEFORE DELETE ON quote_freezings FOR EACH ROW
  EXECUTE FUNCTION refuse('who finalized a version is kept');
CREATE TRIGGER quote_freezings_not_emptied BEFORE TRUNCATE ON quote_freezings
  EXECUTE FUNCTION refuse('who finalized a version is kept');
CREATE TRIGGER crm_conflicts_open_kept BEFORE DELETE ON crm_conflicts FOR EACH ROW
  WHEN (OLD.state = 'open') EXECUTE FUNCTION refuse('an open difference is kept');
CREATE TRIGGER crm_conflicts_not_emptied BEFORE TRUNCATE ON crm_conflicts EXECUTE FUNCTION refuse('an open difference is kept');
CREATE TRIGGER quote_opportunities_fixed BEFORE UPDATE ON quote_opportunities FOR EACH ROW
  EXECUTE FUNCTION refuse('a quote keeps its opportunity');
CREATE TRIGGER quote_opportunities_kept BEFORE DELETE ON quote_opportunities FOR EACH ROW
  EXECUTE FUNCTION refuse('a quote keeps its opportunity');
CREATE TRIGGER quote_opportunities_not_emptied BEFORE TRUNCATE ON quote_opportunities
  EXECUTE FUNCTION refuse('a quote keeps its opportunity');
CREATE TRIGGER quote_places_fixed BEFORE UPDATE ON quote_places FOR EACH ROW EXECUTE FUNCTION refuse('a card moves once');
CREATE TRIGGER quote_places_kept BEFORE DELETE ON quote_places FOR EACH ROW EXECUTE FUNCTION refuse('the place of a card is kept');
CREATE TRIGGER quote_places_not_emptied BEFORE TRUNCATE ON quote_places EXECUTE FUNCTION refuse('the place of a card is kept');
CREATE TRIGGER inherited_makers_fixed BEFORE UPDATE ON inherited_makers FOR EACH ROW
  EXECUTE FUNCTION refuse('a clone keeps the makers of its source');
CREATE TRIGGER inherited_makers_kept BEFORE DELETE ON inherited_makers FOR EACH ROW
  EXECUTE FUNCTION refuse('a clone keeps the makers of its source');
CREATE TRIGGER inherited_makers_not_emptied BEFORE TRUNCATE ON inherited_makers
  EXECUTE FUNCTION refuse('a clone keeps the makers of its source');
CREATE TRIGGER approval_policies_fixed BEFORE UPDATE ON approval_policies FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its policy');
CREATE TRIGGER approval_policies_kept BEFORE DELETE ON approval_policies FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its policy');
CREATE TRIGGER approval_policies_not_emptied BEFORE TRUNCATE ON approval_policies
  EXECUTE FUNCTION refuse('a request keeps its policy');
CREATE TRIGGER approval_calendars_fixed BEFORE UPDATE ON approval_calendars FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its calendar');
CREATE TRIGGER approval_calendars_kept BEFORE DELETE ON approval_calendars FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its calendar');
CREATE TRIGGER approval_calendars_not_emptied BEFORE TRUNCATE ON approval_calendars
  EXECUTE FUNCTION refuse('a request keeps its calendar');
CREATE TRIGGER document_sets_fixed BEFORE UPDATE ON document_sets FOR EACH ROW
  EXECUTE FUNCTION refuse('a document set stays as it is');
CREATE TRIGGER document_sets_kept BEFORE DELETE ON document_sets FOR EACH ROW EXECUTE FUNCTION refuse('a document set is kept');
CREATE TRIGGER document_sets_not_emptied BEFORE TRUNCATE ON document_sets EXECUTE FUNCTION refuse('a document set is kept');
CREATE TRIGGER document_pins_fixed BEFORE UPDATE ON document_pins FOR EACH ROW
  EXECUTE FUNCTION refuse('a version keeps its document set');
CREATE TRIGGER document_pins_kept BEFORE DELETE ON document_pins FOR EACH ROW
  EXECUTE FUNCTION refuse('a version keeps its document set');
CREATE TRIGGER document_pins_not_emptied BEFORE TRUNCATE ON document_pins
  EXECUTE FUNCTION refuse('a version keeps its document set');
CREATE TRIGGER approval_roles_fixed BEFORE UPDATE ON approval_roles FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its roles');
CREATE TRIGGER approval_roles_kept BEFORE DELETE ON approval_roles FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its roles');
CREATE TRIGGER approval_roles_not_emptied BEFORE TRUNCATE ON approval_roles EXECUTE FUNCTION refuse('a request keeps its roles');
CREATE TRIGGER document_contacts_fixed BEFORE UPDATE ON document_contacts FOR EACH ROW
  EXECUTE FUNCTION refuse('a version keeps its contact');
CREATE TRIGGER document_contacts_kept BEFORE DELETE ON document_contacts FOR EACH ROW
  EXECUTE FUNCTION refuse('a version keeps its contact');
CREATE TRIGGER document_contacts_not_emptied BEFORE TRUNCATE ON document_contacts
  EXECUTE FUNCTION refuse('a version keeps its contact');
CREATE TRIGGER approval_notes_fixed BEFORE UPDATE ON approval_notes FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its note');
CREATE TRIGGER approval_notes_kept BEFORE DELETE ON approval_notes FOR EACH ROW
  EXECUTE FUNCTION refuse('a request keeps its note');
CREATE TRIGGER approval_notes_not_emptied BEFORE TRUNCATE ON approval_notes EXECUTE FUNCTION refuse('a request keeps its note');
CREATE TRIGGER quotes_arrows BEFORE UPDATE OF state ON quotes FOR EACH ROW
  WHEN (NEW.version = OLD.version AND NEW.state <> OLD.state AND (OLD.state || ' ' || NEW.state) NOT IN (
  'draft validated', 'draft pending_approval', 'draft cancelled', 'draft expired',
  'validated priced', 'validated cancelled', 'validated expired',
  'priced pending_approval', 'priced approved', 'priced draft', 'priced cancelled', 'priced expired',
  'pending_approval approved', 'pending_approval rejected', 'pending_approval draft', 'pending_approval cancelled',
  'pending_approval expired',
  'approved finalized', 'approved draft', 'approved cancelled', 'approved expired',
  'rejected draft', 'rejected cancelled', 'rejected expired',
  'finalized sent', 'finalized cancelled', 'finalized expired',
  'sent accepted', 'sent lost', 'sent cancelled', 'sent expired'))
  EXECUTE FUNCTION refuse('a quote has no such arrow');

CREATE FUNCTION approval_has_every_slot() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM approval_slots AS s WHERE s.approval_id = NEW.approval_id AND s.state <> 'approved') THEN
    RAISE EXCEPTION 'an approval needs every slot' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER approvals_every_slot BEFORE UPDATE OF state ON approvals FOR EACH ROW
  WHEN (OLD.state = 'pending' AND NEW.state = 'approved') EXECUTE FUNCTION approval_has_every_slot();

CREATE FUNCTION quote_goes_on() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.version <> OLD.version + 1
    OR NEW.state <> 'priced'
    OR OLD.state IN ('accepted', 'lost', 'cancelled', 'expired')
    OR NOT EXISTS (SELECT 1 FROM quote_versions AS v WHERE v.quote_id = OLD.quote_id AND v.version = NEW.version)
    OR NOT EXISTS (SELECT 1 FROM superseded_versions AS s WHERE s.quote_id = OLD.quote_id AND s.version = OLD.version)
  THEN
    RAISE EXCEPTION 'a quote goes from version to version, priced, and never once it is final'
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER quotes_versions BEFORE UPDATE OF version ON quotes FOR EACH ROW
  WHEN (NEW.version <> OLD.version) EXECUTE FUNCTION quote_goes_on();
