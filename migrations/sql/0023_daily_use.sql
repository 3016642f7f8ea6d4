-- +goose Up
-- What a tenant's workflows use a day, in ticks. It outlives them. A change appends what it adds, and waits for nobody; the
-- deltas are folded into the days every few seconds.
CREATE TABLE daily_use (
  tenant_id int    NOT NULL,
  workflow  text   COLLATE "C" NOT NULL,
  day       date   NOT NULL,
  ticks     bigint NOT NULL DEFAULT 0,
  succeeded bigint NOT NULL DEFAULT 0,
  failed    bigint NOT NULL DEFAULT 0,
  cancelled bigint NOT NULL DEFAULT 0,
  skipped   bigint NOT NULL DEFAULT 0,
  missed    bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, workflow, day)
) WITH (fillfactor = 70);
CREATE INDEX daily_use_by_day ON daily_use (tenant_id, day DESC, workflow);
COMMENT ON COLUMN daily_use.workflow IS 'empty: all of the tenant''s together';
COMMENT ON COLUMN daily_use.day IS 'of UTC: ticks by when they were recorded, the others by when it happened';

CREATE TABLE daily_use_delta (
  tenant_id int    NOT NULL,
  workflow  text   COLLATE "C" NOT NULL,
  day       date   NOT NULL,
  ticks     bigint NOT NULL DEFAULT 0,
  succeeded bigint NOT NULL DEFAULT 0,
  failed    bigint NOT NULL DEFAULT 0,
  cancelled bigint NOT NULL DEFAULT 0,
  skipped   bigint NOT NULL DEFAULT 0,
  missed    bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- What is recorded already: how many ticks, not what became of them.
INSERT INTO daily_use (tenant_id, workflow, day, ticks)
SELECT tenant_id, COALESCE(workflow, ''), (nominal_at AT TIME ZONE 'UTC')::date, sum(ticks)
FROM roll
GROUP BY GROUPING SETS ((tenant_id, workflow, 3), (tenant_id, 3));

-- Watchdogs look for what is put aside without reading all that is paused.
CREATE INDEX schedule_quarantined ON schedule (tenant_id, id) WHERE status = 'quarantined';

-- +goose Down
SELECT 'forward only';
