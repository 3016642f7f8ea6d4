-- +goose Up
-- What clients write: endpoints, workflows, profiles of keys, schedules, their versions, erasures and syncs.

CREATE TABLE endpoint (
  tenant_id  int              NOT NULL REFERENCES tenant,
  name       text COLLATE "C" NOT NULL,
  url        text             NOT NULL,
  batch      smallint         NOT NULL DEFAULT 1,
  headers    jsonb            NOT NULL DEFAULT '{}',
  events     text[]           NOT NULL DEFAULT '{}',
  state      text             NOT NULL DEFAULT 'enabled',
  rate       int,
  ramp_s     int,
  secrets    bytea[]          NOT NULL,
  created_at timestamptz      NOT NULL DEFAULT now(),
  updated_at timestamptz      NOT NULL DEFAULT now(),
  rotated_at timestamptz,
  PRIMARY KEY (tenant_id, name),
  CONSTRAINT endpoint_limits CHECK (batch BETWEEN 1 AND 500 AND rate BETWEEN 1 AND 100000 AND (ramp_s IS NULL OR rate IS NOT NULL)),
  CONSTRAINT endpoint_secrets CHECK (cardinality(secrets) BETWEEN 1 AND 2),
  CONSTRAINT endpoint_state CHECK (state IN ('enabled', 'held', 'disabled'))
);
CREATE INDEX endpoint_told_quotas ON endpoint (tenant_id) WHERE 'quota.soft' = ANY (events);
COMMENT ON TABLE endpoint IS 'A URL that ticks or events are sent to. A receiver changes from one secret to the next: two are valid at a time, never none. Written by dispatch/push.';
COMMENT ON COLUMN endpoint.rate IS 'how many ticks a second are sent to it, over all processes; null: no limit';
COMMENT ON COLUMN endpoint.ramp_s IS 'over how many seconds the rate rises after a pause; null: at once';
COMMENT ON COLUMN endpoint.rotated_at IS 'the last rotation of its secret; null: none';

