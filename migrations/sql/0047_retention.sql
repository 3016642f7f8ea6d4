-- +goose Up
-- Retention finds the few workflows with terms of their own without reading all of them, and the revisions of a tenant by
-- their age. Of the block range index of all tenants' revisions a part was read for each tenant.
CREATE INDEX workflow_keeps ON workflow (tenant_id, name) WHERE defaults #> '{delivery,retention}' IS NOT NULL;
DROP INDEX revision_ended;
CREATE INDEX revision_ended ON revision (tenant_id, ended_at);

-- +goose Down
SELECT 'forward only';
