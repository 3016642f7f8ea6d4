-- +goose Up
-- Schedules that fire at the same times, when they fire next, and how many there are.

CREATE TABLE cohort_timing (
  tenant_id int              NOT NULL,
  shard     smallint         NOT NULL,
  hash      bytea            NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  missed    text             NOT NULL,
  id        bigint           GENERATED ALWAYS AS IDENTITY,
  timing    text             NOT NULL,
  ordered   boolean          NOT NULL DEFAULT true,
  PRIMARY KEY (tenant_id, shard, hash, workflow, missed)
);
CREATE INDEX cohort_timing_few ON cohort_timing (tenant_id, shard, id) WHERE NOT ordered;
COMMENT ON TABLE cohort_timing IS 'The timing of a cohort, which never changes, and its number. It is apart from cohort, so that a firing writes a narrow row. Written by dispatch/upkeep, schedules/cohorts.';
COMMENT ON COLUMN cohort_timing.id IS 'the id of the cohort';
COMMENT ON COLUMN cohort_timing.hash IS 'hash of the timing';
COMMENT ON COLUMN cohort_timing.timing IS 'the compiled spec, canonical';
COMMENT ON COLUMN cohort_timing.ordered IS 'as in cohort';

CREATE TABLE cohort (
  shard        smallint         NOT NULL,
  id           bigint           NOT NULL,
  tenant_id    int              NOT NULL,
  workflow     text COLLATE "C" NOT NULL,
  hash         bytea            NOT NULL,
  missed       text             NOT NULL,
  next_at      timestamptz,
  due_at       timestamptz,
  run_at       timestamptz,
  run_from     timestamptz,
  run_missed   int,
  run_drop     boolean,
  at_phase     bigint,
  at_id        bigint,
  empty_at     timestamptz,
  calendars    text[],
  revision     bigint           NOT NULL DEFAULT 0,
  tzdata       text COLLATE "C" NOT NULL DEFAULT '',
  retime_at    timestamptz,
  delay        boolean          NOT NULL DEFAULT false,
  throttled_at timestamptz,
  ordered      boolean          NOT NULL DEFAULT true,
  over         boolean          NOT NULL DEFAULT false,
  held         boolean          NOT NULL DEFAULT false,
  paced        boolean          NOT NULL DEFAULT false,
  PRIMARY KEY (shard, id, tenant_id),
  CONSTRAINT cohort_in_run CHECK ((run_at IS NULL) = (at_id IS NULL) AND (run_at IS NULL) = (at_phase IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX cohort_calendars ON cohort (tenant_id, shard, id) WHERE calendars IS NOT NULL;
CREATE INDEX cohort_delay ON cohort (shard, id) WHERE delay AND due_at IS NULL AND empty_at IS NULL;
CREATE INDEX cohort_due ON cohort (shard, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX cohort_empty ON cohort (shard, empty_at) WHERE empty_at IS NOT NULL;
CREATE INDEX cohort_exhausted ON cohort (shard, id) WHERE due_at IS NULL AND empty_at IS NULL AND (NOT delay OR over);
CREATE INDEX cohort_held ON cohort (tenant_id, workflow, shard, id) WHERE held;
CREATE INDEX cohort_next ON cohort (tenant_id, next_at, id) WHERE ordered AND next_at IS NOT NULL;
CREATE INDEX cohort_throttled ON cohort (shard, tenant_id, throttled_at, id) WHERE throttled_at IS NOT NULL AND NOT paced;
CREATE INDEX cohort_paced ON cohort (tenant_id, workflow, run_at, shard, id) WHERE paced;
COMMENT ON TABLE cohort IS 'The schedules of one tenant, workflow, shard and missed policy that have one timing. It says when they fire next. A sweep locks its rows; a change of its members locks them too. Written by dispatch/control, dispatch/finish, dispatch/record, dispatch/sweep, dispatch/upkeep, schedules, schedules/calendars, schedules/cohorts.';
COMMENT ON COLUMN cohort.next_at IS 'the nominal time that is served next, or that the run under way serves';
COMMENT ON COLUMN cohort.due_at IS 'when the sweep looks at it again; null: it is empty or exhausted; infinity: it is throttled, waits for the rate of its workflow, or its workflow is held';
COMMENT ON COLUMN cohort.paced IS 'it waits for the rate of its workflow, since throttled_at';
COMMENT ON COLUMN cohort.held IS 'it was due while its workflow was held; the release makes it due again';
COMMENT ON COLUMN cohort.run_at IS 'nominal time of the run under way; at_phase and at_id are its cursor';
COMMENT ON COLUMN cohort.run_from IS 'the earliest nominal time that the run stands for';
COMMENT ON COLUMN cohort.run_missed IS 'how many nominal times the run stands for beside run_at';
COMMENT ON COLUMN cohort.run_drop IS 'whether the ticks of the run are recorded as missed, not handed out';
COMMENT ON COLUMN cohort.empty_at IS 'since when it has no members';
COMMENT ON COLUMN cohort.calendars IS 'the named calendars that it leaves out; null: none';
COMMENT ON COLUMN cohort.revision IS 'the revision of the calendars that time it; 0: it names none';
COMMENT ON COLUMN cohort.tzdata IS 'the version of the tz database that times it; empty: unknown';
COMMENT ON COLUMN cohort.retime_at IS 'from this moment on other dates or zones count; the sweep retimes it once everything before is served';
COMMENT ON COLUMN cohort.delay IS 'fixed_delay: its one member fires a while after its last tick ended; next_at is null until then';
COMMENT ON COLUMN cohort.throttled_at IS 'since when it waits for its tenant''s turn';
COMMENT ON COLUMN cohort.ordered IS 'whether cohort_next finds it by its next time; cohort_timing_few finds the others, which are few';
COMMENT ON COLUMN cohort.over IS 'fixed_delay: no tick is left, and upkeep completes the schedule';

CREATE TABLE member (
  cohort_id   bigint      NOT NULL,
  phase       bigint      NOT NULL,
  schedule_id bigint      NOT NULL,
  tenant_id   int         NOT NULL,
  from_at     timestamptz NOT NULL,
  until_at    timestamptz,
  retimed_at  timestamptz,
  PRIMARY KEY (cohort_id, phase, schedule_id, tenant_id)
);
CREATE INDEX member_ended ON member (until_at, cohort_id, phase, schedule_id) WHERE until_at IS NOT NULL;
CREATE INDEX member_limited ON member (cohort_id) WHERE until_at IS NOT NULL;
COMMENT ON TABLE member IS 'A schedule in its cohort. Written by dispatch/sweep, dispatch/upkeep, schedules, schedules/subjects.';
COMMENT ON COLUMN member.phase IS 'that of the schedule';
COMMENT ON COLUMN member.from_at IS 'the first nominal time that counts';
COMMENT ON COLUMN member.until_at IS 'the last nominal time that counts; null: no limit';
COMMENT ON COLUMN member.retimed_at IS 'the retime_at for which until_at was computed';

CREATE TABLE tally (
  tenant_id  int              NOT NULL,
  cohort_id  bigint           NOT NULL,
  shard      smallint         NOT NULL DEFAULT 0,
  n          bigint           NOT NULL DEFAULT 0,
  workflow   text COLLATE "C",
  counted_at timestamptz,
  PRIMARY KEY (tenant_id, cohort_id)
) WITH (fillfactor = 80);
CREATE INDEX tally_by_workflow ON tally (tenant_id, workflow) WHERE workflow IS NOT NULL;
COMMENT ON TABLE tally IS 'Counts that quotas and forecasts use. cohort_id > 0: the members of that cohort; 0: all schedules of the tenant; -1: the profiles of subjects; -2: the bytes of its specs and payloads, with those of revisions. Written by dispatch/upkeep, schedules/forecast.';
COMMENT ON COLUMN tally.shard IS 'the shard of the cohort';
COMMENT ON COLUMN tally.workflow IS 'the workflow of the cohort; null: none';
COMMENT ON COLUMN tally.counted_at IS 'cohort -2: when the rows were last added up; null: never';

CREATE TABLE tally_delta (
  tenant_id int    NOT NULL,
  cohort_id bigint NOT NULL,
  n         bigint NOT NULL,
  xact      xid8   NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX tally_delta_xact ON tally_delta (xact);
COMMENT ON TABLE tally_delta IS 'What a change adds to tally. Triggers append it, and wait for no lock. Written by dispatch/upkeep, schedules/forecast, schedules/subjects.';

-- The counts of schedules hang on schedule_state and not on schedule: its rows come and go with the schedule, and are narrow.
-- +goose StatementBegin
CREATE FUNCTION count_schedules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally_delta (tenant_id, cohort_id, n)
  SELECT tenant_id, 0, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END FROM changed GROUP BY tenant_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION count_subject_profiles() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally_delta (tenant_id, cohort_id, n)
  SELECT tenant_id, -1, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END FROM changed GROUP BY tenant_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION count_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally_delta (tenant_id, cohort_id, n)
  SELECT tenant_id, cohort_id, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END FROM changed GROUP BY tenant_id, cohort_id;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION insert_tallies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tally (tenant_id, cohort_id, shard, workflow) SELECT tenant_id, id, shard, workflow FROM made ORDER BY tenant_id, id
  ON CONFLICT (tenant_id, cohort_id) DO NOTHING;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER schedule_state_inserted AFTER INSERT ON schedule_state REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION count_schedules();
CREATE TRIGGER schedule_state_deleted AFTER DELETE ON schedule_state REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION count_schedules();
CREATE TRIGGER subject_profile_inserted AFTER INSERT ON subject_profile REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION count_subject_profiles();
CREATE TRIGGER subject_profile_deleted AFTER DELETE ON subject_profile REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION count_subject_profiles();
CREATE TRIGGER member_inserted AFTER INSERT ON member REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION count_members();
CREATE TRIGGER member_deleted AFTER DELETE ON member REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION count_members();
CREATE TRIGGER cohort_inserted AFTER INSERT ON cohort REFERENCING NEW TABLE AS made
  FOR EACH STATEMENT EXECUTE FUNCTION insert_tallies();

CREATE TABLE inactive (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  state     text             NOT NULL,
  n         bigint           NOT NULL,
  PRIMARY KEY (tenant_id, workflow, state)
) WITH (fillfactor = 80);
COMMENT ON TABLE inactive IS 'How many schedules of a workflow are not active. The deltas of inactive_delta are folded into it. Written by schedules/forecast.';
COMMENT ON COLUMN inactive.state IS 'the status of the schedules; resting: paused until a time, and still a member of a cohort';

CREATE TABLE inactive_delta (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  state     text             NOT NULL,
  n         int              NOT NULL,
  xact      xid8             NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX inactive_delta_xact ON inactive_delta (xact);
COMMENT ON TABLE inactive_delta IS 'What a change adds to inactive. A trigger appends it, and waits for no lock.';

-- A schedule that is active and stays active costs nothing here. A schedule that is quarantined is told to the endpoints that ask for it.
-- +goose StatementBegin
CREATE FUNCTION count_inactive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' AND OLD.status <> 'active' THEN
    INSERT INTO inactive_delta (tenant_id, workflow, state, n)
    VALUES (OLD.tenant_id, OLD.workflow, CASE WHEN OLD.status = 'paused' AND OLD.paused_until IS NOT NULL AND OLD.cohort_id IS NOT NULL THEN 'resting' ELSE OLD.status END, -1);
  END IF;
  IF TG_OP <> 'DELETE' AND NEW.status <> 'active' THEN
    INSERT INTO inactive_delta (tenant_id, workflow, state, n)
    VALUES (NEW.tenant_id, NEW.workflow, CASE WHEN NEW.status = 'paused' AND NEW.paused_until IS NOT NULL AND NEW.cohort_id IS NOT NULL THEN 'resting' ELSE NEW.status END, 1);
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.status = 'quarantined' THEN
    INSERT INTO notice_delta (tenant_id, event, cause, schedule_id)
    SELECT NEW.tenant_id, 'schedule.quarantined', NEW.workflow, NEW.id
    WHERE EXISTS (SELECT FROM endpoint WHERE tenant_id = NEW.tenant_id AND 'schedule.quarantined' = ANY (events) AND state <> 'disabled');
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER schedule_inserted_inactive AFTER INSERT ON schedule FOR EACH ROW
  WHEN (NEW.status <> 'active') EXECUTE FUNCTION count_inactive();
CREATE TRIGGER schedule_deleted_inactive AFTER DELETE ON schedule FOR EACH ROW
  WHEN (OLD.status <> 'active') EXECUTE FUNCTION count_inactive();
CREATE TRIGGER schedule_updated_inactive AFTER UPDATE ON schedule FOR EACH ROW
  WHEN (OLD.status <> NEW.status OR (OLD.paused_until IS NULL OR OLD.cohort_id IS NULL) <> (NEW.paused_until IS NULL OR NEW.cohort_id IS NULL))
  EXECUTE FUNCTION count_inactive();

CREATE TABLE folded (
  source text        PRIMARY KEY,
  before xid8        NOT NULL,
  at     timestamptz NOT NULL,
  CONSTRAINT folded_source CHECK (source IN ('tally_delta', 'inactive_delta', 'daily_use_delta', 'notice_delta'))
);
COMMENT ON TABLE folded IS 'How far a table of appended rows is folded: no row is left of a transaction with a lower number. Readers start there, so dead rows behind an old snapshot cost nothing. Written by internal/postgres.';
COMMENT ON COLUMN folded.at IS 'when it was last moved: at most once a minute, since each move leaves a dead row';

INSERT INTO folded (source, before, at)
SELECT s, '0', '-infinity' FROM unnest(ARRAY['tally_delta', 'inactive_delta', 'daily_use_delta', 'notice_delta']) AS s;

-- +goose Down
SELECT 'forward only';
