-- +goose Up
-- A tick that waits for a slot is found when it is cancelled.
CREATE INDEX waiting_tick ON waiting (tenant_id, schedule_id);

-- +goose Down
SELECT 'forward only';
