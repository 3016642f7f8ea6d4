-- +goose Up
-- An API key has a second secret while it is rotated, and tells when it was used.
ALTER TABLE api_key
  ADD COLUMN previous_hash bytea CONSTRAINT api_key_previous_hash UNIQUE,
  ADD COLUMN previous_expires_at timestamptz,
  ADD COLUMN last_used_at timestamptz,
  ADD CONSTRAINT api_key_previous CHECK ((previous_hash IS NULL) = (previous_expires_at IS NULL)),
  SET (fillfactor = 80);
COMMENT ON COLUMN api_key.previous_hash IS 'SHA-256 of the key before the last rotation, which counts until previous_expires_at';
COMMENT ON COLUMN api_key.last_used_at IS 'when it was exchanged, or a token of it was used; up to a minute behind';

-- +goose Down
SELECT 'forward only';
