-- +goose Up
-- The params of an operation may name a key, and are erased with it.
ALTER TABLE operation ADD COLUMN key text COLLATE "C";
COMMENT ON COLUMN operation.key IS 'the key, or the prefix of keys, that the params name, until a key of that name is erased';
CREATE INDEX operation_key ON operation (tenant_id, key) WHERE key IS NOT NULL;
UPDATE operation
SET key = COALESCE(params ->> 'key', params -> 'filter' ->> 'key', params -> 'filter' ->> 'key_prefix')
WHERE kind IN ('backfill', 'replay_dead_letters', 'actions');
UPDATE operation SET cursor = NULL WHERE ended_at IS NOT NULL;

ALTER TABLE erasure ADD COLUMN earlier text[];
COMMENT ON COLUMN erasure.earlier IS 'the earlier names of the key, escaped as in a path, until all of it is gone';

-- +goose Down
SELECT 'forward only';
