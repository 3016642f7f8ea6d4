-- +goose Up
-- Ticks between their due time and their end.

CREATE TABLE process (
  id         bigint      GENERATED ALWAYS AS IDENTITY,
  name       text        NOT NULL,
  place      text        NOT NULL,
  pid        int         NOT NULL,
  sweeps     boolean     NOT NULL,
  dispatches boolean     NOT NULL,
  serves     boolean     NOT NULL DEFAULT false,
  version    text        NOT NULL DEFAULT '',
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  beat_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (id, beat_at)
) WITH (fillfactor = 50);
CREATE INDEX process_beat ON process (beat_at);
COMMENT ON TABLE process IS 'A process of Carillon. One whose last heartbeat is 5 s old is dead, and others take over its chunks. Written by dispatch/cluster, dispatch/upkeep.';
COMMENT ON COLUMN process.serves IS 'it serves the API';
COMMENT ON COLUMN process.version IS 'of its program';
COMMENT ON COLUMN process.place IS 'the boot of the machine and the namespace in which pid counts; empty: unknown';
COMMENT ON COLUMN process.beat_at IS 'its last heartbeat; part of the key, since a heartbeat would otherwise be compared with all earlier ones';

CREATE TABLE partition_attempt (
  what    text        PRIMARY KEY,
  next_at timestamptz NOT NULL,
  CONSTRAINT partition_attempt_what CHECK (what IN ('create', 'drop'))
);
COMMENT ON TABLE partition_attempt IS 'When a process may next try to create or to drop partitions. Such a change takes short locks that no query passes, so one process tries at a time. Written by dispatch/upkeep.';
COMMENT ON COLUMN partition_attempt.next_at IS 'the process that begins an attempt moves it some minutes ahead; one that succeeds sets it to -infinity';

INSERT INTO partition_attempt (what, next_at) VALUES ('create', '-infinity'), ('drop', '-infinity');

CREATE TABLE fair_turn (
  shard     smallint    NOT NULL,
  tenant_id int         NOT NULL,
  due_at    timestamptz NOT NULL,
  PRIMARY KEY (shard, tenant_id)
) WITH (fillfactor = 50);
CREATE INDEX fair_turn_due ON fair_turn (shard, due_at);
COMMENT ON TABLE fair_turn IS 'A tenant with throttled cohorts in a shard, and when the fair queue serves it next. Written by dispatch/control, dispatch/sweep.';

CREATE TABLE rate_turn (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  due_at    timestamptz      NOT NULL,
  PRIMARY KEY (tenant_id, workflow)
) WITH (fillfactor = 50);
CREATE INDEX rate_turn_due ON rate_turn (due_at);
COMMENT ON TABLE rate_turn IS 'A workflow with cohorts that wait for its rate, and when it may hand out again. Written by dispatch/sweep.';

CREATE TABLE rate_allowance (
  tenant_id int              NOT NULL,
  kind      text             NOT NULL,
  name      text COLLATE "C" NOT NULL,
  tokens    double precision NOT NULL DEFAULT 0,
  at        timestamptz      NOT NULL DEFAULT '2000-01-01Z',
  ramp_from timestamptz,
  PRIMARY KEY (tenant_id, kind, name),
  CONSTRAINT rate_allowance_kind CHECK (kind IN ('workflow', 'endpoint'))
) WITH (fillfactor = 50);
COMMENT ON TABLE rate_allowance IS 'The token bucket of the rate of a workflow or of an endpoint, for all processes. The row is locked while they take from it. Written by dispatch/rate.';
COMMENT ON COLUMN rate_allowance.tokens IS 'how many there were at at; less than 0: a debt';
COMMENT ON COLUMN rate_allowance.ramp_from IS 'when the rate began to rise after a pause; null: it does not rise';

