-- +goose Up
-- Long work, done in bounded steps: a step and its progress commit together, so that whoever goes on after a crash
-- begins where the last step ended.
CREATE TABLE operation (
  tenant_id  int    NOT NULL REFERENCES tenant,
  id         bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT operation_id UNIQUE,
  kind       text   NOT NULL,
  state      text   NOT NULL DEFAULT 'pending' CONSTRAINT operation_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
  started_by text   NOT NULL,
  params     json   NOT NULL,
  cursor     json,
  done       bigint NOT NULL DEFAULT 0,
  total      bigint,
  counts     jsonb  NOT NULL DEFAULT '{}',
  result     json,
  error      text,
  failures   int    NOT NULL DEFAULT 0,
  cancel     boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at timestamptz,
  stepped_at timestamptz,
  due_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  look_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at   timestamptz,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT operation_ended CHECK ((ended_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled')))
);
CREATE INDEX operation_by_state ON operation (tenant_id, state, id);
CREATE INDEX operation_look ON operation (look_at) WHERE ended_at IS NULL;
CREATE INDEX operation_over ON operation (ended_at) WHERE ended_at IS NOT NULL;
COMMENT ON COLUMN operation.total IS 'how much there is to do, in the units of done; null: not known';
COMMENT ON COLUMN operation.due_at IS 'no step is made before';
COMMENT ON COLUMN operation.look_at IS 'a process looks after it from then on: its runner has been silent, or its time has come';
COMMENT ON COLUMN operation.failures IS 'steps in a row that failed for a reason of ours';

-- +goose Down
SELECT 'forward only';
