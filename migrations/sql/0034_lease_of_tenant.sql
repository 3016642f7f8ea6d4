-- +goose Up
-- How many ticks a tenant's workers hold is asked by each poll. It reads the tenant's live leases and no others. The count is not in the
-- index: it changes with each result, in place.
CREATE INDEX lease_of_tenant ON lease (tenant_id, until_at);
