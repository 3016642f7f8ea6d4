-- +goose Up
-- Ticks that a client moved to another time; a jsonb array of {at, to, moved_at, by}, oldest first.
ALTER TABLE schedule
  ADD COLUMN moves       jsonb,
  ADD COLUMN moved_until timestamptz;
COMMENT ON COLUMN schedule.moved_until IS 'while it is set the schedule is timed with its moves; once it has passed they are history';
CREATE INDEX schedule_moved ON schedule (moved_until) WHERE moved_until IS NOT NULL;

-- What a schedule did then is told from what its versions said.
ALTER TABLE revision
  ADD COLUMN paused_until timestamptz;

ALTER TABLE tick
  ADD COLUMN until_at timestamptz;
COMMENT ON COLUMN tick.until_at IS 'the last nominal time of its schedule as that stood when the tick was made; null: its spec has no limit of ticks';

-- +goose Down
SELECT 'forward only';
