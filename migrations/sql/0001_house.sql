-- +goose Up
CREATE TABLE setting (
  name       text  COLLATE "C" PRIMARY KEY,
  value      bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE setting IS 'keys of the whole installation (of tick ids, cursors, lease tokens), made once at the first start';

CREATE TABLE tenant (
  id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text COLLATE "C" NOT NULL CONSTRAINT tenant_name_key UNIQUE,
  status     text NOT NULL DEFAULT 'active' CONSTRAINT tenant_status CHECK (status IN ('active', 'suspended')),
  halted_at  timestamptz,
  spread     smallint NOT NULL DEFAULT 4 CONSTRAINT tenant_spread CHECK (spread IN (1, 4, 16, 64)),
  quotas     jsonb NOT NULL DEFAULT '{}',
  issuers    jsonb NOT NULL DEFAULT '[]',
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN tenant.spread IS 'over how many shards new schedules are laid; a schedule keeps the shard it was born in';

CREATE TABLE idempotency (
  tenant_id  int  NOT NULL REFERENCES tenant,
  route      text NOT NULL,
  key        text COLLATE "C" NOT NULL,
  body_hash  bytea NOT NULL,
  status     int  NOT NULL,
  answer     bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, route, key)
);
CREATE INDEX idempotency_created ON idempotency (created_at);

CREATE TABLE endpoint (
  tenant_id  int  NOT NULL REFERENCES tenant,
  name       text COLLATE "C" NOT NULL,
  url        text NOT NULL,
  batch      smallint NOT NULL DEFAULT 1 CONSTRAINT endpoint_batch CHECK (batch BETWEEN 1 AND 500),
  headers    jsonb NOT NULL DEFAULT '{}',
  events     text[] NOT NULL DEFAULT '{}',
  state      text NOT NULL DEFAULT 'enabled' CONSTRAINT endpoint_state CHECK (state IN ('enabled', 'held', 'disabled')),
  secrets    bytea[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, name)
);

CREATE TABLE workflow (
  tenant_id   int  NOT NULL REFERENCES tenant,
  name        text COLLATE "C" NOT NULL,
  endpoint    text COLLATE "C",
  version     text,
  max_running int CONSTRAINT workflow_max_running CHECK (max_running > 0),
  defaults    jsonb NOT NULL DEFAULT '{}',
  created_at  timestamptz NOT NULL DEFAULT now(),
  updated_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, name),
  CONSTRAINT workflow_endpoint FOREIGN KEY (tenant_id, endpoint) REFERENCES endpoint (tenant_id, name)
);
CREATE INDEX workflow_by_endpoint ON workflow (tenant_id, endpoint) WHERE endpoint IS NOT NULL;

-- The wide row: what a client wrote. A null policy or delivery column is inherited from the workflow.
CREATE TABLE schedule (
  tenant_id      int    NOT NULL REFERENCES tenant,
  id             bigint GENERATED ALWAYS AS IDENTITY,
  workflow       text   COLLATE "C" NOT NULL,
  key            text   COLLATE "C" NOT NULL,
  version        int    NOT NULL DEFAULT 1,
  shard          smallint NOT NULL CONSTRAINT schedule_shard CHECK (shard BETWEEN 0 AND 63),
  status         text   NOT NULL CONSTRAINT schedule_status CHECK (status IN ('active', 'paused', 'completed', 'quarantined')),
  spec           text   NOT NULL,
  overlap        text,
  missed         text,
  max_lateness_s int,
  on_expired     text,
  pause_after_failures int,
  queue          text,
  priority       smallint,
  timeout_s      int,
  max_attempts   smallint,
  keep_succeeded_s int,
  keep_failed_s  int,
  payload        text,
  labels         jsonb  NOT NULL DEFAULT '{}',
  note           text,
  status_note    text,
  paused_at      timestamptz,
  paused_until   timestamptz,
  anchor_at      timestamptz NOT NULL,
  ticks_left     int,
  cohort_id      bigint,
  spread         bigint NOT NULL DEFAULT 0,
  tzdata         text   NOT NULL,
  created_at     timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL,
  updated_by     text   NOT NULL,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT schedule_workflow_key UNIQUE (tenant_id, workflow, key),
  CONSTRAINT schedule_active_in_cohort CHECK (status = 'active' OR cohort_id IS NULL OR paused_until IS NOT NULL),
  CONSTRAINT schedule_paused_since CHECK ((status = 'paused') = (paused_at IS NOT NULL) AND (paused_until IS NULL OR paused_at IS NOT NULL))
);
COMMENT ON COLUMN schedule.anchor_at IS 'creation, rounded up to a whole second: the anchor of fixed_rate';
COMMENT ON COLUMN schedule.ticks_left IS 'of max_ticks, as of the moment it last joined a cohort; null: no limit';

