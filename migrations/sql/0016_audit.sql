-- +goose Up
-- Who changed what: a row a change, written by the transaction that makes it.
CREATE TABLE audit (
  tenant_id int    NOT NULL REFERENCES tenant,
  id        bigint GENERATED ALWAYS AS IDENTITY,
  at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor     text   NOT NULL,
  action    text   COLLATE "C" NOT NULL,
  target    text   COLLATE "C" NOT NULL,
  key       text   COLLATE "C",
  request   text   NOT NULL,
  before    json,
  after     json,
  PRIMARY KEY (tenant_id, at, id)
);
CREATE INDEX audit_key ON audit (tenant_id, key) WHERE key IS NOT NULL;
COMMENT ON COLUMN audit.key IS 'the key that it tells of, until that is erased';
COMMENT ON COLUMN audit.target IS 'the path of what was changed, without /v1';
COMMENT ON COLUMN audit.before IS 'what it was, without payloads and secrets; null: it was not there, or it is not told';

-- A tenant that is being erased is suspended, and never comes back.
ALTER TABLE tenant
  ADD COLUMN erasing_at timestamptz,
  ADD CONSTRAINT tenant_erasing CHECK (erasing_at IS NULL OR status = 'suspended');

-- +goose Down
SELECT 'forward only';
