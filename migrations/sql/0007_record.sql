-- +goose Up
-- Every tick, its attempts, its index by time, and ticks that failed for good. Upkeep makes and drops the days' partitions.

CREATE TABLE tick (
  tenant_id     int         NOT NULL,
  schedule_id   bigint      NOT NULL,
  nominal_at    timestamptz NOT NULL,
  seq           int         NOT NULL,
  version       int         NOT NULL,
  missed_count  int         NOT NULL,
  occurrence    bigint,
  cohort_id     bigint,
  chunk_id      bigint,
  last_at       timestamptz,
  fired_at      timestamptz NOT NULL,
  ended_at      timestamptz,
  shard         smallint    NOT NULL,
  attempt       smallint    NOT NULL,
  state         smallint    NOT NULL,
  reason        smallint    NOT NULL,
  cause         smallint    NOT NULL,
  dst           smallint    NOT NULL,
  started_at    timestamptz,
  payload       text,
  result        text,
  error         text,
  until_at      timestamptz,
  replayed_from smallint,
  trace         bytea,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq),
  CONSTRAINT tick_ended CHECK (((ended_at IS NULL) = (state IN (0, 1))))
) PARTITION BY RANGE (nominal_at);
CREATE TABLE tick_default PARTITION OF tick DEFAULT WITH (fillfactor = 60);
COMMENT ON TABLE tick IS 'The record of one tick. It has one final state. Partitioned by day. Written by dispatch/control, dispatch/finish, dispatch/open, dispatch/record, dispatch/upkeep.';
COMMENT ON COLUMN tick.seq IS '0: a timed tick; a manual tick has a number of its own';
COMMENT ON COLUMN tick.last_at IS 'nominal time of the timed tick before it';
COMMENT ON COLUMN tick.state IS '0 scheduled, 1 running, 2 succeeded, 3 failed, 4 cancelled, 5 skipped';
COMMENT ON COLUMN tick.payload IS 'a manual tick''s own payload; null: that of the schedule''s version';
COMMENT ON COLUMN tick.until_at IS 'the last nominal time of the schedule when the tick was made; null: no limit of ticks';
COMMENT ON COLUMN tick.replayed_from IS 'how many attempts it had when it was last delivered again; attempts are counted from there';
COMMENT ON COLUMN tick.trace IS 'what its traceparent says: 16 bytes of trace, 8 of span, 1 of flags; null: it follows from its id';

CREATE TABLE attempt (
  tenant_id   int         NOT NULL,
  schedule_id bigint      NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int         NOT NULL,
  attempt     smallint    NOT NULL,
  started_at  timestamptz,
  ended_at    timestamptz NOT NULL,
  outcome     text        NOT NULL,
  status      int,
  error       text,
  worker      text,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq, attempt),
  CONSTRAINT attempt_outcome CHECK (outcome IN ('succeeded', 'failed', 'timed_out', 'lost', 'cancelled'))
) PARTITION BY RANGE (nominal_at);
CREATE TABLE attempt_default PARTITION OF attempt DEFAULT;
COMMENT ON TABLE attempt IS 'An attempt of a tick, except a last one that succeeded: the row of the tick tells that. Partitioned by day. Written by dispatch/finish, dispatch/upkeep.';

CREATE TABLE tick_time (
  tenant_id  int              NOT NULL,
  nominal_at timestamptz      NOT NULL,
  id         bigint           GENERATED ALWAYS AS IDENTITY,
  workflow   text COLLATE "C" NOT NULL,
  ticks      int              NOT NULL,
  items      bytea            NOT NULL,
  PRIMARY KEY (tenant_id, nominal_at, id)
) PARTITION BY RANGE (nominal_at);
CREATE TABLE tick_time_default PARTITION OF tick_time DEFAULT;
CREATE INDEX tick_time_by_workflow ON tick_time (tenant_id, workflow, nominal_at, id);
COMMENT ON TABLE tick_time IS 'The index of ticks by time: the ticks of one workflow that were recorded together, as packed schedule ids. Partitioned by day. Written by dispatch/record.';
COMMENT ON COLUMN tick_time.items IS 'schedule ids, and sequence numbers of manual ticks, packed';

CREATE TABLE dead_letter (
  tenant_id    int              NOT NULL,
  schedule_id  bigint           NOT NULL,
  nominal_at   timestamptz      NOT NULL,
  seq          int              NOT NULL,
  workflow     text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  subject      text COLLATE "C",
  failed_at    timestamptz      NOT NULL,
  fired_at     timestamptz      NOT NULL,
  last_at      timestamptz,
  until_at     timestamptz,
  occurrence   bigint,
  cohort_id    bigint,
  version      int              NOT NULL,
  missed_count int              NOT NULL,
  shard        smallint         NOT NULL,
  attempt      smallint         NOT NULL,
  cause        smallint         NOT NULL,
  dst          smallint         NOT NULL,
  payload      text,
  error        text,
  trace        bytea,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq)
);
CREATE INDEX dead_letter_by_key ON dead_letter (tenant_id, key, nominal_at, schedule_id, seq);
CREATE INDEX dead_letter_by_subject ON dead_letter (tenant_id, subject, nominal_at, schedule_id, seq) WHERE subject IS NOT NULL;
CREATE INDEX dead_letter_by_time ON dead_letter (tenant_id, nominal_at, schedule_id, seq);
CREATE INDEX dead_letter_by_workflow ON dead_letter (tenant_id, workflow, nominal_at, schedule_id, seq);
CREATE INDEX dead_letter_failed ON dead_letter USING brin (failed_at);
COMMENT ON TABLE dead_letter IS 'A tick that failed for good, whole. It outlives the partition of its tick. Written by dispatch/control, dispatch/finish, dispatch/upkeep, schedules/subjects.';
COMMENT ON COLUMN dead_letter.subject IS 'the subject of its schedule; null: its key';
COMMENT ON COLUMN dead_letter.trace IS 'as in tick';

-- +goose Down
SELECT 'forward only';