CREATE TABLE chunk (
  id         bigint      GENERATED ALWAYS AS IDENTITY,
  shard      smallint    NOT NULL,
  tenant_id  int         NOT NULL,
  kind       smallint    NOT NULL,
  lane       text        NOT NULL,
  nominal_at timestamptz NOT NULL,
  first_id   bigint      NOT NULL,
  last_id    bigint      NOT NULL,
  ticks      int         NOT NULL,
  workflows  text[]      NOT NULL,
  items      bytea       NOT NULL,
  swept_at   timestamptz NOT NULL,
  opened_at  timestamptz,
  owner      bigint,
  epoch      int         NOT NULL DEFAULT 0,
  done_at    timestamptz,
  hand_at    timestamptz,
  trace      bytea,
  PRIMARY KEY (id, tenant_id),
  CONSTRAINT chunk_done_was_opened CHECK (done_at IS NULL OR opened_at IS NOT NULL),
  CONSTRAINT chunk_kind CHECK (kind IN (0, 1))
) WITH (fillfactor = 80);
CREATE INDEX chunk_done ON chunk (done_at) WHERE done_at IS NOT NULL;
CREATE INDEX chunk_open ON chunk (owner, opened_at) WHERE opened_at IS NOT NULL AND done_at IS NULL;
CREATE INDEX chunk_swept ON chunk (id) WHERE opened_at IS NULL AND swept_at IS NOT NULL;
CREATE INDEX chunk_unopened ON chunk (shard, tenant_id, id, nominal_at) WHERE opened_at IS NULL;
COMMENT ON TABLE chunk IS 'Ticks that were swept together. A River job or the sweeping process opens it: it decides the ticks and records them. Its owner sends them. Written by dispatch/chunk, dispatch/open, dispatch/push, dispatch/sweep, dispatch/upkeep.';
COMMENT ON COLUMN chunk.kind IS '0: schedules whose nominal time has come; 1: further attempts of ticks';
COMMENT ON COLUMN chunk.lane IS 'the queue of River that opens it: small, large or catch-up';
COMMENT ON COLUMN chunk.items IS 'schedule ids (kind 0) or keys of ticks (kind 1), packed as varint deltas';
COMMENT ON COLUMN chunk.owner IS 'the process that sends its ticks';
COMMENT ON COLUMN chunk.epoch IS 'how often it was taken over';
COMMENT ON COLUMN chunk.hand_at IS 'its ticks are not handed out before: a change made more of them due than the tenant''s rate; null: they do not wait';
COMMENT ON COLUMN chunk.trace IS 'the span of its sweep: 16 bytes of trace, 8 of span, 1 of flags; null: none is exported';

CREATE TABLE delayed (
  tenant_id   int              NOT NULL,
  schedule_id bigint           NOT NULL,
  nominal_at  timestamptz      NOT NULL,
  seq         int              NOT NULL,
  attempt     smallint         NOT NULL,
  shard       smallint         NOT NULL,
  why         text             NOT NULL,
  due_at      timestamptz      NOT NULL,
  waits_for   text COLLATE "C",
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq),
  CONSTRAINT delayed_why CHECK (why IN ('retry', 'manual', 'released', 'slot', 'endpoint', 'answer', 'halted', 'held', 'rate', 'later'))
);
CREATE INDEX delayed_due ON delayed (shard, due_at);
CREATE INDEX delayed_parked ON delayed (tenant_id, waits_for, nominal_at, schedule_id, seq) WHERE waits_for IS NOT NULL;
COMMENT ON TABLE delayed IS 'A tick that is due later: it waits for its next attempt, for its endpoint or its tenant, for the deadline of its worker, or for the time of its trigger. Written by dispatch/control, dispatch/finish, dispatch/record, dispatch/sweep, dispatch/upkeep.';
COMMENT ON COLUMN delayed.due_at IS 'when it is handed out; for a parked tick, when it expires';
COMMENT ON COLUMN delayed.waits_for IS 'parked: the endpoint that must change first; workflow/ and a name: the workflow is held; empty: its tenant is halted or suspended; null: it waits for due_at alone';

