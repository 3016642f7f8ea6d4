-- +goose Up
-- What schedules refer to: named calendars, the profiles of subjects, and versions of the tz database.

CREATE TABLE calendar (
  tenant_id  int              NOT NULL REFERENCES tenant,
  name       text COLLATE "C" NOT NULL,
  since      bigint           NOT NULL,
  until      bigint,
  dates      date[]           NOT NULL,
  created_at timestamptz      NOT NULL,
  updated_at timestamptz      NOT NULL,
  updated_by text             NOT NULL,
  ended_at   timestamptz,
  PRIMARY KEY (tenant_id, name, since),
  CONSTRAINT calendar_ended CHECK (((until IS NULL) = (ended_at IS NULL)))
);
CREATE INDEX calendar_past ON calendar (ended_at) WHERE until IS NOT NULL;
CREATE UNIQUE INDEX calendar_present ON calendar (tenant_id, name) WHERE until IS NULL;
COMMENT ON TABLE calendar IS 'An edition of a named calendar. It counts from one revision of the tenant''s calendars until another. Written by schedules/calendars.';
COMMENT ON COLUMN calendar.since IS 'the first revision of the tenant''s calendars that this edition counts for';
COMMENT ON COLUMN calendar.until IS 'the first revision that it no longer counts for; null: it is the present edition';
COMMENT ON COLUMN calendar.ended_at IS 'when until was set';

CREATE TABLE calendar_revision (
  tenant_id int    REFERENCES tenant PRIMARY KEY,
  revision  bigint NOT NULL,
  marked    bigint NOT NULL
);
CREATE INDEX calendar_revision_unmarked ON calendar_revision (tenant_id) WHERE marked < revision;
COMMENT ON TABLE calendar_revision IS 'The revision of a tenant''s calendars. An edit locks it; a transaction that makes a cohort with a calendar shares the lock. Written by schedules/calendars.';
COMMENT ON COLUMN calendar_revision.marked IS 'all cohorts concerned know of the editions up to this revision';

CREATE TABLE tzdata (
  version  text COLLATE "C" PRIMARY KEY,
  archive  bytea            NOT NULL,
  added_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
  begun    smallint         NOT NULL DEFAULT 0,
  walked   jsonb
);
COMMENT ON TABLE tzdata IS 'A version of the tz database that a process has served with. The greatest is in force. Written by schedules/calendars.';
COMMENT ON COLUMN tzdata.begun IS 'how often a search for cohorts with an earlier version has begun';
COMMENT ON COLUMN tzdata.walked IS 'the last cohort timing that was compared; null: none';

CREATE TABLE subject_profile (
  tenant_id  int              NOT NULL REFERENCES tenant,
  subject    text COLLATE "C" NOT NULL,
  timezone   text             NOT NULL,
  quiet_hours text,
  labels     jsonb            NOT NULL DEFAULT '{}',
  version    int              NOT NULL DEFAULT 1,
  created_at timestamptz      NOT NULL,
  updated_at timestamptz      NOT NULL,
  updated_by text             NOT NULL,
  PRIMARY KEY (tenant_id, subject)
);
COMMENT ON TABLE subject_profile IS 'The zone and quiet hours of a subject. Schedules with the zone @subject follow it in all workflows. Written by schedules/subjects.';
COMMENT ON COLUMN subject_profile.labels IS 'values by name, for people: nothing is picked by them';
COMMENT ON COLUMN subject_profile.quiet_hours IS 'windows of the week, as canonical JSON: seconds of the day from and to, whether ticks inside are skipped (else the last one waits for the end), and a bit for each weekday on which it begins (absent: every day); null: none';

-- +goose Down
SELECT 'forward only';
