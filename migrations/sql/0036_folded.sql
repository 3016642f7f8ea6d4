-- +goose Up
-- Rows that are appended and soon folded say in which transaction they were appended. What folds them remembers a transaction
-- before which no row is left. So nobody reads the rows that are gone, which an old snapshot keeps in the table.
CREATE TABLE folded (
  source text PRIMARY KEY CONSTRAINT folded_source CHECK (source IN ('tally_delta', 'idle_delta', 'daily_use_delta', 'happening')),
  before xid8 NOT NULL,
  at     timestamptz NOT NULL
);
COMMENT ON TABLE folded IS 'how far tables of appended rows are folded: no row is left of a transaction with a lower number';
COMMENT ON COLUMN folded.at IS 'when it was last moved: once a minute, as each move leaves a dead row here';
INSERT INTO folded (source, before, at)
SELECT s, '0', '-infinity' FROM unnest(ARRAY['tally_delta', 'idle_delta', 'daily_use_delta', 'happening']) s;

ALTER TABLE tally_delta ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE idle_delta ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE daily_use_delta ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE happening ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX tally_delta_xact ON tally_delta (xact);
CREATE INDEX idle_delta_xact ON idle_delta (xact);
CREATE INDEX daily_use_delta_xact ON daily_use_delta (xact);
CREATE INDEX happening_xact ON happening (xact);

-- +goose Down
SELECT 'forward only';
