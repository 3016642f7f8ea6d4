-- +goose Up
-- How many requests to endpoints each process has in flight, as it says every second: what `running` is measured by.
CREATE UNLOGGED TABLE pushing (
  process_id bigint NOT NULL,
  tenant_id  int    NOT NULL,
  requests   int    NOT NULL,
  busiest    int    NOT NULL,
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (process_id, tenant_id)
) WITH (fillfactor = 50);
CREATE INDEX pushing_of_tenant ON pushing (tenant_id);
COMMENT ON COLUMN pushing.busiest IS 'of the requests, those to the endpoint with most';

-- Pauses that end by themselves: those that have ended count as what their schedules are now.
CREATE INDEX schedule_rest ON schedule (tenant_id, paused_until) INCLUDE (workflow, cohort_id)
  WHERE status = 'paused' AND paused_until IS NOT NULL;

-- How many keys of a tenant have a profile, counted as cohorts' members are, in the place of a cohort that is not there.
-- +goose StatementBegin
CREATE FUNCTION key_profile_tallied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally_delta (tenant_id, cohort_id, n)
  SELECT tenant_id, -1, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END FROM changed GROUP BY tenant_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER key_profile_made AFTER INSERT ON key_profile
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION key_profile_tallied();
CREATE TRIGGER key_profile_gone AFTER DELETE ON key_profile
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION key_profile_tallied();
INSERT INTO tally (tenant_id, cohort_id, n)
SELECT tenant_id, -1, count(*) FROM key_profile GROUP BY tenant_id;
COMMENT ON TABLE tally IS 'members of each cohort; cohort 0: all schedules of the tenant, whatever their state; cohort -1: its profiles of keys';

-- A tally says of which workflow its cohort is, so that counting schedules by workflow reads no cohort.
ALTER TABLE tally ADD COLUMN workflow text COLLATE "C";
COMMENT ON COLUMN tally.workflow IS 'of the cohort; null: of none';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cohort_tallied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally (tenant_id, cohort_id, shard, workflow) SELECT tenant_id, id, shard, workflow FROM made ORDER BY tenant_id, id
  ON CONFLICT (tenant_id, cohort_id) DO NOTHING;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
UPDATE tally t SET workflow = c.workflow FROM cohort c WHERE c.shard = t.shard AND c.id = t.cohort_id AND c.tenant_id = t.tenant_id;

-- +goose Down
SELECT 'forward only';
