-- +goose Up
-- What a tenant owes is the time from now to spent_to at the rate of then: with that rate the debt can be counted at another.
ALTER TABLE allowance ADD COLUMN spent_rate int;
COMMENT ON COLUMN allowance.spent_rate IS 'ticks a second at which spent_to was set; null: never';
