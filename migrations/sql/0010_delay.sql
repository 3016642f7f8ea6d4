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

-- max_running: what runs of workflows that have it, a row a tick, and what waits to be pushed. Others have no rows here.
CREATE TABLE slot (
  tenant_id   int      NOT NULL,
  schedule_id bigint   NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int      NOT NULL,
  attempt     smallint NOT NULL,
  workflow    text     COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq)
);
CREATE INDEX slot_of_workflow ON slot (tenant_id, workflow);
CREATE TABLE waiting (
  tenant_id   int      NOT NULL,
  workflow    text     COLLATE "C" NOT NULL,
  priority    smallint NOT NULL,
  id          bigint GENERATED ALWAYS AS IDENTITY,
  schedule_id bigint   NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int      NOT NULL,
  attempt     smallint NOT NULL,
  shard       smallint NOT NULL,
  PRIMARY KEY (tenant_id, workflow, priority, id)
);

-- +goose Down
SELECT 'forward only';