CREATE TABLE workflow (
  tenant_id   int              NOT NULL REFERENCES tenant,
  name        text COLLATE "C" NOT NULL,
  endpoint    text COLLATE "C",
  version     text,
  past_versions jsonb,
  max_running int,
  fallback_timezone text,
  held_at     timestamptz,
  rate        int,
  ramp_s      int,
  expect_handed_s int,
  expect_ended_s int,
  defaults    jsonb            NOT NULL DEFAULT '{}',
  created_at  timestamptz      NOT NULL DEFAULT now(),
  updated_at  timestamptz      NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, name),
  CONSTRAINT workflow_endpoint FOREIGN KEY (tenant_id, endpoint) REFERENCES endpoint (tenant_id, name),
  CONSTRAINT workflow_limits CHECK (max_running > 0 AND rate BETWEEN 1 AND 100000 AND (ramp_s IS NULL OR rate IS NOT NULL))
);
CREATE INDEX workflow_by_endpoint ON workflow (tenant_id, endpoint) WHERE endpoint IS NOT NULL;
CREATE INDEX workflow_keeps ON workflow (tenant_id, name) WHERE (defaults #> '{delivery,retention}') IS NOT NULL;
CREATE INDEX workflow_limited ON workflow (tenant_id, name) WHERE max_running IS NOT NULL;
CREATE INDEX workflow_expecting ON workflow (tenant_id, name) WHERE expect_handed_s IS NOT NULL OR expect_ended_s IS NOT NULL;
CREATE INDEX workflow_rated ON workflow (tenant_id, name) WHERE rate IS NOT NULL;
CREATE INDEX workflow_held ON workflow (tenant_id, name) WHERE held_at IS NOT NULL;
COMMENT ON TABLE workflow IS 'What the ticks of a workflow are given to, its limit and the defaults of its schedules. Written by schedules.';
COMMENT ON COLUMN workflow.version IS 'as registered by its worker or client';
COMMENT ON COLUMN workflow.past_versions IS 'the last 100 earlier values of version (v), each with the microsecond since 1970 until which it was registered (u), the earliest first; null: it never changed';
COMMENT ON COLUMN workflow.fallback_timezone IS 'the zone of subjects without a profile; null: that of the tenant';
COMMENT ON COLUMN workflow.held_at IS 'since when nothing is handed out; null: it is active';
COMMENT ON COLUMN workflow.rate IS 'how many of its ticks a second are handed out, over all processes; null: no limit';
COMMENT ON COLUMN workflow.ramp_s IS 'over how many seconds the rate rises after a pause; null: at once';
COMMENT ON COLUMN workflow.expect_handed_s IS 'within how many seconds its ticks are expected to be handed out; null: no expectation';
COMMENT ON COLUMN workflow.expect_ended_s IS 'within how many seconds its ticks are expected to end; null: no expectation';
COMMENT ON COLUMN workflow.max_running IS 'how many of its ticks run at once; null: no limit';

CREATE TABLE schedule (
  tenant_id            int              NOT NULL REFERENCES tenant,
  id                   bigint           GENERATED ALWAYS AS IDENTITY,
  workflow             text COLLATE "C" NOT NULL,
  key                  text COLLATE "C" NOT NULL,
  subject              text COLLATE "C",
  version              int              NOT NULL DEFAULT 1,
  shard                smallint         NOT NULL,
  status               text             NOT NULL,
  spec                 text             NOT NULL,
  overlap              text,
  missed               text,
  max_lateness_s       int,
  on_expired           text,
  pause_after_failures int,
  queue                text,
  priority             smallint,
  timeout_s            int,
  max_attempts         smallint,
  keep_succeeded_s     int,
  keep_failed_s        int,
  payload              text,
  labels               jsonb            NOT NULL DEFAULT '{}',
  note                 text,
  status_note          text,
  paused_at            timestamptz,
  paused_until         timestamptz,
  anchor_at            timestamptz      NOT NULL,
  ticks_left           int,
  cohort_id            bigint,
  phase                bigint           NOT NULL DEFAULT 0,
  tzdata               text             NOT NULL,
  created_at           timestamptz      NOT NULL,
  updated_at           timestamptz      NOT NULL,
  updated_by           text             NOT NULL,
  next_before          timestamptz,
  next_after           timestamptz,
  moves                jsonb,
  moved_until          timestamptz,
  paused_by            text,
  by_subject               boolean          GENERATED ALWAYS AS (starts_with(spec, '{"timezone":"@subject"')) STORED NOT NULL,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT schedule_workflow_key UNIQUE (tenant_id, workflow, key),
  CONSTRAINT schedule_active_in_cohort CHECK (status = 'active' OR cohort_id IS NULL OR paused_until IS NOT NULL),
  CONSTRAINT schedule_paused_by CHECK (paused_by IS NULL OR paused_by = 'sync' AND status = 'paused' AND paused_until IS NULL),
  CONSTRAINT schedule_paused_since CHECK ((status = 'paused') = (paused_at IS NOT NULL) AND (paused_until IS NULL OR paused_at IS NOT NULL)),
  CONSTRAINT schedule_shard CHECK (shard BETWEEN 0 AND 63),
  CONSTRAINT schedule_status CHECK (status IN ('active', 'paused', 'completed', 'quarantined'))
);
-- Not COALESCE: with row-level security PostgreSQL uses no index for a condition that contains it.
CREATE INDEX schedule_following ON schedule (tenant_id, (CASE WHEN subject IS NULL THEN key ELSE subject END), id) WHERE by_subject;
CREATE INDEX schedule_by_subject ON schedule (tenant_id, subject, id) WHERE subject IS NOT NULL;
CREATE INDEX schedule_by_status ON schedule (tenant_id, status, workflow, key) WHERE status <> 'active';
CREATE INDEX schedule_outside_calendars ON schedule (tenant_id) WHERE cohort_id IS NULL AND spec LIKE '%"named":%';
CREATE INDEX schedule_keeps ON schedule (tenant_id, id) WHERE keep_succeeded_s IS NOT NULL OR keep_failed_s IS NOT NULL;
CREATE INDEX schedule_moved ON schedule (moved_until, tenant_id, id) WHERE moved_until IS NOT NULL;
CREATE INDEX schedule_quarantined ON schedule (tenant_id, id) WHERE status = 'quarantined';
CREATE INDEX schedule_rest ON schedule (tenant_id, paused_until) INCLUDE (workflow, cohort_id) WHERE status = 'paused' AND paused_until IS NOT NULL;
COMMENT ON TABLE schedule IS 'A schedule as its client wrote it. A null policy or delivery column is inherited from the workflow. Written by dispatch/sweep, dispatch/upkeep, schedules, schedules/subjects.';
COMMENT ON COLUMN schedule.paused_by IS 'sync: a sync paused it, and the next one that lists it resumes it; null: it is not paused, or was paused in another way';
COMMENT ON COLUMN schedule.anchor_at IS 'creation, rounded up to a second: the anchor of fixed_rate';
COMMENT ON COLUMN schedule.ticks_left IS 'how many ticks of max_ticks were left when it last joined a cohort; null: no limit';
COMMENT ON COLUMN schedule.phase IS 'hash of its identity, which spreads jitter and orders the members of a cohort';
COMMENT ON COLUMN schedule.next_before IS 'the next tick before this version; null: none';
COMMENT ON COLUMN schedule.next_after IS 'the next tick with this version; null: none';
COMMENT ON COLUMN schedule.moves IS 'ticks that a client moved: an array of {at, to, moved_at, by}, oldest first';
COMMENT ON COLUMN schedule.moved_until IS 'until then its timing includes its moves';
COMMENT ON COLUMN schedule.subject IS 'the person or thing that it is for; null: its key';
COMMENT ON COLUMN schedule.by_subject IS 'whether its zone is that of its subject. A column and not an index expression: an update that leaves it alone stays HOT';

CREATE TABLE schedule_state (
  schedule_id    bigint        NOT NULL,
  tenant_id      int           NOT NULL,
  live           int           NOT NULL DEFAULT 0,
  occurrence     int           NOT NULL DEFAULT 0,
  fired          int           NOT NULL DEFAULT 0,
  succeeded      int           NOT NULL DEFAULT 0,
  failures       int           NOT NULL DEFAULT 0,
  last_at        timestamptz,
  prev_at        timestamptz,
  seen_at        timestamptz,
  live_at        timestamptz,
  last_tick_at   timestamptz,
  delay_at       timestamptz,
  rezoned_at     timestamptz,
  live_seq       int,
  last_seq       int,
  delay_left     int,
  buffered       int           NOT NULL DEFAULT 0,
  aside          int           NOT NULL DEFAULT 0,
  aside_buffered int           NOT NULL DEFAULT 0,
  manual         int           NOT NULL DEFAULT 0,
  failed         int           NOT NULL DEFAULT 0,
  skipped        int           NOT NULL DEFAULT 0,
  missed         int           NOT NULL DEFAULT 0,
  decision       smallint      NOT NULL DEFAULT 0,
  skips          timestamptz[],
  PRIMARY KEY (tenant_id, schedule_id)
) WITH (fillfactor = 45);
COMMENT ON TABLE schedule_state IS 'What a firing changes of a schedule: one narrow row, updated in place, with no index but its key. Its lock orders all changes of the schedule''s ticks. Written by dispatch/state, dispatch/upkeep, schedules, schedules/subjects.';
COMMENT ON COLUMN schedule_state.live IS 'own ticks that run or wait for a retry';
COMMENT ON COLUMN schedule_state.buffered IS 'own ticks that wait for another to end';
COMMENT ON COLUMN schedule_state.aside IS 'ticks of a backfill or delivered again that run; they are not in live';
COMMENT ON COLUMN schedule_state.aside_buffered IS 'ticks that will run aside and wait';
COMMENT ON COLUMN schedule_state.last_at IS 'nominal time of the last timed tick that was handed out';
COMMENT ON COLUMN schedule_state.prev_at IS 'nominal time of the timed tick before last_at';
COMMENT ON COLUMN schedule_state.seen_at IS 'nominal time of the last timed tick that was recorded; null: last_at';
COMMENT ON COLUMN schedule_state.live_at IS 'with live_seq: the tick that was handed out last, of any cause; null: last_at';
COMMENT ON COLUMN schedule_state.last_tick_at IS 'with last_seq: the tick that was recorded last, of any cause; null: the last timed one';
COMMENT ON COLUMN schedule_state.delay_at IS 'fixed_delay: nominal time of the tick that is out (swept and not ended)';
COMMENT ON COLUMN schedule_state.delay_left IS 'fixed_delay: how many ticks are left; null: no limit';
COMMENT ON COLUMN schedule_state.rezoned_at IS 'when a daily schedule changed its zone: a next tick that comes too soon is left out';
COMMENT ON COLUMN schedule_state.decision IS 'what the last statement that decided or ended ticks returns: 0 handed out, 1 buffered, 2 skipped; 3 a tick succeeded after failures, 4 ticks ended otherwise';
COMMENT ON COLUMN schedule_state.skips IS 'nominal times that a client asked to leave out';
COMMENT ON COLUMN schedule_state.failures IS 'ticks that failed in a row';

CREATE TABLE failing (
  tenant_id   int              NOT NULL,
  schedule_id bigint           NOT NULL,
  workflow    text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, schedule_id)
);
CREATE UNIQUE INDEX failing_workflow_key ON failing (tenant_id, workflow, key);
COMMENT ON TABLE failing IS 'The schedules whose last ended tick failed, in the order of lists. A trigger deletes the row with the state of the schedule. Written by dispatch/state.';

