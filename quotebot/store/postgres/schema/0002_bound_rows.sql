-- contract: of the first build.
-- Triggers that report each changed row of the tables that the audit binds (quotebot/store/columns.py) to a session that has the
-- temporary table bound_rows. A later file that adds a bound column replaces the triggers of its table.

CREATE FUNCTION bind_quotes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'quotes', json_build_array(coalesce(NEW.quote_id, OLD.quote_id))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_quotes AFTER INSERT OR DELETE OR UPDATE OF
  quote_id, version, state, account, requester, requester_name, team_id, channel, created_at, valid_until, created_by_operation,
  asked_hash, recorded_at, root_effect_key, thread_ts, updated_at
ON quotes FOR EACH ROW EXECUTE FUNCTION bind_quotes();

CREATE FUNCTION bind_one_time_tokens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'one_time_tokens', json_build_array(coalesce(NEW.token, OLD.token))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_one_time_tokens AFTER INSERT OR DELETE OR UPDATE OF token, quote_id, used_at ON one_time_tokens
  FOR EACH ROW EXECUTE FUNCTION bind_one_time_tokens();

CREATE FUNCTION bind_quote_versions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'quote_versions', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.version, OLD.version))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_quote_versions AFTER INSERT OR DELETE OR UPDATE OF
  quote_id, version, ruleset, pricing_hash, created_at
ON quote_versions FOR EACH ROW EXECUTE FUNCTION bind_quote_versions();

CREATE FUNCTION bind_approvals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'approvals', json_build_array(coalesce(NEW.approval_id, OLD.approval_id))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_approvals AFTER INSERT OR DELETE OR UPDATE OF
  approval_id, quote_id, quote_version, required_roles, reasons, state, requested_by, requested_at, decided_by, decided_role,
  decided_at, decision_reason, earlier
ON approvals FOR EACH ROW EXECUTE FUNCTION bind_approvals();

CREATE FUNCTION bind_approval_slots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'approval_slots', json_build_array(coalesce(NEW.approval_id, OLD.approval_id), coalesce(NEW.slot, OLD.slot))::text,
      (SELECT quote_id FROM approvals WHERE approval_id = coalesce(NEW.approval_id, OLD.approval_id)), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_approval_slots AFTER INSERT OR DELETE OR UPDATE OF
  approval_id, slot, stage, roles, asked, assignee, dual_control, state, opened_at, remind_at, escalate_at, expires_at,
  reminded_at, escalated_at, decided_by, decided_role, on_behalf_of, decided_at, reason
ON approval_slots FOR EACH ROW EXECUTE FUNCTION bind_approval_slots();

CREATE FUNCTION bind_approval_policies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'approval_policies', json_build_array(coalesce(NEW.approval_id, OLD.approval_id))::text,
      (SELECT quote_id FROM approvals WHERE approval_id = coalesce(NEW.approval_id, OLD.approval_id)), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_approval_policies AFTER INSERT OR DELETE OR UPDATE OF
  approval_id, policy, ruleset_hash, remind_ms, escalate_ms, expire_ms
ON approval_policies FOR EACH ROW EXECUTE FUNCTION bind_approval_policies();

CREATE FUNCTION bind_approval_calendars() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'approval_calendars', json_build_array(coalesce(NEW.approval_id, OLD.approval_id))::text,
      (SELECT quote_id FROM approvals WHERE approval_id = coalesce(NEW.approval_id, OLD.approval_id)), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_approval_calendars AFTER INSERT OR DELETE OR UPDATE OF approval_id, calendar ON approval_calendars
  FOR EACH ROW EXECUTE FUNCTION bind_approval_calendars();

CREATE FUNCTION bind_approval_roles() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'approval_roles', json_build_array(coalesce(NEW.approval_id, OLD.approval_id))::text,
      (SELECT quote_id FROM approvals WHERE approval_id = coalesce(NEW.approval_id, OLD.approval_id)), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_approval_roles AFTER INSERT OR DELETE OR UPDATE OF approval_id, roles ON approval_roles
  FOR EACH ROW EXECUTE FUNCTION bind_approval_roles();

CREATE FUNCTION bind_approval_notes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'approval_notes', json_build_array(coalesce(NEW.approval_id, OLD.approval_id))::text,
      (SELECT quote_id FROM approvals WHERE approval_id = coalesce(NEW.approval_id, OLD.approval_id)), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_approval_notes AFTER INSERT OR DELETE OR UPDATE OF approval_id, note ON approval_notes
  FOR EACH ROW EXECUTE FUNCTION bind_approval_notes();

CREATE FUNCTION bind_delegations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'delegations', json_build_array(coalesce(NEW.operation_key, OLD.operation_key))::text,
      'delegation:' || coalesce(NEW.absent, OLD.absent), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_delegations AFTER INSERT OR DELETE OR UPDATE OF
  operation_key, team_id, absent, delegate, since, until, asked_at, reason
ON delegations FOR EACH ROW EXECUTE FUNCTION bind_delegations();

CREATE FUNCTION bind_superseded_versions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'superseded_versions', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.version, OLD.version))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_superseded_versions AFTER INSERT OR DELETE OR UPDATE OF
  quote_id, version, state, valid_until, superseded_by, superseded_at
