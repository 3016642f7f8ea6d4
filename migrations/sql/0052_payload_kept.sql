-- +goose Up
-- A version that ended long ago keeps no payload, so that it takes little space until it is deleted.
ALTER TABLE revision ADD COLUMN payload_kept boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN revision.payload_kept IS 'false: there was a payload, and retention dropped it';
CREATE INDEX revision_payload ON revision (tenant_id, ended_at) WHERE payload IS NOT NULL;

-- +goose Down
SELECT 'forward only';
