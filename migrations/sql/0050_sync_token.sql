-- +goose Up
-- After a crash the numbers of syncs begin again at 1: an unlogged table restarts its sequence. The token tells a sync of
-- before the crash from a later one that got the same number.
ALTER TABLE sync ADD COLUMN token uuid NOT NULL DEFAULT gen_random_uuid();
COMMENT ON COLUMN sync.token IS 'proves that the sync is the one that staged the lines: numbers are used again after a crash';

-- +goose Down
SELECT 'forward only';
