-- +goose Up
-- What tenants used, what they are told, and how their endpoints answered.

CREATE TABLE daily_use (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  day       date             NOT NULL,
  ticks     bigint           NOT NULL DEFAULT 0,
  succeeded bigint           NOT NULL DEFAULT 0,
  failed    bigint           NOT NULL DEFAULT 0,
  cancelled bigint           NOT NULL DEFAULT 0,
  skipped   bigint           NOT NULL DEFAULT 0,
  missed    bigint           NOT NULL DEFAULT 0,
  bytes     bigint           NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, workflow, day)
) WITH (fillfactor = 70);
CREATE INDEX daily_use_by_day ON daily_use (tenant_id, day DESC, workflow);
COMMENT ON TABLE daily_use IS 'What a workflow of a tenant used on a day. It outlives the workflow. Written by dispatch/upkeep.';
COMMENT ON COLUMN daily_use.workflow IS 'empty: all of the tenant together';
COMMENT ON COLUMN daily_use.day IS 'day of UTC: ticks by when they were recorded, the others by when they happened';
COMMENT ON COLUMN daily_use.bytes IS 'bytes of results of ticks that ended on the day, and of payloads of ticks that were triggered on it';

CREATE TABLE daily_use_delta (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  day       date             NOT NULL,
  ticks     bigint           NOT NULL DEFAULT 0,
  succeeded bigint           NOT NULL DEFAULT 0,
  failed    bigint           NOT NULL DEFAULT 0,
  cancelled bigint           NOT NULL DEFAULT 0,
  skipped   bigint           NOT NULL DEFAULT 0,
  missed    bigint           NOT NULL DEFAULT 0,
  xact      xid8             NOT NULL DEFAULT pg_current_xact_id(),
  bytes     bigint           NOT NULL DEFAULT 0,
  minute    timestamptz      NOT NULL DEFAULT date_bin('1 minute', clock_timestamp(), '2000-01-01Z'),
  bucket    smallint         NOT NULL DEFAULT -1,
  reason    smallint         NOT NULL DEFAULT 0,
  due       bigint           NOT NULL DEFAULT 0,
  fired     bigint           NOT NULL DEFAULT 0,
  retried   bigint           NOT NULL DEFAULT 0,
  first_due smallint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX daily_use_delta_xact ON daily_use_delta (xact);
COMMENT ON TABLE daily_use_delta IS 'What a transaction adds to daily_use and use_series. It is appended without a lock, and folded every few seconds. Written by dispatch/record.';

COMMENT ON COLUMN daily_use_delta.bucket IS 'as in use_series';

CREATE TABLE use_series (
  tenant_id int              NOT NULL,
  step      smallint         NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  endpoint  text COLLATE "C" NOT NULL,
  at        timestamptz      NOT NULL,
  bucket    smallint         NOT NULL,
  reason    smallint         NOT NULL,
  due       bigint           NOT NULL,
  fired     bigint           NOT NULL,
  succeeded bigint           NOT NULL,
  failed    bigint           NOT NULL,
  cancelled bigint           NOT NULL,
  skipped   bigint           NOT NULL,
  retried   bigint           NOT NULL,
  missed    bigint           NOT NULL,
  first_due smallint,
  PRIMARY KEY (tenant_id, step, workflow, endpoint, at, bucket, reason),
  CONSTRAINT use_series_step CHECK (step IN (1, 60))
) WITH (fillfactor = 70);
CREATE INDEX use_series_old ON use_series (step, at);
COMMENT ON TABLE use_series IS 'What happened to the ticks of a tenant in each minute, for a week, and in each hour, for 90 days. Written by dispatch/upkeep.';
COMMENT ON COLUMN use_series.step IS 'the length of the period that begins at at, in minutes';
COMMENT ON COLUMN use_series.workflow IS 'empty: all workflows of the endpoint, or, if that is empty too, of the tenant';
COMMENT ON COLUMN use_series.endpoint IS 'of the workflow when the counts were added up; empty: it is pulled';
COMMENT ON COLUMN use_series.bucket IS 'of the lateness of fired, and of the time from the nominal time to the end of the ended ones: 0 for at most 5 ms, each next one for twice as much; -1: without a time';
COMMENT ON COLUMN use_series.reason IS 'why ticks were skipped, as in tick; 0: none';
COMMENT ON COLUMN use_series.first_due IS 'the earliest second of the minute at which a due tick that was not skipped was recorded; null: there was none';
COMMENT ON COLUMN use_series.due IS 'ticks whose nominal time lies in the period';

CREATE TABLE unmet_expectation (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  event     text             NOT NULL,
  since     timestamptz      NOT NULL,
  told_at   timestamptz,
  data      json             NOT NULL,
  PRIMARY KEY (tenant_id, workflow, event)
);
COMMENT ON TABLE unmet_expectation IS 'A workflow that is late, silent or without workers now. Written by dispatch/expect.';
COMMENT ON COLUMN unmet_expectation.told_at IS 'when its tenant was last told; null: not yet';

CREATE TABLE notice_delta (
  tenant_id   int              NOT NULL,
  event       text             NOT NULL,
  cause       text COLLATE "C" NOT NULL,
  n           int              NOT NULL DEFAULT 1,
  at          timestamptz      NOT NULL DEFAULT clock_timestamp(),
  schedule_id bigint,
  nominal_at  timestamptz,
  seq         int,
  data        json,
  xact        xid8             NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX notice_delta_xact ON notice_delta (xact);
COMMENT ON TABLE notice_delta IS 'One thing that happened and that an endpoint of the tenant wants to know. The transaction in which it happens appends it; the notices fold it in. Written by dispatch/expect, dispatch/finish, dispatch/push, dispatch/upkeep, tenants.';
COMMENT ON COLUMN notice_delta.schedule_id IS 'with nominal_at and seq: the schedule or tick concerned';

CREATE TABLE notice (
  tenant_id   int              NOT NULL,
  event       text             NOT NULL,
  cause       text COLLATE "C" NOT NULL,
  n           bigint           NOT NULL,
  first_at    timestamptz      NOT NULL,
  last_at     timestamptz      NOT NULL,
  next_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
  schedule_id bigint,
  nominal_at  timestamptz,
  seq         int,
  data        json,
  PRIMARY KEY (tenant_id, event, cause)
) WITH (fillfactor = 80);
CREATE INDEX notice_next ON notice (next_at);
COMMENT ON TABLE notice IS 'A cause of which the tenant must be notified, with the number of times that it has happened. It names no key. Written by dispatch/events.';
COMMENT ON COLUMN notice.n IS 'how often it has happened since it was last told';
COMMENT ON COLUMN notice.next_at IS 'it is not told again before this time';

CREATE TABLE event (
  tenant_id   int              NOT NULL,
  endpoint    text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  event       text             NOT NULL,
  cause       text COLLATE "C" NOT NULL,
  n           bigint           NOT NULL,
  first_at    timestamptz      NOT NULL,
  last_at     timestamptz      NOT NULL,
  schedule_id bigint,
  nominal_at  timestamptz,
  seq         int,
  data        json,
  made_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
  due_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
  attempt     smallint         NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, endpoint, id)
) WITH (fillfactor = 70);
CREATE INDEX event_due ON event (due_at);
CREATE INDEX event_of_tenant ON event (tenant_id, due_at);
COMMENT ON TABLE event IS 'A notice on its way to one endpoint. Written by dispatch/events.';
COMMENT ON COLUMN event.due_at IS 'when it is sent, or sent again if its sender died';

CREATE UNLOGGED TABLE endpoint_health (
  tenant_id  int              NOT NULL,
  endpoint   text COLLATE "C" NOT NULL,
  process_id bigint           NOT NULL,
  at         timestamptz      NOT NULL,
  breaker    text             NOT NULL,
  open_until timestamptz,
  queued     int              NOT NULL,
  in_flight  int              NOT NULL,
  minutes    json             NOT NULL,
  last       json             NOT NULL,
  PRIMARY KEY (tenant_id, endpoint, at, process_id)
);
CREATE INDEX endpoint_health_old ON endpoint_health (at);
COMMENT ON TABLE endpoint_health IS 'How an endpoint has answered a process lately. The process inserts a row at most once a second, and deletes the row that it inserted before. It updates no row, because an update would read all earlier versions while an old snapshot is open. A row outlives its process. Unlogged: after a crash of the server the counts begin at zero. Written by dispatch/push, dispatch/upkeep.';
COMMENT ON COLUMN endpoint_health.minutes IS 'requests of the last quarter of an hour by minute: at (minutes since 1970), s (succeeded), f (failed), t (by how long they took)';
COMMENT ON COLUMN endpoint_health.last IS 'the last requests: at, tick_id, status, took_ms, error';

-- +goose Down
SELECT 'forward only';
