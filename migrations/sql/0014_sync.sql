-- +goose Up
-- What a sync was sent, until it has been stored. It need not outlive a crash: the client sends it again.
CREATE UNLOGGED TABLE sync (
  tenant_id int NOT NULL,
  id        bigint GENERATED ALWAYS AS IDENTITY,
  seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  over      boolean NOT NULL DEFAULT false,
  PRIMARY KEY (tenant_id, id)
);
CREATE UNLOGGED TABLE sync_line (
  tenant_id int    NOT NULL,
  sync_id   bigint NOT NULL,
  line      int    NOT NULL,
  key       text   COLLATE "C",
  body      text,
  outcome   text,
  PRIMARY KEY (tenant_id, sync_id, line),
  CONSTRAINT sync_line_either CHECK ((body IS NULL) <> (outcome IS NULL) AND (body IS NULL) = (key IS NULL))
);
CREATE INDEX sync_line_key ON sync_line (tenant_id, sync_id, key, line) WHERE key IS NOT NULL;
COMMENT ON COLUMN sync_line.outcome IS 'what became of a line that is not to be stored';
COMMENT ON COLUMN sync.over IS 'its lines are not relied upon any more, and are cleared away';

-- +goose Down
SELECT 'forward only';
