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

-- A firing of a schedule writes its state anew: the fewer bytes of it change, and the nearer they lie, the less is logged, and
-- the more versions fit on the page: a herd fires all of a page's at once, so that there is room for each twice. What a timed tick that is handed out says by its time alone is null.
CREATE TABLE narrow_state (
  schedule_id   bigint NOT NULL,
  tenant_id     int    NOT NULL,
  live          int    NOT NULL DEFAULT 0,
  occurrence    int    NOT NULL DEFAULT 0,
  fired         int    NOT NULL DEFAULT 0,
  succeeded     int    NOT NULL DEFAULT 0,
  failures      int    NOT NULL DEFAULT 0,
  last_at       timestamptz,
  prev_at       timestamptz,
  seen_at       timestamptz,
  live_at       timestamptz,
  last_tick_at  timestamptz,
  delay_at      timestamptz,
  rezoned_at    timestamptz,
  live_seq      int,
  last_seq      int,
  delay_left    int,
  waiting       int    NOT NULL DEFAULT 0,
  aside         int    NOT NULL DEFAULT 0,
  aside_waiting int    NOT NULL DEFAULT 0,
  manual        int    NOT NULL DEFAULT 0,
  failed        int    NOT NULL DEFAULT 0,
  skipped       int    NOT NULL DEFAULT 0,
  missed        int    NOT NULL DEFAULT 0,
  fate          smallint NOT NULL DEFAULT 0,
  skips         timestamptz[]
) WITH (fillfactor = 45);
INSERT INTO narrow_state (schedule_id, tenant_id, live, occurrence, fired, succeeded, failures, last_at, prev_at, seen_at, live_at, last_tick_at,
  delay_at, rezoned_at, live_seq, last_seq, delay_left, waiting, aside, aside_waiting, manual, failed, skipped, missed, fate, skips)
SELECT schedule_id, tenant_id, live, occurrence, fired, succeeded, failures, last_at, prev_at, NULLIF(seen_at, last_at),
  CASE WHEN (live_at, live_seq) IS DISTINCT FROM (last_at, 0) THEN live_at END,
  CASE WHEN (last_tick_at, last_seq) IS DISTINCT FROM (seen_at, 0) THEN last_tick_at END,
  delay_at, rezoned_at,
  CASE WHEN (live_at, live_seq) IS DISTINCT FROM (last_at, 0) THEN live_seq END,
  CASE WHEN (last_tick_at, last_seq) IS DISTINCT FROM (seen_at, 0) THEN last_seq END,
  delay_left, waiting, aside, aside_waiting, manual, failed, skipped, missed, fate, skips
FROM schedule_state
ORDER BY tenant_id, schedule_id;
DROP TABLE schedule_state;
ALTER TABLE narrow_state RENAME TO schedule_state;
ALTER TABLE schedule_state ADD PRIMARY KEY (tenant_id, schedule_id);
CREATE TRIGGER schedule_made AFTER INSERT ON schedule_state
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION schedule_tallied();
CREATE TRIGGER schedule_gone AFTER DELETE ON schedule_state
  REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION schedule_tallied();
COMMENT ON COLUMN schedule_state.last_at IS 'nominal time of the last tick of the sequence that was handed out';
COMMENT ON COLUMN schedule_state.seen_at IS 'nominal time of the last tick of the sequence that was recorded; null: it was handed out, at last_at';
COMMENT ON COLUMN schedule_state.last_tick_at IS 'with last_seq: the tick recorded last, of whatever cause; null: the last of the sequence';
COMMENT ON COLUMN schedule_state.live IS 'ticks running or waiting for a retry; waiting: those that wait for them to end';
COMMENT ON COLUMN schedule_state.live_at IS 'with live_seq: the tick handed out last, of whatever cause; null: that at last_at';
COMMENT ON COLUMN schedule_state.fate IS 'what became of the tick decided last: 0 handed out, 1 waits, 2 skipped';
COMMENT ON COLUMN schedule_state.rezoned_at IS 'when the zone of a schedule that fires once a day was changed: its next tick is left out where it comes too soon';
COMMENT ON COLUMN schedule_state.delay_at IS 'of fixed_delay: nominal time of the tick that was swept and has not ended';
COMMENT ON COLUMN schedule_state.delay_left IS 'of fixed_delay: how many ticks are left; null: no limit, 0: it is over';
COMMENT ON COLUMN schedule_state.aside IS 'ticks under way that are a backfill''s or delivered again: they are not counted in live; aside_waiting: those of them that wait';

-- +goose Down
SELECT 'forward only';
