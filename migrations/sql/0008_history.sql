-- +goose Up
-- What tenants used and what they are told.

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
  bytes     bigint           NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX daily_use_delta_xact ON daily_use_delta (xact);
COMMENT ON TABLE daily_use_delta IS 'What a transaction adds to daily_use. It is appended without a lock, and folded every few seconds. Written by dispatch/record.';

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
COMMENT ON TABLE notice_delta IS 'One thing that happened and that an endpoint of the tenant wants to know. The transaction in which it happens appends it; the notices fold it in. Written by dispatch/finish, dispatch/push, dispatch/upkeep, tenants.';
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
COMMENT ON TABLE notice IS 'A cause that a tenant is to be told of, with how often it has happened. It names no key. Written by dispatch/events.';
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

-- +goose Down
SELECT 'forward only';
