-- +goose Up
-- A receiver changes over from one secret to the next: two are valid at a time, and never none.
ALTER TABLE endpoint ADD CONSTRAINT endpoint_secrets CHECK (cardinality(secrets) BETWEEN 1 AND 2);
