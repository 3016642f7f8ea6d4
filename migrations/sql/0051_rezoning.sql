-- +goose Up
-- A new tz database is compared with all cohorts in steps, tenant by tenant: this is where the next step begins.
ALTER TABLE tzdata ADD COLUMN walked jsonb;
COMMENT ON COLUMN tzdata.walked IS 'the last cohort timing that was compared, by its key; null: none yet';

-- Whether an operation waits in the queue is looked up by its number.
CREATE INDEX river_job_operation ON river_job (((args ->> 'operation')::bigint)) WHERE kind = 'operate' AND state = 'available';

-- +goose Down
SELECT 'forward only';