-- What firing changes: one narrow row, updated in place; nothing is indexed but its key.
CREATE TABLE schedule_state (
  tenant_id   int    NOT NULL,
  schedule_id bigint NOT NULL,
  live        int    NOT NULL DEFAULT 0,
  waiting     int    NOT NULL DEFAULT 0,
  live_seq    int,
  fate        smallint NOT NULL DEFAULT 0,
  failures    int    NOT NULL DEFAULT 0,
  manual      int    NOT NULL DEFAULT 0,
  occurrence  bigint NOT NULL DEFAULT 0,
  fired       bigint NOT NULL DEFAULT 0,
  succeeded   bigint NOT NULL DEFAULT 0,
  failed      bigint NOT NULL DEFAULT 0,
  skipped     bigint NOT NULL DEFAULT 0,
  missed      bigint NOT NULL DEFAULT 0,
  last_at     timestamptz,
  prev_at     timestamptz,
  live_at     timestamptz,
  seen_at     timestamptz,
  last_seq    int,
  last_tick_at timestamptz,
  skips       timestamptz[],
  PRIMARY KEY (tenant_id, schedule_id)
) WITH (fillfactor = 70);
COMMENT ON COLUMN schedule_state.last_at IS 'nominal time of the last tick of the sequence that was handed out';
COMMENT ON COLUMN schedule_state.seen_at IS 'nominal time of the last tick of the sequence that was recorded, handed out or not';
COMMENT ON COLUMN schedule_state.last_tick_at IS 'with last_seq: the tick recorded last, of whatever cause';
COMMENT ON COLUMN schedule_state.live IS 'ticks running or waiting for a retry; waiting: those that wait for them to end';
COMMENT ON COLUMN schedule_state.live_at IS 'with live_seq: the tick handed out last, of whatever cause';
COMMENT ON COLUMN schedule_state.fate IS 'what became of the tick decided last: 0 handed out, 1 waits, 2 skipped';

-- Versions that are no longer the present one, kept while a live tick or a dead letter names them.
CREATE TABLE revision (
  tenant_id    int    NOT NULL,
  schedule_id  bigint NOT NULL,
  version      int    NOT NULL,
  workflow     text   COLLATE "C" NOT NULL,
  key          text   COLLATE "C" NOT NULL,
  spec         text   NOT NULL,
  payload      text,
  queue        text,
  priority     smallint,
  timeout_s    int,
  max_attempts smallint,
  max_lateness_s int,
  on_expired   text,
  anchor_at    timestamptz NOT NULL,
  deleted      boolean NOT NULL DEFAULT false,
  ended_at     timestamptz NOT NULL,
  ended_by     text NOT NULL,
  PRIMARY KEY (tenant_id, schedule_id, version)
);
CREATE INDEX revision_by_key ON revision (tenant_id, workflow, key) WHERE deleted;