CREATE TABLE wake (
  tenant_id   int              NOT NULL,
  waits_for   text COLLATE "C" NOT NULL,
  nominal_at  timestamptz      NOT NULL DEFAULT '-infinity',
  schedule_id bigint           NOT NULL DEFAULT 0,
  seq         int              NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, waits_for)
);
COMMENT ON TABLE wake IS 'An endpoint or a tenant whose parked ticks need not wait any longer, with the tick that was woken last. The change that ends the wait writes it. Written by dispatch/control, dispatch/upkeep.';
COMMENT ON COLUMN wake.waits_for IS 'as in delayed';
COMMENT ON COLUMN wake.nominal_at IS 'with schedule_id and seq: the last tick that was woken';

-- A transaction that parks ticks of a tenant shares the advisory lock (0x4341524b, tenant) until it ends, and reads what they wait for once it
-- has the lock. A change that ends a wait takes the lock alone: it either finds the parked ticks, or the parking transaction sees the change.
-- +goose StatementBegin
CREATE FUNCTION wake_endpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(x'4341524b'::int, OLD.tenant_id);
  INSERT INTO wake (tenant_id, waits_for)
  SELECT OLD.tenant_id, OLD.name
  WHERE EXISTS (SELECT FROM delayed WHERE tenant_id = OLD.tenant_id AND waits_for = OLD.name)
  ON CONFLICT (tenant_id, waits_for) DO UPDATE SET nominal_at = excluded.nominal_at, schedule_id = excluded.schedule_id, seq = excluded.seq;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION wake_workflow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(x'4341524b'::int, OLD.tenant_id);
  INSERT INTO wake (tenant_id, waits_for)
  SELECT OLD.tenant_id, OLD.endpoint
  WHERE EXISTS (SELECT FROM delayed WHERE tenant_id = OLD.tenant_id AND waits_for = OLD.endpoint)
  ON CONFLICT (tenant_id, waits_for) DO UPDATE SET nominal_at = excluded.nominal_at, schedule_id = excluded.schedule_id, seq = excluded.seq;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION wake_released() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(x'4341524b'::int, OLD.tenant_id);
  INSERT INTO wake (tenant_id, waits_for)
  VALUES (OLD.tenant_id, 'workflow/' || OLD.name)
  ON CONFLICT (tenant_id, waits_for) DO UPDATE SET nominal_at = excluded.nominal_at, schedule_id = excluded.schedule_id, seq = excluded.seq;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
-- The platform changes tenants and cannot see their rows, so this runs as the engine: migrations/isolation.go sets its owner and search_path.
-- +goose StatementBegin
CREATE FUNCTION wake_tenant() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(x'4341524b'::int, OLD.id);
  INSERT INTO wake (tenant_id, waits_for)
  VALUES (OLD.id, '')
  ON CONFLICT (tenant_id, waits_for) DO UPDATE SET nominal_at = excluded.nominal_at, schedule_id = excluded.schedule_id, seq = excluded.seq;
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER endpoint_updated AFTER UPDATE ON endpoint FOR EACH ROW
  WHEN (NEW.state = 'enabled' AND (NEW.state IS DISTINCT FROM OLD.state OR NEW.url IS DISTINCT FROM OLD.url OR NEW.secrets IS DISTINCT FROM OLD.secrets))
  EXECUTE FUNCTION wake_endpoint();
CREATE TRIGGER workflow_updated AFTER UPDATE ON workflow FOR EACH ROW
  WHEN (OLD.endpoint IS NOT NULL AND (NEW.endpoint IS DISTINCT FROM OLD.endpoint OR NEW.defaults IS DISTINCT FROM OLD.defaults))
  EXECUTE FUNCTION wake_workflow();
