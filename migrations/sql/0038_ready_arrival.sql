-- +goose Up
-- Who looks for ready ticks reads those that came since the last look, by their numbers: while an old snapshot is open, the primary
-- key keeps an entry of each row that was used up since.
CREATE INDEX ready_arrival ON ready (tenant_id, workflow, id) INCLUDE (queue, priority);

-- +goose Down
SELECT 'forward only';
