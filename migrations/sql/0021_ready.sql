-- +goose Up
-- Ticks that wait for workers lie in rows of up to a hundred: a row for each cost a herd nearly as much as its record.
ALTER TABLE ready
  ADD COLUMN ticks int   NOT NULL DEFAULT 1,
  ADD COLUMN taken int   NOT NULL DEFAULT 0,
  ADD COLUMN items bytea;

-- +goose StatementBegin
CREATE FUNCTION pg_temp.uvarint(n bigint) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
  b bytea := '';
BEGIN
  WHILE n > 127 LOOP
    b := b || set_byte('\x00'::bytea, 0, (n & 127)::int | 128);
    n := n >> 7;
  END LOOP;
  RETURN b || set_byte('\x00'::bytea, 0, n::int);
END
$$;
-- +goose StatementEnd
UPDATE ready
SET items = pg_temp.uvarint(schedule_id << 2) || pg_temp.uvarint(extract(epoch FROM nominal_at)::bigint << 1) || pg_temp.uvarint(seq) || pg_temp.uvarint(attempt);
DROP FUNCTION pg_temp.uvarint(bigint);

ALTER TABLE ready
  ALTER COLUMN items SET NOT NULL,
  ALTER COLUMN ticks DROP DEFAULT,
  DROP COLUMN schedule_id,
  DROP COLUMN nominal_at,
  DROP COLUMN seq,
  DROP COLUMN attempt,
  ADD CONSTRAINT ready_left CHECK (taken >= 0 AND taken < ticks),
  SET (fillfactor = 85);
COMMENT ON COLUMN ready.items IS 'keys of ticks with their attempts, packed as varint deltas; the first of them, as many as are taken, have been leased';

-- +goose Down
SELECT 'forward only';