-- The table changes only when the first tick fails and when one succeeds again. An index on schedule_state by failures would be changed
-- by each failure, and could not have the order of workflow and key. With a trigger AFTER UPDATE, PostgreSQL would read the old row of
-- each change of schedule_state once more.
-- +goose StatementBegin
CREATE FUNCTION forget_failing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM failing WHERE tenant_id = OLD.tenant_id AND schedule_id = OLD.schedule_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER schedule_state_failing_deleted AFTER DELETE ON schedule_state FOR EACH ROW
  WHEN (OLD.failures > 0) EXECUTE FUNCTION forget_failing();

CREATE TABLE revision (
  tenant_id            int              NOT NULL,
  schedule_id          bigint           NOT NULL,
  version              int              NOT NULL,
  workflow             text COLLATE "C" NOT NULL,
  key                  text COLLATE "C" NOT NULL,
  subject              text COLLATE "C",
  spec                 text             NOT NULL,
  payload              text,
  queue                text,
  priority             smallint,
  timeout_s            int,
  max_attempts         smallint,
  max_lateness_s       int,
  on_expired           text,
  anchor_at            timestamptz      NOT NULL,
  deleted              boolean          NOT NULL DEFAULT false,
  ended_at             timestamptz      NOT NULL,
  ended_by             text             NOT NULL,
  status               text             NOT NULL,
  overlap              text,
  missed               text,
  pause_after_failures int,
  keep_succeeded_s     int,
  keep_failed_s        int,
  labels               jsonb            NOT NULL DEFAULT '{}',
  note                 text,
  status_note          text,
  changed_at           timestamptz      NOT NULL,
  changed_by           text             NOT NULL,
  next_before          timestamptz,
  next_after           timestamptz,
  paused_until         timestamptz,
  payload_kept         boolean          NOT NULL DEFAULT true,
  PRIMARY KEY (tenant_id, schedule_id, version)
);
CREATE INDEX revision_by_key ON revision (tenant_id, workflow, key) WHERE deleted;
CREATE INDEX revision_by_subject ON revision (tenant_id, subject, schedule_id) WHERE subject IS NOT NULL;
CREATE INDEX revision_ended ON revision (tenant_id, ended_at);
CREATE INDEX revision_payload ON revision (tenant_id, ended_at) WHERE payload IS NOT NULL;
COMMENT ON TABLE revision IS 'An earlier version of a schedule, whole, with what its change did to the next tick. Written by dispatch/upkeep, schedules, schedules/subjects.';
COMMENT ON COLUMN revision.subject IS 'the person or thing that it was for; null: its key';
COMMENT ON COLUMN revision.changed_at IS 'when it became the present version';
COMMENT ON COLUMN revision.ended_at IS 'when it stopped being the present version';
COMMENT ON COLUMN revision.payload_kept IS 'false: retention dropped its payload';