ON superseded_versions FOR EACH ROW EXECUTE FUNCTION bind_superseded_versions();

CREATE FUNCTION bind_quote_sendings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'quote_sendings', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.version, OLD.version))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_quote_sendings AFTER INSERT OR DELETE OR UPDATE OF
  quote_id, version, recipient, sent_by, sent_at
ON quote_sendings FOR EACH ROW EXECUTE FUNCTION bind_quote_sendings();

CREATE FUNCTION bind_quote_closings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'quote_closings', json_build_array(coalesce(NEW.quote_id, OLD.quote_id))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_quote_closings AFTER INSERT OR DELETE OR UPDATE OF
  quote_id, version, state, reason, closed_by, closed_at
ON quote_closings FOR EACH ROW EXECUTE FUNCTION bind_quote_closings();

CREATE FUNCTION bind_quote_freezings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'quote_freezings', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.version, OLD.version))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_quote_freezings AFTER INSERT OR DELETE OR UPDATE OF quote_id, version, frozen_by, frozen_at ON quote_freezings
  FOR EACH ROW EXECUTE FUNCTION bind_quote_freezings();

CREATE FUNCTION bind_quote_opportunities() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'quote_opportunities', json_build_array(coalesce(NEW.quote_id, OLD.quote_id))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_quote_opportunities AFTER INSERT OR DELETE OR UPDATE OF quote_id, record_id, account_id ON quote_opportunities
  FOR EACH ROW EXECUTE FUNCTION bind_quote_opportunities();

CREATE FUNCTION bind_inherited_makers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'inherited_makers', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.maker, OLD.maker))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_inherited_makers AFTER INSERT OR DELETE OR UPDATE OF quote_id, maker ON inherited_makers
  FOR EACH ROW EXECUTE FUNCTION bind_inherited_makers();

CREATE FUNCTION bind_replaced_roots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'replaced_roots', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.dead_ts, OLD.dead_ts))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_replaced_roots AFTER INSERT OR DELETE OR UPDATE OF quote_id, dead_ts, post_key, replaced_at ON replaced_roots
  FOR EACH ROW EXECUTE FUNCTION bind_replaced_roots();

CREATE FUNCTION bind_quote_places() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'quote_places', json_build_array(coalesce(NEW.quote_id, OLD.quote_id))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_quote_places AFTER INSERT OR DELETE OR UPDATE OF quote_id, channel, moved_at ON quote_places
  FOR EACH ROW EXECUTE FUNCTION bind_quote_places();

CREATE FUNCTION bind_artefacts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'artefacts', json_build_array(coalesce(NEW.render_key, OLD.render_key), coalesce(NEW.sha256, OLD.sha256))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_artefacts AFTER INSERT OR DELETE OR UPDATE OF
  render_key, sha256, quote_id, version, pages, rendered_at
ON artefacts FOR EACH ROW EXECUTE FUNCTION bind_artefacts();

CREATE FUNCTION bind_document_sets() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'document_sets', json_build_array(coalesce(NEW.sha256, OLD.sha256))::text,
      'system', (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_document_sets AFTER INSERT OR DELETE OR UPDATE OF sha256, stored_at ON document_sets
  FOR EACH ROW EXECUTE FUNCTION bind_document_sets();

CREATE FUNCTION bind_document_pins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'document_pins', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.version, OLD.version))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_document_pins AFTER INSERT OR DELETE OR UPDATE OF quote_id, version, sha256, pinned_at ON document_pins
  FOR EACH ROW EXECUTE FUNCTION bind_document_pins();

CREATE FUNCTION bind_document_contacts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'document_contacts', json_build_array(coalesce(NEW.quote_id, OLD.quote_id), coalesce(NEW.version, OLD.version))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_document_contacts AFTER INSERT OR DELETE OR UPDATE OF quote_id, version, email, phone ON document_contacts
  FOR EACH ROW EXECUTE FUNCTION bind_document_contacts();

CREATE FUNCTION bind_rulesets() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'rulesets', json_build_array(coalesce(NEW.version, OLD.version))::text,
      'system', (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_rulesets AFTER INSERT OR DELETE OR UPDATE OF
  version, hash, label, products, books, state, origin, note, imported_by, imported_at, activated_by, activated_at, retired_at
ON rulesets FOR EACH ROW EXECUTE FUNCTION bind_rulesets();

CREATE FUNCTION bind_ruleset_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'ruleset_requests', json_build_array(coalesce(NEW.request_id, OLD.request_id))::text,
      'system', (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_ruleset_requests AFTER INSERT OR DELETE OR UPDATE OF
  request_id, fingerprint, answer, requested_by, requested_at
ON ruleset_requests FOR EACH ROW EXECUTE FUNCTION bind_ruleset_requests();

CREATE FUNCTION bind_crm_conflicts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'crm_conflicts', json_build_array(coalesce(NEW.id, OLD.id))::text,
      coalesce(NEW.quote_id, OLD.quote_id), (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_crm_conflicts AFTER INSERT OR DELETE OR UPDATE OF
  id, quote_id, version, record_id, field, ours, theirs, found_at, state, decided_by, decided_at, reason
ON crm_conflicts FOR EACH ROW EXECUTE FUNCTION bind_crm_conflicts();
