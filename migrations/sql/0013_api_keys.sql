-- +goose Up
CREATE TABLE api_key (
  tenant_id  int  NOT NULL REFERENCES tenant,
  id         text COLLATE "C" NOT NULL,
  name       text NOT NULL,
  hash       bytea NOT NULL CONSTRAINT api_key_hash UNIQUE,
  scopes     text[] NOT NULL,
  workflows  text[],
  expires_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  created_by text NOT NULL,
  PRIMARY KEY (tenant_id, id)
);
COMMENT ON COLUMN api_key.hash IS 'SHA-256 of the key, which is shown once and kept nowhere';
COMMENT ON COLUMN api_key.workflows IS 'the only ones that it is good for; null: all';

-- What a tenant has spent of a rate, for all processes. Unlogged: after a crash every bucket is full.
CREATE UNLOGGED TABLE bucket (
  tenant_id int  NOT NULL,
  quota     text COLLATE "C" NOT NULL,
  full_at   timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, quota)
) WITH (fillfactor = 50);
COMMENT ON COLUMN bucket.full_at IS 'when it is full again if nothing more is taken';

-- +goose Down
SELECT 'forward only';
