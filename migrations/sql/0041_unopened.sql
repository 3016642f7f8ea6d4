-- +goose Up
-- Unopened chunks are read by their numbers, from the lowest on that may be unopened: while an old snapshot is open, the indexes
-- keep an entry of each chunk that was opened since.
DROP INDEX chunk_unopened;
CREATE INDEX chunk_unopened ON chunk (shard, tenant_id, id, nominal_at) WHERE opened_at IS NULL;
DROP INDEX chunk_swept;
CREATE INDEX chunk_swept ON chunk (id) WHERE opened_at IS NULL AND swept_at IS NOT NULL;

-- +goose Down
SELECT 'forward only';
