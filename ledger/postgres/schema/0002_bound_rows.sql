-- contract: of the first build.
-- Triggers that report each changed row of the tables that the audit binds (ledger/audit/columns.py) to a session that has the
-- temporary table bound_rows. A later file that adds a bound column replaces the triggers of its table.

CREATE FUNCTION bind_generations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF to_regclass('pg_temp.bound_rows') IS NOT NULL THEN
    INSERT INTO pg_temp.bound_rows (name, key, aggregate_id, deleted) VALUES (
      'generations', json_build_array(coalesce(NEW.generation, OLD.generation))::text,
      'system', (TG_OP = 'DELETE')::integer);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER bind_generations AFTER INSERT OR DELETE OR UPDATE OF
  generation, started_at, backup_made_at, backup_sha256, last_operation_id, doubt_until, started_by
ON generations FOR EACH ROW EXECUTE FUNCTION bind_generations();
