-- +goose Up
-- Each version says what it was, whole, and what its coming changed.
ALTER TABLE schedule
  ADD COLUMN next_before timestamptz,
  ADD COLUMN next_after  timestamptz;
COMMENT ON COLUMN schedule.next_before IS 'the next tick when this version came, before it; null: there was none';
COMMENT ON COLUMN schedule.next_after IS 'the next tick when this version came, by it; null: there was none';

ALTER TABLE revision
  ADD COLUMN status      text,
  ADD COLUMN overlap     text,
  ADD COLUMN missed      text,
  ADD COLUMN pause_after_failures int,
  ADD COLUMN keep_succeeded_s int,
  ADD COLUMN keep_failed_s int,
  ADD COLUMN labels      jsonb NOT NULL DEFAULT '{}',
  ADD COLUMN note        text,
  ADD COLUMN status_note text,
  ADD COLUMN changed_at  timestamptz,
  ADD COLUMN changed_by  text,
  ADD COLUMN next_before timestamptz,
  ADD COLUMN next_after  timestamptz;
UPDATE revision r
SET status = 'active',
    changed_at = COALESCE(b.ended_at, r.anchor_at),
    changed_by = COALESCE(b.ended_by, '')
FROM revision o
LEFT JOIN revision b ON b.tenant_id = o.tenant_id AND b.schedule_id = o.schedule_id AND b.version = o.version - 1
WHERE r.tenant_id = o.tenant_id AND r.schedule_id = o.schedule_id AND r.version = o.version;
ALTER TABLE revision
  ALTER COLUMN status SET NOT NULL,
  ALTER COLUMN changed_at SET NOT NULL,
  ALTER COLUMN changed_by SET NOT NULL;
COMMENT ON COLUMN revision.changed_at IS 'when it became the present version; ended_at: when it ceased to be';

-- +goose Down
SELECT 'forward only';
