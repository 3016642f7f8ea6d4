-- +goose Up
-- fixed_delay: a cohort of one, whose next time is set by the transaction that ends its tick.
ALTER TABLE cohort ADD COLUMN delay boolean NOT NULL DEFAULT false;
CREATE INDEX cohort_delay ON cohort (shard, id) WHERE delay AND due_at IS NULL AND empty_at IS NULL;
COMMENT ON COLUMN cohort.delay IS 'its one member fires a while after its last tick ended; next_at is null until then';

ALTER TABLE schedule_state
  ADD COLUMN delay_at   timestamptz,
  ADD COLUMN delay_left int;
COMMENT ON COLUMN schedule_state.delay_at IS 'of fixed_delay: nominal time of the tick that was swept and has not ended';
COMMENT ON COLUMN schedule_state.delay_left IS 'of fixed_delay: how many ticks are left; null: no limit, 0: it is over';

-- +goose Down
SELECT 'forward only';
