-- +goose Up
-- Who the tenants are, what they may use, what they changed.
--
-- Words and rules of this schema. A table with a tenant_id holds rows of tenants: migrations/isolation.go puts row-level security on it.
-- Times are timestamptz, and end in _at. Sums that many transactions change at once are not updated in place: each transaction
-- appends a row to a table ..._delta, and upkeep folds these rows into the sums.

CREATE TABLE setting (
  name       text COLLATE "C" PRIMARY KEY,
  value      bytea            NOT NULL,
  created_at timestamptz      NOT NULL DEFAULT now()
);
COMMENT ON TABLE setting IS 'A key of the whole installation: of tick ids, cursors and lease tokens. The first start makes it. Written by tenants.';

CREATE TABLE tenant (
  id         int              GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text COLLATE "C" NOT NULL,
  status     text             NOT NULL DEFAULT 'active',
  halted_at  timestamptz,
  shards     smallint         NOT NULL DEFAULT 1,
  quotas     jsonb            NOT NULL DEFAULT '{}',
  issuers    jsonb            NOT NULL DEFAULT '[]',
  own_issuers jsonb           NOT NULL DEFAULT '[]',
  created_at timestamptz      NOT NULL DEFAULT now(),
  updated_at timestamptz      NOT NULL DEFAULT now(),
  halt_note  text,
  erasing_at timestamptz,
  fallback_timezone text,
  CONSTRAINT tenant_name_key UNIQUE (name),
  CONSTRAINT tenant_erasing CHECK (erasing_at IS NULL OR status = 'suspended'),
  CONSTRAINT tenant_shards CHECK (shards IN (1, 4, 16, 64)),
  CONSTRAINT tenant_status CHECK (status IN ('active', 'suspended'))
);
CREATE INDEX tenant_erased ON tenant (erasing_at) WHERE erasing_at IS NOT NULL;
CREATE INDEX tenant_issuer ON tenant USING gin ((issuers || own_issuers) jsonb_path_ops) WITH (fastupdate = off);
COMMENT ON TABLE tenant IS 'A tenant with its quotas and issuers. A request to erase it suspends it for good; upkeep deletes all its rows and this one last. Written by dispatch/control, dispatch/upkeep, tenants.';
COMMENT ON COLUMN tenant.issuers IS 'who signs its tokens, as the platform set it';
COMMENT ON COLUMN tenant.own_issuers IS 'who else signs its tokens, as its own operator set it';
COMMENT ON COLUMN tenant.shards IS 'at least so many shards get new schedules of the tenant; a schedule keeps its shard';
COMMENT ON COLUMN tenant.fallback_timezone IS 'the zone of subjects without a profile, where their workflow names none; null: none';
COMMENT ON COLUMN tenant.erasing_at IS 'when its erasure began';

CREATE TABLE allowance (
  tenant_id  int         REFERENCES tenant ON DELETE CASCADE PRIMARY KEY,
  spent_to   timestamptz NOT NULL,
  spent_rate int
) WITH (fillfactor = 50);
COMMENT ON TABLE allowance IS 'The token bucket of a tenant''s ticks a second. Sweeps of all processes take from it; the row is locked while they do. Written by dispatch/sweep.';
COMMENT ON COLUMN allowance.spent_to IS 'the moment up to which the rate is spent: later than now means a debt';
COMMENT ON COLUMN allowance.spent_rate IS 'ticks a second when spent_to was set; null: never set';

CREATE UNLOGGED TABLE bucket (
  tenant_id int              NOT NULL,
  quota     text COLLATE "C" NOT NULL,
  full_at   timestamptz      NOT NULL,
  PRIMARY KEY (tenant_id, quota)
) WITH (fillfactor = 50);
COMMENT ON TABLE bucket IS 'The token buckets of a tenant''s requests and upserts, for all processes. Unlogged: after a crash every bucket is full. Written by dispatch/upkeep, tenants.';
COMMENT ON COLUMN bucket.full_at IS 'when the bucket is full again if nothing more is taken';

