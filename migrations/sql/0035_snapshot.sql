-- +goose Up
-- A process reads its open chunks from a moment on: those before it are done, and while an old snapshot is open the index keeps
-- an entry of each.
DROP INDEX chunk_open;
CREATE INDEX chunk_open ON chunk (owner, opened_at) WHERE opened_at IS NOT NULL AND done_at IS NULL;

-- +goose Down
SELECT 'forward only';