-- The schedules of one tenant, workflow and shard that share one timing: one row says when they fire next.
CREATE TABLE cohort (
  shard      smallint NOT NULL,
  id         bigint GENERATED ALWAYS AS IDENTITY,
  tenant_id  int NOT NULL,
  workflow   text COLLATE "C" NOT NULL,
  hash       bytea NOT NULL,
  timing     text NOT NULL,
  form       smallint NOT NULL DEFAULT 1,
  missed     text NOT NULL,
  next_at    timestamptz,
  due_at     timestamptz,
  run_at     timestamptz,
  run_from   timestamptz,
  run_missed int,
  run_drop   boolean,
  at_spread  bigint,
  at_id      bigint,
  empty_at   timestamptz,
  PRIMARY KEY (shard, id),
  CONSTRAINT cohort_identity UNIQUE (tenant_id, workflow, shard, hash, missed),
  CONSTRAINT cohort_in_run CHECK ((run_at IS NULL) = (at_id IS NULL) AND (run_at IS NULL) = (at_spread IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX cohort_due ON cohort (shard, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX cohort_next ON cohort (tenant_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX cohort_empty ON cohort (empty_at) WHERE empty_at IS NOT NULL;
COMMENT ON COLUMN cohort.next_at IS 'the nominal time that is served next, or that the run under way serves';
COMMENT ON COLUMN cohort.due_at IS 'when the sweep looks at it again; null while it is empty or exhausted';
COMMENT ON COLUMN cohort.run_at IS 'nominal time of the run under way; at_spread and at_id are its cursor';
COMMENT ON COLUMN cohort.run_from IS 'the earliest nominal time that the run stands for; run_missed is how many';

CREATE TABLE member (
  cohort_id   bigint NOT NULL,
  spread      bigint NOT NULL,
  schedule_id bigint NOT NULL,
  tenant_id   int    NOT NULL,
  from_at     timestamptz NOT NULL,
  until_at    timestamptz,
  PRIMARY KEY (cohort_id, spread, schedule_id)
);
COMMENT ON COLUMN member.from_at IS 'the first nominal time that counts';
COMMENT ON COLUMN member.until_at IS 'the last nominal time that counts';

-- A process of Carillon's; one that has not beaten for 5 s is dead, and its chunks are taken.
CREATE TABLE process (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text NOT NULL,
  place      text NOT NULL,
  pid        int NOT NULL,
  sweeps     boolean NOT NULL,
  dispatches boolean NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  beat_at    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

COMMENT ON COLUMN process.place IS 'the boot of a machine and the namespace in which pid counts; empty where they are not known';

-- Ticks that were swept together: opened by a River job, owned by the process that sends them.
CREATE TABLE chunk (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  shard      smallint NOT NULL,
  tenant_id  int NOT NULL,
  kind       smallint NOT NULL CONSTRAINT chunk_kind CHECK (kind IN (0, 1)),
  lane       text NOT NULL,
  nominal_at timestamptz NOT NULL,
  first_id   bigint NOT NULL,
  last_id    bigint NOT NULL,
  ticks      int NOT NULL,
  workflows  text[] NOT NULL,
  items      bytea NOT NULL,
  swept_at   timestamptz NOT NULL,
  opened_at  timestamptz,
  owner      bigint,
  epoch      int NOT NULL DEFAULT 0,
  done_at    timestamptz,
  CONSTRAINT chunk_done_was_opened CHECK (done_at IS NULL OR opened_at IS NOT NULL)
) WITH (fillfactor = 80);
CREATE INDEX chunk_unopened ON chunk (shard, tenant_id, nominal_at) WHERE opened_at IS NULL;
CREATE INDEX chunk_swept ON chunk (swept_at) WHERE opened_at IS NULL;
CREATE INDEX chunk_open ON chunk (owner) WHERE opened_at IS NOT NULL AND done_at IS NULL;
CREATE INDEX chunk_done ON chunk (done_at) WHERE done_at IS NOT NULL;
COMMENT ON COLUMN chunk.kind IS '0: schedules whose nominal time has come; 1: further attempts of ticks';
COMMENT ON COLUMN chunk.items IS 'schedule ids (kind 0) or keys of ticks (kind 1), packed as varint deltas';

-- The record: every tick one row, one final state.
CREATE TABLE tick (
  tenant_id    int      NOT NULL,
  schedule_id  bigint   NOT NULL,
  nominal_at   timestamptz NOT NULL,
  seq          int      NOT NULL,
  version      int      NOT NULL,
  missed_count int      NOT NULL,
  occurrence   bigint,
  cohort_id    bigint,
  chunk_id     bigint,
  last_at      timestamptz,
  fired_at     timestamptz NOT NULL,
  ended_at     timestamptz,
  shard        smallint NOT NULL,
  attempt      smallint NOT NULL,
  state        smallint NOT NULL,
  reason       smallint NOT NULL,
  cause        smallint NOT NULL,
  dst          smallint NOT NULL,
  started_at   timestamptz,
  payload      text,
  result       text,
  error        text,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq),
  CONSTRAINT tick_ended CHECK ((ended_at IS NULL) = (state IN (0, 1)))
) PARTITION BY RANGE (nominal_at);
COMMENT ON COLUMN tick.seq IS '0 for timed ticks; a number of its own for manual ones';
COMMENT ON COLUMN tick.payload IS 'the payload of a manual tick that bears its own; null: the schedule version''s';
CREATE TABLE tick_default PARTITION OF tick DEFAULT WITH (fillfactor = 60);

-- Attempts but the last one that ended well: what a tick's own row does not tell.
CREATE TABLE attempt (
  tenant_id   int      NOT NULL,
  schedule_id bigint   NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int      NOT NULL,
  attempt     smallint NOT NULL,
  started_at  timestamptz,
  ended_at    timestamptz NOT NULL,
  outcome     text     NOT NULL CONSTRAINT attempt_outcome CHECK (outcome IN ('succeeded', 'failed', 'timed_out', 'lost', 'cancelled')),
  status      int,
  error       text,
  worker      text,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq, attempt)
) PARTITION BY RANGE (nominal_at);
CREATE TABLE attempt_default PARTITION OF attempt DEFAULT;

-- Ticks that are to be sent at a later moment, or whose worker must have answered by then.
CREATE TABLE held (
  tenant_id   int      NOT NULL,
  schedule_id bigint   NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int      NOT NULL,
  attempt     smallint NOT NULL,
  shard       smallint NOT NULL,
  why         text     NOT NULL CONSTRAINT held_why CHECK (why IN ('retry', 'manual', 'released', 'slot', 'endpoint', 'answer')),
  due_at      timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq)
);
CREATE INDEX held_due ON held (shard, due_at);

-- Ticks that wait for a worker to lease them, in the order in which they are leased.
CREATE TABLE ready (
  tenant_id   int      NOT NULL,
  workflow    text     COLLATE "C" NOT NULL,
  queue       text     COLLATE "C" NOT NULL,
  priority    smallint NOT NULL,
  id          bigint GENERATED ALWAYS AS IDENTITY,
  schedule_id bigint   NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int      NOT NULL,
  attempt     smallint NOT NULL,
  PRIMARY KEY (tenant_id, workflow, queue, priority, id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- Ticks that wait for one of their schedule to end; they are released oldest first.
CREATE TABLE buffered (
  tenant_id   int      NOT NULL,
  schedule_id bigint   NOT NULL,
  nominal_at  timestamptz NOT NULL,
  seq         int      NOT NULL,
  PRIMARY KEY (tenant_id, schedule_id, nominal_at, seq)
);

-- What one worker took at once. A tick in it is fenced by its own attempt; the lease ends for all at until_at,
-- but for those that lease_beat has lengthened.
CREATE TABLE lease (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id int NOT NULL,
  worker    text NOT NULL,
  leased_at timestamptz NOT NULL,
  until_at  timestamptz NOT NULL,
  unended   int NOT NULL,
  ticks     bytea NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX lease_until ON lease (until_at);
CREATE TABLE lease_beat (
  lease_id bigint NOT NULL REFERENCES lease ON DELETE CASCADE,
  slot     smallint NOT NULL,
  until_at timestamptz NOT NULL,
  PRIMARY KEY (lease_id, slot)
);

-- +goose Down
SELECT 'forward only';