CREATE TABLE api_key (
  tenant_id           int              NOT NULL REFERENCES tenant,
  id                  text COLLATE "C" NOT NULL,
  name                text             NOT NULL,
  hash                bytea            NOT NULL,
  scopes              text[]           NOT NULL,
  workflows           text[],
  expires_at          timestamptz,
  told_at             timestamptz,
  created_at          timestamptz      NOT NULL DEFAULT now(),
  created_by          text             NOT NULL,
  previous_hash       bytea,
  previous_expires_at timestamptz,
  last_used_at        timestamptz,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT api_key_hash UNIQUE (hash),
  CONSTRAINT api_key_previous_hash UNIQUE (previous_hash),
  CONSTRAINT api_key_previous CHECK (((previous_hash IS NULL) = (previous_expires_at IS NULL)))
) WITH (fillfactor = 80);
CREATE INDEX api_key_expiring ON api_key (expires_at) WHERE expires_at IS NOT NULL AND told_at IS NULL;
COMMENT ON TABLE api_key IS 'An API key of a tenant. Only its hash is stored. Written by tenants.';
COMMENT ON COLUMN api_key.hash IS 'SHA-256 of the key';
COMMENT ON COLUMN api_key.told_at IS 'when the tenant was notified that the key expires soon; null: not yet';
COMMENT ON COLUMN api_key.workflows IS 'the key covers only these workflows; null: all';
COMMENT ON COLUMN api_key.previous_hash IS 'SHA-256 of the key before the last rotation; it is valid until previous_expires_at';
COMMENT ON COLUMN api_key.last_used_at IS 'the last use of the key or of a token made from it; up to a minute behind';

CREATE TABLE idempotency (
  tenant_id  int              NOT NULL REFERENCES tenant,
  route      text             NOT NULL,
  key        text COLLATE "C" NOT NULL,
  body_hash  bytea            NOT NULL,
  status     int              NOT NULL,
  answer     bytea            NOT NULL,
  created_at timestamptz      NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, route, key)
);
CREATE INDEX idempotency_created ON idempotency (created_at);
COMMENT ON TABLE idempotency IS 'The kept answer to a request with an Idempotency-Key. The transaction of the change writes it, so both are stored or neither. Written by dispatch/upkeep, internal/once, schedules/subjects.';
COMMENT ON COLUMN idempotency.status IS '0: the request is under way; 1: its answer is kept';

CREATE TABLE audit (
  tenant_id int              NOT NULL REFERENCES tenant,
  id        bigint           GENERATED ALWAYS AS IDENTITY,
  at        timestamptz      NOT NULL DEFAULT clock_timestamp(),
  actor     text             NOT NULL,
  action    text COLLATE "C" NOT NULL,
  target    text COLLATE "C" NOT NULL,
  subject   text COLLATE "C",
  request   text             NOT NULL,
  before    json,
  after     json,
  remote    inet,
  through   text,
  PRIMARY KEY (tenant_id, at, id)
);
CREATE INDEX audit_subject ON audit (tenant_id, subject) WHERE subject IS NOT NULL;
COMMENT ON TABLE audit IS 'One change by a person or a program. The transaction of the change writes it. Written by dispatch/push, dispatch/upkeep, schedules/subjects, tenants.';
COMMENT ON COLUMN audit.target IS 'the path of the changed thing, without /v1';
COMMENT ON COLUMN audit.subject IS 'the subject that the entry is about, until that subject is erased';
COMMENT ON COLUMN audit.before IS 'the thing before, without payloads and secrets; null: it did not exist, or is not shown';
COMMENT ON COLUMN audit.through IS 'console: the change came through it; null: through the API itself';
COMMENT ON COLUMN audit.remote IS 'the address of the client; null: no client asked, or its subject is erased';