CREATE TRIGGER workflow_deleted AFTER DELETE ON workflow FOR EACH ROW
  WHEN (OLD.endpoint IS NOT NULL) EXECUTE FUNCTION wake_workflow();
CREATE TRIGGER workflow_released AFTER UPDATE ON workflow FOR EACH ROW
  WHEN (OLD.held_at IS NOT NULL AND NEW.held_at IS NULL) EXECUTE FUNCTION wake_released();
CREATE TRIGGER workflow_held_deleted AFTER DELETE ON workflow FOR EACH ROW
  WHEN (OLD.held_at IS NOT NULL) EXECUTE FUNCTION wake_released();
CREATE TRIGGER tenant_updated AFTER UPDATE ON tenant FOR EACH ROW
  WHEN (NEW.status = 'active' AND NEW.halted_at IS NULL AND (OLD.status <> 'active' OR OLD.halted_at IS NOT NULL))
  EXECUTE FUNCTION wake_tenant();

CREATE TABLE buffered (
  tenant_id   int         NOT NULL,
  schedule_id bigint      NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int         NOT NULL,
  aside       boolean     NOT NULL DEFAULT false,
  attempt     smallint    NOT NULL DEFAULT 1,
  orphan      boolean     NOT NULL DEFAULT false,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq)
);
CREATE INDEX buffered_orphan ON buffered (tenant_id, schedule_id) WHERE orphan;
COMMENT ON TABLE buffered IS 'A tick that waits for another tick of its schedule to end. The oldest is released first. Written by dispatch/control, dispatch/finish, dispatch/upkeep.';
COMMENT ON COLUMN buffered.aside IS 'whether it will run aside';
COMMENT ON COLUMN buffered.orphan IS 'its schedule is deleted, and upkeep cancels it';

-- A manual tick that waits for its time becomes due when its schedule is deleted, and is cancelled when it is opened.
-- A transaction that buffers a tick holds the lock of its schedule's state, so the statement that deletes the state sees the tick.
-- Its plan is kept. A plan made while few ticks were buffered would read all of them, so it uses the index alone.
-- +goose StatementBegin
CREATE FUNCTION orphan_buffered() RETURNS trigger LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
BEGIN
  UPDATE buffered b
  SET orphan = true
  FROM gone g
  WHERE b.tenant_id = g.tenant_id AND b.schedule_id = g.schedule_id;
  UPDATE delayed d
  SET due_at = clock_timestamp()
  FROM gone g
  WHERE d.tenant_id = g.tenant_id AND d.schedule_id = g.schedule_id AND d.why = 'later';
  RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER schedule_state_deleted_buffered AFTER DELETE ON schedule_state REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION orphan_buffered();

CREATE TABLE queued (
  tenant_id   int              NOT NULL,
  workflow    text COLLATE "C" NOT NULL,
  priority    smallint         NOT NULL,
  id          bigint           GENERATED ALWAYS AS IDENTITY,
  schedule_id bigint           NOT NULL,
  nominal_at  timestamptz      NOT NULL,
  seq         int              NOT NULL,
  attempt     smallint         NOT NULL,
  shard       smallint         NOT NULL,
  PRIMARY KEY (tenant_id, workflow, priority, id)
);
-- Without tenant_id, so that no look for the first waiting ticks of a workflow can read this index.
CREATE INDEX queued_tick ON queued (schedule_id);
COMMENT ON TABLE queued IS 'A tick that waits for a slot of a workflow with max_running. Written by dispatch/control, dispatch/finish, dispatch/open.';

CREATE TABLE slot (
  tenant_id   int              NOT NULL,
  schedule_id bigint           NOT NULL,
  nominal_at  timestamptz      NOT NULL,
  seq         int              NOT NULL,
  attempt     smallint         NOT NULL,
  workflow    text COLLATE "C" NOT NULL,
  id          bigint           GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (schedule_id, nominal_at, seq) -- without tenant_id, so that no count of the slots of a workflow can read it
);
CREATE INDEX slot_of_workflow ON slot (tenant_id, workflow, id);
COMMENT ON TABLE slot IS 'A slot of a workflow with max_running, held by a running tick. Other workflows have no rows here. Written by dispatch/finish.';
COMMENT ON COLUMN slot.id IS 'grows with each slot that a workflow gives; a process counts from the lowest number that it has seen';

