-- +goose Up
-- Ticks that a change hands out wait where they are more than their tenant's rate. The rows of held are not checked again: they hold
-- what the constraint before it allowed.
ALTER TABLE chunk ADD COLUMN hand_at timestamptz;
COMMENT ON COLUMN chunk.hand_at IS 'its ticks are handed out no sooner, as a change made more of them due than the tenant''s rate; null: they do not wait';
ALTER TABLE held
  DROP CONSTRAINT held_why,
  ADD CONSTRAINT held_why CHECK (why IN ('retry', 'manual', 'released', 'slot', 'endpoint', 'answer', 'halted', 'rate')) NOT VALID;

-- +goose Down
SELECT 'forward only';
