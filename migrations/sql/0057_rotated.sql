-- +goose Up
-- A second rotation within an hour would end the secret that receivers still use: it is refused unless it is asked for.
ALTER TABLE endpoint ADD COLUMN rotated_at timestamptz;
COMMENT ON COLUMN endpoint.rotated_at IS 'when its secret was rotated last; null: it never was, or before this was noted';

-- +goose Down
SELECT 'forward only';
