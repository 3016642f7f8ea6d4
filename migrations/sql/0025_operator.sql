-- +goose Up
-- Schedules that do not fire, by workflow and state: those that do are counted by their cohorts. A change appends what it
-- adds or takes away, as for tallies; a schedule that is and stays active costs nothing.
CREATE TABLE idle_delta (
  tenant_id int  NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  state     text NOT NULL,
  n         int  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE TABLE idle (
  tenant_id int    NOT NULL,
  workflow  text   COLLATE "C" NOT NULL,
  state     text   NOT NULL,
  n         bigint NOT NULL,
  PRIMARY KEY (tenant_id, workflow, state)
) WITH (fillfactor = 80);
COMMENT ON TABLE idle IS 'how many schedules are not active';
COMMENT ON COLUMN idle.state IS 'their status; resting: paused until a moment, and a member of its cohort meanwhile';

-- +goose StatementBegin
CREATE FUNCTION schedule_idle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' AND OLD.status <> 'active' THEN
    INSERT INTO idle_delta (tenant_id, workflow, state, n)
    VALUES (OLD.tenant_id, OLD.workflow, CASE WHEN OLD.status = 'paused' AND OLD.paused_until IS NOT NULL AND OLD.cohort_id IS NOT NULL THEN 'resting' ELSE OLD.status END, -1);
  END IF;
  IF TG_OP <> 'DELETE' AND NEW.status <> 'active' THEN
    INSERT INTO idle_delta (tenant_id, workflow, state, n)
    VALUES (NEW.tenant_id, NEW.workflow, CASE WHEN NEW.status = 'paused' AND NEW.paused_until IS NOT NULL AND NEW.cohort_id IS NOT NULL THEN 'resting' ELSE NEW.status END, 1);
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.status = 'quarantined' THEN
    INSERT INTO happening (tenant_id, event, cause, schedule_id)
    SELECT NEW.tenant_id, 'schedule.quarantined', NEW.workflow, NEW.id
    WHERE EXISTS (SELECT FROM endpoint WHERE tenant_id = NEW.tenant_id AND 'schedule.quarantined' = ANY (events) AND state <> 'disabled');
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER schedule_idle_made AFTER INSERT ON schedule
  FOR EACH ROW WHEN (NEW.status <> 'active') EXECUTE FUNCTION schedule_idle();
CREATE TRIGGER schedule_idle_changed AFTER UPDATE ON schedule
  FOR EACH ROW WHEN (OLD.status <> NEW.status
    OR (OLD.paused_until IS NULL OR OLD.cohort_id IS NULL) <> (NEW.paused_until IS NULL OR NEW.cohort_id IS NULL)) EXECUTE FUNCTION schedule_idle();
CREATE TRIGGER schedule_idle_gone AFTER DELETE ON schedule
  FOR EACH ROW WHEN (OLD.status <> 'active') EXECUTE FUNCTION schedule_idle();
INSERT INTO idle (tenant_id, workflow, state, n)
SELECT tenant_id, workflow, CASE WHEN status = 'paused' AND paused_until IS NOT NULL AND cohort_id IS NOT NULL THEN 'resting' ELSE status END, count(*)
FROM schedule
WHERE status <> 'active'
GROUP BY 1, 2, 3;

-- What tenants are to be told of. What happens is appended by the transaction in which it happens, where an endpoint of
-- the tenant's wants to know; notices add up what comes of one cause, and say when it may be told next; an event is one of
-- them on its way to one endpoint. None of these names a key.
CREATE TABLE happening (
  tenant_id   int  NOT NULL,
  event       text NOT NULL,
  cause       text COLLATE "C" NOT NULL,
  n           int  NOT NULL DEFAULT 1,
  at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  schedule_id bigint,
  nominal_at  timestamptz,
  seq         int,
  data        json
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON COLUMN happening.schedule_id IS 'with nominal_at and seq: of which schedule or tick it tells';
CREATE TABLE notice (
  tenant_id   int  NOT NULL,
  event       text NOT NULL,
  cause       text COLLATE "C" NOT NULL,
  n           bigint NOT NULL,
  first_at    timestamptz NOT NULL,
  last_at     timestamptz NOT NULL,
  next_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  schedule_id bigint,
  nominal_at  timestamptz,
  seq         int,
  data        json,
  PRIMARY KEY (tenant_id, event, cause)
) WITH (fillfactor = 80);
CREATE INDEX notice_next ON notice (next_at);
COMMENT ON COLUMN notice.n IS 'how often it has happened since it was told';
COMMENT ON COLUMN notice.next_at IS 'before that it is not told again';
CREATE TABLE event (
  tenant_id   int  NOT NULL,
  endpoint    text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  event       text NOT NULL,
  cause       text COLLATE "C" NOT NULL,
  n           bigint NOT NULL,
  first_at    timestamptz NOT NULL,
  last_at     timestamptz NOT NULL,
  schedule_id bigint,
  nominal_at  timestamptz,
  seq         int,
  data        json,
  made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempt     smallint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, endpoint, id)
) WITH (fillfactor = 70);
CREATE INDEX event_due ON event (due_at);
CREATE INDEX event_of_tenant ON event (tenant_id, due_at);
COMMENT ON COLUMN event.due_at IS 'when it is sent, or sent again should its sender be gone';
CREATE INDEX endpoint_told_quotas ON endpoint (tenant_id) WHERE 'quota.soft' = ANY (events);

-- +goose Down
SELECT 'forward only';
