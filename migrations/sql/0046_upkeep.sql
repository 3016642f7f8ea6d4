-- +goose Up
-- Upkeep finds what it looks for through indexes that hold nothing else.

ALTER TABLE cohort ADD COLUMN over boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cohort.over IS 'of fixed_delay: no tick is left, and upkeep completes its schedule';
UPDATE cohort c
SET over = true
FROM member m
JOIN schedule_state st ON st.tenant_id = m.tenant_id AND st.schedule_id = m.schedule_id
WHERE c.delay AND m.tenant_id = c.tenant_id AND m.cohort_id = c.id AND st.delay_left = 0;
-- A cohort with fixed_delay has no due time while a tick of it is out. That is no end.
DROP INDEX cohort_exhausted;
CREATE INDEX cohort_exhausted ON cohort (shard, id) WHERE due_at IS NULL AND empty_at IS NULL AND (NOT delay OR over);

DROP INDEX cohort_empty;
CREATE INDEX cohort_empty ON cohort (shard, empty_at) WHERE empty_at IS NOT NULL;

CREATE INDEX workflow_limited ON workflow (tenant_id) WHERE max_running IS NOT NULL;
CREATE INDEX calendar_revision_unmarked ON calendar_revision (tenant_id) WHERE marked < revision;
CREATE INDEX tenant_erased ON tenant (erasing_at) WHERE erasing_at IS NOT NULL;
CREATE INDEX sync_silent ON sync (seen_at) WHERE NOT over;
CREATE INDEX sync_over ON sync (tenant_id, id) WHERE over;

-- A waiting tick learns that its schedule is deleted from the statement that deletes the schedule's state. A transaction
-- that makes a tick wait holds the lock of that state, so the trigger sees the tick.
ALTER TABLE buffered ADD COLUMN orphan boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN buffered.orphan IS 'its schedule is deleted, and upkeep cancels it';
UPDATE buffered b
SET orphan = true
WHERE NOT EXISTS (SELECT FROM schedule s WHERE s.tenant_id = b.tenant_id AND s.id = b.schedule_id);
CREATE INDEX buffered_orphan ON buffered (tenant_id, schedule_id) WHERE orphan;
-- +goose StatementBegin
CREATE FUNCTION schedule_orphans() RETURNS trigger LANGUAGE plpgsql
-- Its plan is kept: a plan that was made while few ticks waited would read all that wait.
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
BEGIN
  UPDATE buffered b
  SET orphan = true
  FROM gone g
  WHERE b.tenant_id = g.tenant_id AND b.schedule_id = g.schedule_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER schedule_orphans AFTER DELETE ON schedule_state
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION schedule_orphans();

-- +goose Down
SELECT 'forward only';
