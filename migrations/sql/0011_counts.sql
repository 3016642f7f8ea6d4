-- +goose Up
-- How many there are, kept by triggers, so that no writer can forget it. A change appends what it adds or takes away, and
-- waits for nobody; each second the deltas are folded into the tallies.
CREATE TABLE tally_delta (
  tenant_id int    NOT NULL,
  cohort_id bigint NOT NULL,
  n         bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE TABLE tally (
  tenant_id int      NOT NULL,
  cohort_id bigint   NOT NULL,
  shard     smallint NOT NULL DEFAULT 0,
  n         bigint   NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, cohort_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE tally IS 'members of each cohort; cohort 0: all schedules of the tenant, whatever their state';
COMMENT ON COLUMN tally.shard IS 'where the cohort is';

-- +goose StatementBegin
CREATE FUNCTION cohort_tallied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally (tenant_id, cohort_id, shard) SELECT tenant_id, id, shard FROM made ORDER BY tenant_id, id ON CONFLICT DO NOTHING;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION member_tallied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally_delta (tenant_id, cohort_id, n)
  SELECT tenant_id, cohort_id, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END FROM changed GROUP BY tenant_id, cohort_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION schedule_tallied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally_delta (tenant_id, cohort_id, n)
  SELECT tenant_id, 0, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END FROM changed GROUP BY tenant_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER cohort_made AFTER INSERT ON cohort
  REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION cohort_tallied();
CREATE TRIGGER member_joined AFTER INSERT ON member
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION member_tallied();
CREATE TRIGGER member_left AFTER DELETE ON member
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION member_tallied();
-- On the state, which is made and goes with its schedule, and is narrow: the trigger is handed whole rows.
CREATE TRIGGER schedule_made AFTER INSERT ON schedule_state
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION schedule_tallied();
CREATE TRIGGER schedule_gone AFTER DELETE ON schedule_state
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION schedule_tallied();
INSERT INTO tally (tenant_id, cohort_id, shard, n)
SELECT c.tenant_id, c.id, c.shard, (SELECT count(*) FROM member m WHERE m.cohort_id = c.id) FROM cohort c
UNION ALL
SELECT tenant_id, 0, 0, count(*) FROM schedule_state GROUP BY tenant_id;

-- What a tenant may have handed out by when: its ticks a second, as a moment up to which they are spent.
CREATE TABLE allowance (
  tenant_id int PRIMARY KEY REFERENCES tenant ON DELETE CASCADE,
  spent_to  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Cohorts that are due and wait for their tenant's turn: for its tokens, behind others' ticks, or while it is halted.
ALTER TABLE cohort ADD COLUMN wait_at timestamptz;
CREATE INDEX cohort_waiting ON cohort (shard, tenant_id, wait_at, id) WHERE wait_at IS NOT NULL;
COMMENT ON COLUMN cohort.due_at IS 'when the sweep looks at it again; null while it is empty or exhausted, infinity while it waits for a turn';
COMMENT ON COLUMN cohort.wait_at IS 'since when it waits for a turn of its tenant''s';
CREATE TABLE turn (
  shard     smallint NOT NULL,
  tenant_id int NOT NULL,
  due_at    timestamptz NOT NULL,
  PRIMARY KEY (shard, tenant_id)
) WITH (fillfactor = 50);
CREATE INDEX turn_due ON turn (shard, due_at);
COMMENT ON TABLE turn IS 'tenants of whom cohorts of a shard wait, and when they are looked at';

ALTER TABLE tenant ADD COLUMN halt_note text;

-- +goose Down
SELECT 'forward only';
