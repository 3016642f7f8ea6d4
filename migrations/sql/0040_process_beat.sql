-- +goose Up
-- Processes are found by their last beats: while an old snapshot is open, the table keeps a dead row of each beat. The key holds the
-- beat too, as each beat would else be compared with all earlier ones of its process.
ALTER TABLE process DROP CONSTRAINT process_pkey, ADD PRIMARY KEY (id, beat_at);
CREATE INDEX process_beat ON process (beat_at);

-- +goose Down
SELECT 'forward only';
