-- +goose Up
-- The schedules that follow the profile of a key are read in steps, by id.
DROP INDEX schedule_by_key;
CREATE INDEX schedule_by_key ON schedule (tenant_id, key, id) WHERE by_key;

-- +goose Down
SELECT 'forward only';
