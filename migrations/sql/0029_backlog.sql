-- +goose Up
-- What of a backlog was swept first is asked for by its time alone. The predicate says so: to a planner that last saw few
-- unopened chunks, reading this index whole seemed as good a way to a handful of chunks as their numbers, and each opening
-- then read the backlog.
DROP INDEX chunk_swept;
CREATE INDEX chunk_swept ON chunk (swept_at) WHERE opened_at IS NULL AND swept_at IS NOT NULL;

-- +goose Down
SELECT 'forward only';
