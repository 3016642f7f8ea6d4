-- +goose Up
-- What has come to its end is found without looking at all that has not.
CREATE INDEX cohort_exhausted ON cohort (shard, id) WHERE due_at IS NULL AND empty_at IS NULL;
CREATE INDEX member_ended ON member (until_at) WHERE until_at IS NOT NULL;

-- +goose Down
SELECT 'forward only';
