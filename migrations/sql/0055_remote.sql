-- +goose Up
ALTER TABLE audit ADD COLUMN remote inet;
COMMENT ON COLUMN audit.remote IS 'the address of the client that asked for it; null: nobody did, or its key is erased';

-- +goose Down
SELECT 'forward only';
