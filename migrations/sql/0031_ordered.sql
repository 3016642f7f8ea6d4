-- +goose Up
-- The index of a tenant's cohorts by their next times is written anew with each firing of each of them, and is a seventh of what
-- a sweep of cohorts of one takes. The cohorts that were made while a tenant had few schedules are not in it: who asks for them
-- in the order of their times reads all of them.
ALTER TABLE cohort_timing ADD COLUMN ordered boolean NOT NULL DEFAULT true;
ALTER TABLE cohort ADD COLUMN ordered boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN cohort.ordered IS 'it is found by its next time through cohort_next; else, with the few of its tenant, through cohort_timing_few';
COMMENT ON COLUMN cohort_timing.ordered IS 'that of its cohort';
CREATE INDEX cohort_timing_few ON cohort_timing (tenant_id, shard, id) WHERE NOT ordered;
DROP INDEX cohort_next;
CREATE INDEX cohort_next ON cohort (tenant_id, next_at, id) WHERE ordered AND next_at IS NOT NULL;

-- +goose Down
SELECT 'forward only';
