-- +goose Up
-- The bytes of the specs and payloads of a tenant's schedules and of their versions are counted in the tally of cohort -2. The
-- program appends what a change adds or takes away; triggers would cost every upsert a fifth more.
ALTER TABLE tally ADD COLUMN counted_at timestamptz;
COMMENT ON COLUMN tally.counted_at IS 'of cohort -2: when the rows were last added up, to mend the count; null: never';
COMMENT ON TABLE tally IS 'members of each cohort; cohort 0: all schedules of the tenant, whatever their state; cohort -1: its profiles of keys; cohort -2: the bytes of its specs and payloads, those of versions too';
INSERT INTO tally (tenant_id, cohort_id, n)
SELECT tenant_id, -2, sum(octet_length(spec) + COALESCE(octet_length(payload), 0))
FROM (
  SELECT tenant_id, spec, payload FROM schedule
  UNION ALL
  SELECT tenant_id, spec, payload FROM revision
) stored
GROUP BY tenant_id;

-- The bytes that ticks store beside: results, and payloads of single ticks. They go with their day.
ALTER TABLE daily_use ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE daily_use_delta ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN daily_use.bytes IS 'of results of ticks that ended on the day, and of payloads of ticks that were triggered on it';

-- +goose Down
SELECT 'forward only';
