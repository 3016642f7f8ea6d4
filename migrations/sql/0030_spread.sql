-- +goose Up
-- How many schedules a tenant has says over how many shards new ones are laid; spread says over how many at least.
ALTER TABLE tenant ALTER COLUMN spread SET DEFAULT 1;
COMMENT ON COLUMN tenant.spread IS 'over how many shards new schedules are laid at least; a schedule keeps the shard it was born in';

-- +goose Down
SELECT 'forward only';