CREATE TABLE label (
  tenant_id int              NOT NULL,
  name      text COLLATE "C" NOT NULL,
  value     text COLLATE "C" NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  key       text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, name, value, workflow, key)
);
COMMENT ON TABLE label IS 'One label of one schedule, for lists by label. Triggers of schedule keep it.';

-- The statement that inserts or deletes many schedules keeps all their labels at once: a trigger for each row took a sixth of the cost of a bulk
-- upsert. An update keeps labels row by row, and only if it changes them.
-- +goose StatementBegin
CREATE FUNCTION insert_labels() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO label (tenant_id, name, value, workflow, key)
  SELECT s.tenant_id, n.key, n.value, s.workflow, s.key
  FROM made s, jsonb_each_text(s.labels) n;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- Its plan is kept. A plan made while labels were few would read all of them, so it joins by the index alone.
-- +goose StatementBegin
CREATE FUNCTION delete_labels() RETURNS trigger LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  DELETE FROM label l
  USING gone s, jsonb_each_text(s.labels) o
  WHERE l.tenant_id = s.tenant_id AND l.name = o.key AND l.value = o.value AND l.workflow = s.workflow AND l.key = s.key;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION update_labels() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM label l
  USING jsonb_each_text(OLD.labels) o
  WHERE l.tenant_id = OLD.tenant_id AND l.name = o.key AND l.value = o.value AND l.workflow = OLD.workflow AND l.key = OLD.key;
  INSERT INTO label (tenant_id, name, value, workflow, key)
  SELECT NEW.tenant_id, n.key, n.value, NEW.workflow, NEW.key
  FROM jsonb_each_text(NEW.labels) n;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER schedule_inserted_labels AFTER INSERT ON schedule REFERENCING NEW TABLE AS made
  FOR EACH STATEMENT EXECUTE FUNCTION insert_labels();
