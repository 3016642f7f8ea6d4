-- +goose Up
-- What names a cohort, and its timing, never change; its times change with each firing, and with them every index of their
-- row. So the two lie apart: the sweep writes a narrow row, and reads what is timed only where it is not kept in memory.
CREATE TABLE cohort_timing (
  tenant_id int      NOT NULL,
  shard     smallint NOT NULL,
  hash      bytea    NOT NULL,
  workflow  text     COLLATE "C" NOT NULL,
  missed    text     NOT NULL,
  id        bigint   GENERATED ALWAYS AS IDENTITY,
  timing    text     NOT NULL,
  PRIMARY KEY (tenant_id, shard, hash, workflow, missed)
);
COMMENT ON TABLE cohort_timing IS 'which cohort a timing has in a workflow, shard and missed policy; id is the cohort''s';

INSERT INTO cohort_timing (tenant_id, shard, hash, workflow, missed, id, timing)
OVERRIDING SYSTEM VALUE
SELECT tenant_id, shard, hash, workflow, missed, id, timing FROM cohort;
SELECT setval(pg_get_serial_sequence('cohort_timing', 'id'), GREATEST((SELECT max(id) FROM cohort), 0) + 1, false);

ALTER TABLE cohort
  DROP CONSTRAINT cohort_identity,
  DROP COLUMN timing,
  DROP COLUMN form,
  ALTER COLUMN id DROP IDENTITY;

-- +goose Down
SELECT 'forward only';
