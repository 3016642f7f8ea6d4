-- +goose Up
-- A tick that must wait for its endpoint, or for its tenant to go on, is parked: waits_for says for what, and due_at is the
-- moment when the tick expires. It costs nothing until then, unless it is woken.
ALTER TABLE held ADD COLUMN waits_for text COLLATE "C";
COMMENT ON COLUMN held.waits_for IS 'the endpoint that must change before the tick can be sent; empty: its tenant is halted or suspended; null: the tick waits for due_at alone';
CREATE INDEX held_parked ON held (tenant_id, waits_for, nominal_at, schedule_id, seq) WHERE waits_for IS NOT NULL;

-- The change that ends the wait writes a row here, in its own transaction, so that no wake is lost. Processes that dispatch
-- then wake the parked ticks in batches, and note how far they are.
CREATE TABLE wake (
  tenant_id   int  NOT NULL,
  waits_for   text COLLATE "C" NOT NULL,
  nominal_at  timestamptz NOT NULL DEFAULT '-infinity',
  schedule_id bigint      NOT NULL DEFAULT 0,
  seq         int         NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, waits_for)
);
COMMENT ON TABLE wake IS 'what parked ticks no longer wait for; the tick that was woken last';

-- Who parks ticks of a tenant shares the lock (0x4341524b, tenant) until its transaction ends, and reads what they wait for
-- after it has the lock. So a change either finds the parked ticks, or is seen by who parks them.
-- +goose StatementBegin
CREATE FUNCTION endpoint_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(x'4341524b'::int, OLD.tenant_id);
  INSERT INTO wake (tenant_id, waits_for)
  SELECT OLD.tenant_id, OLD.name
  WHERE EXISTS (SELECT FROM held WHERE tenant_id = OLD.tenant_id AND waits_for = OLD.name)
  ON CONFLICT (tenant_id, waits_for) DO UPDATE SET nominal_at = excluded.nominal_at, schedule_id = excluded.schedule_id, seq = excluded.seq;
  RETURN NULL;
END
$$;
CREATE FUNCTION workflow_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(x'4341524b'::int, OLD.tenant_id);
  INSERT INTO wake (tenant_id, waits_for)
  SELECT OLD.tenant_id, OLD.endpoint
  WHERE EXISTS (SELECT FROM held WHERE tenant_id = OLD.tenant_id AND waits_for = OLD.endpoint)
  ON CONFLICT (tenant_id, waits_for) DO UPDATE SET nominal_at = excluded.nominal_at, schedule_id = excluded.schedule_id, seq = excluded.seq;
  RETURN NULL;
END
$$;
-- The platform changes tenants, and may not see rows of theirs: this runs as the engine.
CREATE FUNCTION tenant_goes_on() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(x'4341524b'::int, OLD.id);
  INSERT INTO wake (tenant_id, waits_for)
  VALUES (OLD.id, '')
  ON CONFLICT (tenant_id, waits_for) DO UPDATE SET nominal_at = excluded.nominal_at, schedule_id = excluded.schedule_id, seq = excluded.seq;
  RETURN NULL;
END
$$;
ALTER FUNCTION tenant_goes_on() OWNER TO carillon_engine;
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION tenant_goes_on() SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd
CREATE TRIGGER endpoint_changed AFTER UPDATE ON endpoint
  FOR EACH ROW WHEN (NEW.state = 'enabled' AND (NEW.state, NEW.url, NEW.secrets) IS DISTINCT FROM (OLD.state, OLD.url, OLD.secrets))
  EXECUTE FUNCTION endpoint_changed();
CREATE TRIGGER workflow_changed AFTER UPDATE ON workflow
  FOR EACH ROW WHEN (OLD.endpoint IS NOT NULL AND (NEW.endpoint, NEW.defaults) IS DISTINCT FROM (OLD.endpoint, OLD.defaults))
  EXECUTE FUNCTION workflow_changed();
CREATE TRIGGER workflow_gone AFTER DELETE ON workflow
  FOR EACH ROW WHEN (OLD.endpoint IS NOT NULL) EXECUTE FUNCTION workflow_changed();
CREATE TRIGGER tenant_goes_on AFTER UPDATE ON tenant
  FOR EACH ROW WHEN (NEW.status = 'active' AND NEW.halted_at IS NULL AND (OLD.status <> 'active' OR OLD.halted_at IS NOT NULL))
  EXECUTE FUNCTION tenant_goes_on();

-- +goose Down
SELECT 'forward only';
