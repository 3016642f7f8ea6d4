-- +goose Up
-- Ticks aside: those that are delivered again and those of a backfill run beside the schedule's own.
ALTER TABLE tick ADD COLUMN replayed_from smallint;
COMMENT ON COLUMN tick.replayed_from IS 'how many attempts it had when it was delivered again last: from there its attempts are counted anew';
ALTER TABLE schedule_state
  ADD COLUMN aside         int NOT NULL DEFAULT 0,
  ADD COLUMN aside_waiting int NOT NULL DEFAULT 0;
COMMENT ON COLUMN schedule_state.aside IS 'ticks under way that are a backfill''s or delivered again: they are not counted in live; aside_waiting: those of them that wait';
ALTER TABLE buffered
  ADD COLUMN aside   boolean  NOT NULL DEFAULT false,
  ADD COLUMN attempt smallint NOT NULL DEFAULT 1;

-- What failed for good, whole: it outlives the day's partition of its tick.
CREATE TABLE dead_letter (
  tenant_id    int      NOT NULL,
  schedule_id  bigint   NOT NULL,
  nominal_at   timestamptz NOT NULL,
  seq          int      NOT NULL,
  workflow     text     COLLATE "C" NOT NULL,
  key          text     COLLATE "C" NOT NULL,
  failed_at    timestamptz NOT NULL,
  fired_at     timestamptz NOT NULL,
  last_at      timestamptz,
  until_at     timestamptz,
  occurrence   bigint,
  cohort_id    bigint,
  version      int      NOT NULL,
  missed_count int      NOT NULL,
  shard        smallint NOT NULL,
  attempt      smallint NOT NULL,
  cause        smallint NOT NULL,
  dst          smallint NOT NULL,
  payload      text,
  error        text,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq)
);
CREATE INDEX dead_letter_by_time ON dead_letter (tenant_id, nominal_at, schedule_id, seq);
CREATE INDEX dead_letter_by_workflow ON dead_letter (tenant_id, workflow, nominal_at, schedule_id, seq);
CREATE INDEX dead_letter_by_key ON dead_letter (tenant_id, key, nominal_at, schedule_id, seq);
CREATE INDEX dead_letter_failed ON dead_letter USING brin (failed_at);
INSERT INTO dead_letter (tenant_id, schedule_id, nominal_at, seq, workflow, key, failed_at, fired_at, last_at, until_at, occurrence, cohort_id,
  version, missed_count, shard, attempt, cause, dst, payload, error)
SELECT t.tenant_id, t.schedule_id, t.nominal_at, t.seq, COALESCE(s.workflow, r.workflow), COALESCE(s.key, r.key), t.ended_at, t.fired_at,
  t.last_at, t.until_at, t.occurrence, t.cohort_id, t.version, t.missed_count, t.shard, t.attempt, t.cause, t.dst, t.payload, t.error
FROM tick t
LEFT JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id
LEFT JOIN revision r ON r.tenant_id = t.tenant_id AND r.schedule_id = t.schedule_id AND r.version = t.version
WHERE t.state = 3 AND COALESCE(s.workflow, r.workflow) IS NOT NULL;

-- The roll says which ticks there are by time, as tick's own key goes by schedule: a row for those of one workflow that
-- were recorded together, as their schedules' ids, packed.
CREATE TABLE roll (
  tenant_id  int    NOT NULL,
  nominal_at timestamptz NOT NULL,
  id         bigint GENERATED ALWAYS AS IDENTITY,
  workflow   text   COLLATE "C" NOT NULL,
  ticks      int    NOT NULL,
  items      bytea  NOT NULL,
  PRIMARY KEY (tenant_id, nominal_at, id)
) PARTITION BY RANGE (nominal_at);
CREATE INDEX roll_by_workflow ON roll (tenant_id, workflow, nominal_at, id);
CREATE TABLE roll_default PARTITION OF roll DEFAULT;

-- What retention looks for: schedules with terms of their own, and revisions by age.
CREATE INDEX schedule_keeps ON schedule (tenant_id, id) WHERE keep_succeeded_s IS NOT NULL OR keep_failed_s IS NOT NULL;
CREATE INDEX revision_ended ON revision USING brin (ended_at);

-- +goose Down
SELECT 'forward only';
