-- +goose Up
-- The kept answers of a tenant are searched for an erased key in bounded steps: an erasure notes how far it has come.
ALTER TABLE erasure
  ADD COLUMN answer_route text,
  ADD COLUMN answer_key   text COLLATE "C";
COMMENT ON COLUMN erasure.answer_route IS 'with answer_key: the last kept answer that was searched for the key';

-- +goose Down
SELECT 'forward only';