CREATE TABLE platform_audit (
  id        bigint           GENERATED ALWAYS AS IDENTITY,
  at        timestamptz      NOT NULL DEFAULT clock_timestamp(),
  actor     text             NOT NULL,
  action    text COLLATE "C" NOT NULL,
  target    text COLLATE "C" NOT NULL,
  request   text             NOT NULL,
  before    json,
  after     json,
  remote    inet,
  through   text,
  PRIMARY KEY (at, id)
);
COMMENT ON TABLE platform_audit IS 'One change of a tenant by the operator of the platform. It stays when the tenant is erased. Written by dispatch/upkeep, tenants.';
COMMENT ON COLUMN platform_audit.target IS 'the path of the changed thing, without /v1';
COMMENT ON COLUMN platform_audit.before IS 'the tenant before; null: it did not exist, or is not shown';
COMMENT ON COLUMN platform_audit.through IS 'console: the change came through it; null: through the API itself';
COMMENT ON COLUMN platform_audit.remote IS 'the address of the client; null: no client asked';

CREATE TABLE operation (
  tenant_id  int              NOT NULL REFERENCES tenant,
  id         bigint           GENERATED ALWAYS AS IDENTITY,
  kind       text             NOT NULL,
  state      text             NOT NULL DEFAULT 'pending',
  started_by text             NOT NULL,
  params     json             NOT NULL,
  cursor     json,
  done       bigint           NOT NULL DEFAULT 0,
  total      bigint,
  counts     jsonb            NOT NULL DEFAULT '{}',
  result     json,
  error      text,
  failures   int              NOT NULL DEFAULT 0,
  cancel     boolean          NOT NULL DEFAULT false,
  created_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
  started_at timestamptz,
  stepped_at timestamptz,
  due_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
  look_at    timestamptz      NOT NULL DEFAULT clock_timestamp(),
  ended_at   timestamptz,
  subject    text COLLATE "C",
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT operation_id UNIQUE (id),
  CONSTRAINT operation_ended CHECK (((ended_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled')))),
  CONSTRAINT operation_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled'))
);
CREATE INDEX operation_by_state ON operation (tenant_id, state, id);
CREATE INDEX operation_subject ON operation (tenant_id, subject) WHERE subject IS NOT NULL;
CREATE INDEX operation_look ON operation (look_at) WHERE ended_at IS NULL;
CREATE INDEX operation_over ON operation (ended_at) WHERE ended_at IS NOT NULL;
COMMENT ON TABLE operation IS 'Long work in bounded steps. A step commits together with its progress, so after a crash the next runner goes on behind the last step. Written by operations, schedules/subjects.';
COMMENT ON COLUMN operation.total IS 'how much there is to do, in the unit of done; null: unknown';
COMMENT ON COLUMN operation.failures IS 'consecutive steps that failed for a reason of ours';
COMMENT ON COLUMN operation.due_at IS 'no step runs before this time';
COMMENT ON COLUMN operation.look_at IS 'from this time on a process checks the operation: its runner is silent, or its time has come';
COMMENT ON COLUMN operation.subject IS 'the subject, the key or the prefix that params names, until that subject is erased';

CREATE TABLE operation_pause (
  tenant_id    int          NOT NULL,
  schedule_id  bigint       NOT NULL,
  operation_id bigint       NOT NULL,
  paused_at    timestamptz  NOT NULL,
  recorded_at  timestamptz  NOT NULL,
  was_paused   boolean      NOT NULL,
  until_before timestamptz,
  note_before  text,
  sync_before  boolean      NOT NULL,
  PRIMARY KEY (tenant_id, schedule_id)
);
CREATE INDEX operation_pause_undo ON operation_pause (tenant_id, operation_id, schedule_id);
CREATE INDEX operation_pause_old ON operation_pause (recorded_at);
COMMENT ON TABLE operation_pause IS 'A schedule that the action of an operation paused last, for seven days, so that the pause can be undone. A single pause deletes its row. Written by dispatch/upkeep, schedules.';
COMMENT ON COLUMN operation_pause.paused_at IS 'paused_at of the schedule after the action; if the schedule now has another value, it was resumed in the meantime';
COMMENT ON COLUMN operation_pause.was_paused IS 'it was paused before, and undoing the action pauses it again as it was';
COMMENT ON COLUMN operation_pause.until_before IS 'paused_until before the action';
COMMENT ON COLUMN operation_pause.note_before IS 'status_note before the action';
COMMENT ON COLUMN operation_pause.sync_before IS 'a sync had paused it before the action';

-- +goose Down
SELECT 'forward only';