CREATE TRIGGER schedule_deleted_labels AFTER DELETE ON schedule REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION delete_labels();
CREATE TRIGGER schedule_updated_labels AFTER UPDATE ON schedule FOR EACH ROW
  WHEN (OLD.labels <> NEW.labels OR OLD.labels <> '{}' AND (OLD.workflow <> NEW.workflow OR OLD.key <> NEW.key))
  EXECUTE FUNCTION update_labels();

CREATE TABLE erasure (
  tenant_id    int              NOT NULL REFERENCES tenant,
  id           bigint           GENERATED ALWAYS AS IDENTITY,
  subject_hash bytea            NOT NULL,
  erased_by    text             NOT NULL,
  began_at     timestamptz      NOT NULL,
  erased_at    timestamptz,
  schedule_ids bigint[]         NOT NULL,
  subject      text COLLATE "C",
  profiles     int              NOT NULL DEFAULT 0,
  schedules    int              NOT NULL DEFAULT 0,
  revisions    int              NOT NULL DEFAULT 0,
  ticks        bigint           NOT NULL DEFAULT 0,
  attempts     bigint           NOT NULL DEFAULT 0,
  answers      bigint           NOT NULL DEFAULT 0,
  answer_route text,
  answer_key   text COLLATE "C",
  earlier      text[],
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX erasure_by_hash ON erasure (tenant_id, subject_hash);
CREATE INDEX erasure_pending ON erasure (began_at) WHERE erased_at IS NULL;
COMMENT ON TABLE erasure IS 'The erasure of a subject: that it was done, by whom, and how much there was. Written by schedules/subjects.';
COMMENT ON COLUMN erasure.subject_hash IS 'keyed hash of the subject';
COMMENT ON COLUMN erasure.subject IS 'the subject, until everything of it is erased';
COMMENT ON COLUMN erasure.answer_route IS 'with answer_key: the last kept answer that was searched for the subject';
COMMENT ON COLUMN erasure.earlier IS 'earlier names of the subject, escaped as in a path, until everything of it is erased';

CREATE UNLOGGED TABLE sync (
  tenant_id int         NOT NULL,
  id        bigint      GENERATED ALWAYS AS IDENTITY,
  seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  over      boolean     NOT NULL DEFAULT false,
  token     uuid        NOT NULL DEFAULT gen_random_uuid(),
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX sync_over ON sync (tenant_id, id) WHERE over;
CREATE INDEX sync_silent ON sync (seen_at) WHERE NOT over;
COMMENT ON TABLE sync IS 'A sync under way. Unlogged: after a crash the client sends it again. Written by schedules/bulk.';
COMMENT ON COLUMN sync.over IS 'its lines are not used any more, and upkeep deletes them';
COMMENT ON COLUMN sync.token IS 'proves that a request belongs to this sync: after a crash numbers are used again';

CREATE UNLOGGED TABLE sync_line (
  tenant_id int              NOT NULL,
  sync_id   bigint           NOT NULL,
  line      int              NOT NULL,
  workflow  text COLLATE "C",
  key       text COLLATE "C",
  body      text,
  outcome   text,
  PRIMARY KEY (tenant_id, sync_id, line),
  CONSTRAINT sync_line_either CHECK ((body IS NULL) <> (outcome IS NULL) AND (body IS NULL) = (key IS NULL) AND (body IS NULL) = (workflow IS NULL))
);
CREATE INDEX sync_line_key ON sync_line (tenant_id, sync_id, workflow, key, line) WHERE key IS NOT NULL;
COMMENT ON TABLE sync_line IS 'A line of a sync that waits to be stored. Written by schedules/bulk.';
COMMENT ON COLUMN sync_line.outcome IS 'the outcome of a line that is not stored';

-- +goose Down
SELECT 'forward only';
