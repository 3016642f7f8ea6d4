-- +goose Up
-- Named calendars, each with the editions that cohorts are still timed by: an edition counts from one revision of its
-- tenant's calendars until another.
CREATE TABLE calendar (
  tenant_id  int    NOT NULL REFERENCES tenant,
  name       text   COLLATE "C" NOT NULL,
  since      bigint NOT NULL,
  until      bigint,
  dates      date[] NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  updated_by text   NOT NULL,
  ended_at   timestamptz,
  PRIMARY KEY (tenant_id, name, since),
  CONSTRAINT calendar_ended CHECK ((until IS NULL) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX calendar_present ON calendar (tenant_id, name) WHERE until IS NULL;
CREATE INDEX calendar_past ON calendar (ended_at) WHERE until IS NOT NULL;

-- Locked by an edit, and shared by whoever makes a cohort that names a calendar.
CREATE TABLE calendar_revision (
  tenant_id int    PRIMARY KEY REFERENCES tenant,
  revision  bigint NOT NULL,
  marked    bigint NOT NULL
);
COMMENT ON COLUMN calendar_revision.marked IS 'the revision of which all cohorts that it concerns have been told';

-- Versions of the tz database that a process has served with; the greatest is in force.
CREATE TABLE tzdata (
  version   text COLLATE "C" PRIMARY KEY,
  archive   bytea NOT NULL,
  added_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  begun     smallint NOT NULL DEFAULT 0
);
COMMENT ON COLUMN tzdata.begun IS 'how often cohorts that are timed by an earlier version were looked for';

ALTER TABLE cohort
  ADD COLUMN calendars text[],
  ADD COLUMN revision  bigint NOT NULL DEFAULT 0,
  ADD COLUMN tzdata    text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN retime_at timestamptz;
CREATE INDEX cohort_calendars ON cohort (tenant_id, shard, id) WHERE calendars IS NOT NULL;
COMMENT ON COLUMN cohort.calendars IS 'the named calendars that it leaves out; null: none';
COMMENT ON COLUMN cohort.revision IS 'of the calendars by which it is timed; 0: it names none';
COMMENT ON COLUMN cohort.tzdata IS 'the version of the tz database by which it is timed; empty: not known';
COMMENT ON COLUMN cohort.retime_at IS 'from this moment on other dates or zones count; the sweep sees to it once all before is served';

ALTER TABLE member ADD COLUMN retimed_at timestamptz;
CREATE INDEX member_limited ON member (cohort_id) WHERE until_at IS NOT NULL;
COMMENT ON COLUMN member.retimed_at IS 'the retime_at for which until_at was computed anew';

-- Schedules outside of cohorts that name a calendar: paused ones, and those that are over.
CREATE INDEX schedule_idle_calendars ON schedule (tenant_id) WHERE cohort_id IS NULL AND spec LIKE '%"named":%';

-- +goose Down
SELECT 'forward only';