CREATE UNLOGGED TABLE push_load (
  process_id bigint      NOT NULL,
  tenant_id  int         NOT NULL,
  requests   int         NOT NULL,
  busiest    int         NOT NULL,
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (process_id, tenant_id)
) WITH (fillfactor = 50);
CREATE INDEX push_load_of_tenant ON push_load (tenant_id);
COMMENT ON TABLE push_load IS 'How many requests to endpoints a process has in flight for a tenant, once a second. Unlogged: a crash ends the requests too. Written by dispatch/push, dispatch/upkeep.';
COMMENT ON COLUMN push_load.busiest IS 'the requests of them that go to the busiest endpoint';

CREATE TABLE ready (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  priority  smallint         NOT NULL,
  id        bigint           GENERATED ALWAYS AS IDENTITY,
  ticks     int              NOT NULL,
  taken     int              NOT NULL DEFAULT 0,
  items     bytea            NOT NULL,
  PRIMARY KEY (tenant_id, workflow, queue, priority, id),
  CONSTRAINT ready_left CHECK (taken >= 0 AND taken < ticks)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, fillfactor = 85);
CREATE INDEX ready_arrival ON ready (tenant_id, workflow, id) INCLUDE (queue, priority);
COMMENT ON TABLE ready IS 'Ticks that wait for a worker, up to a hundred in a row. Written by dispatch/lease.';
COMMENT ON COLUMN ready.taken IS 'how many of the ticks are leased already, from the first on';
COMMENT ON COLUMN ready.items IS 'keys of ticks with their attempts, packed as varint deltas';

CREATE UNLOGGED TABLE workflow_poll (
  tenant_id int              NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  polled_at timestamptz      NOT NULL,
  PRIMARY KEY (tenant_id, workflow)
) WITH (fillfactor = 50);
COMMENT ON TABLE workflow_poll IS 'When a worker last polled for ticks of a workflow, to a few seconds. Unlogged: after a crash of the server nobody has. Written by dispatch/lease.';

CREATE TABLE lease (
  id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id int         NOT NULL,
  worker    text        NOT NULL,
  leased_at timestamptz NOT NULL,
  until_at  timestamptz NOT NULL,
  unended   int         NOT NULL,
  ticks     bytea       NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX lease_of_tenant ON lease (tenant_id, until_at);
CREATE INDEX lease_until ON lease (until_at);
COMMENT ON TABLE lease IS 'The ticks that one worker took at once. Each tick is fenced by its own attempt. The lease ends at until_at, except for ticks with a later end in lease_beat. Written by dispatch/lease.';
COMMENT ON COLUMN lease.unended IS 'how many of its ticks have not ended';
COMMENT ON COLUMN lease.ticks IS 'their keys and attempts, packed';

CREATE TABLE lease_beat (
  lease_id bigint      NOT NULL REFERENCES lease ON DELETE CASCADE,
  slot     smallint    NOT NULL,
  until_at timestamptz NOT NULL,
  PRIMARY KEY (lease_id, slot)
);
COMMENT ON TABLE lease_beat IS 'A tick of a lease that has a later end than the lease. Written by dispatch/lease.';
COMMENT ON COLUMN lease_beat.slot IS 'the place of the tick in the lease';

-- Whether the job of an operation waits is looked up by the operation's number.
-- squawk-ignore require-concurrent-index-creation -- the table is empty
CREATE INDEX river_job_operation ON river_job (((args ->> 'operation')::bigint)) WHERE kind = 'operate' AND state = 'available';

-- +goose Down
SELECT 'forward only';
