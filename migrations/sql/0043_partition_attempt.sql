-- +goose Up
-- A change of the days' partitions takes short locks that no query may pass. One process tries it at a time, and after an
-- attempt that found a table in use no process tries again for some minutes.
CREATE TABLE partition_attempt (
  what    text PRIMARY KEY CONSTRAINT partition_attempt_what CHECK (what IN ('create', 'drop')),
  next_at timestamptz NOT NULL
);
COMMENT ON TABLE partition_attempt IS 'when a process may next try to create or to drop partitions of the record';
COMMENT ON COLUMN partition_attempt.next_at IS 'a process that begins an attempt moves it some minutes ahead; one that succeeds sets it to -infinity';
INSERT INTO partition_attempt (what, next_at) VALUES ('create', '-infinity'), ('drop', '-infinity');

-- +goose Down
SELECT 'forward only';
