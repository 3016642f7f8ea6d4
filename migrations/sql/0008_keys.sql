-- +goose Up
-- What a key says of its schedules in all workflows, and who follows it: those whose spec names @key as its zone.
CREATE TABLE key_profile (
  tenant_id  int     NOT NULL REFERENCES tenant,
  key        text    COLLATE "C" NOT NULL,
  timezone   text    NOT NULL,
  quiet_from int,
  quiet_to   int,
  quiet_skip boolean,
  version    int     NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  updated_by text    NOT NULL,
  PRIMARY KEY (tenant_id, key),
  CONSTRAINT key_profile_quiet CHECK (
    (quiet_from IS NULL) = (quiet_to IS NULL) AND (quiet_from IS NULL) = (quiet_skip IS NULL)
    AND quiet_from <> quiet_to AND quiet_from BETWEEN 0 AND 86399 AND quiet_to BETWEEN 0 AND 86399)
);
COMMENT ON COLUMN key_profile.quiet_from IS 'of the day, in seconds; quiet_to: the first that is not quiet';

-- A spec is written by the server, its zone first. The column is one of its own, and not an expression of the index, so
-- that an update of the spec that leaves it as it is may be HOT.
ALTER TABLE schedule
  ADD COLUMN by_key    boolean NOT NULL GENERATED ALWAYS AS (starts_with(spec, '{"timezone":"@key"')) STORED,
  ADD COLUMN hashed_as text COLLATE "C";
CREATE INDEX schedule_by_key ON schedule (tenant_id, key) WHERE by_key;
COMMENT ON COLUMN schedule.hashed_as IS 'the key that H and jitter are hashed by where it has another name since: its times stay';
ALTER TABLE revision ADD COLUMN hashed_as text COLLATE "C";

ALTER TABLE schedule_state ADD COLUMN rezoned_at timestamptz;
COMMENT ON COLUMN schedule_state.rezoned_at IS 'when the zone of a schedule that fires once a day was changed: its next tick is left out where it comes too soon';

-- Keys that were erased: that it was done, by whom, and what there was, but not the key.
CREATE TABLE erasure (
  tenant_id    int    NOT NULL REFERENCES tenant,
  id           bigint GENERATED ALWAYS AS IDENTITY,
  key_hash     bytea  NOT NULL,
  erased_by    text   NOT NULL,
  began_at     timestamptz NOT NULL,
  erased_at    timestamptz,
  schedule_ids bigint[] NOT NULL,
  key          text   COLLATE "C",
  profiles     int    NOT NULL DEFAULT 0,
  schedules    int    NOT NULL DEFAULT 0,
  revisions    int    NOT NULL DEFAULT 0,
  ticks        bigint NOT NULL DEFAULT 0,
  attempts     bigint NOT NULL DEFAULT 0,
  answers      bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, id)
);
COMMENT ON COLUMN erasure.key IS 'until all of it is gone';
CREATE INDEX erasure_by_hash ON erasure (tenant_id, key_hash);
CREATE INDEX erasure_pending ON erasure (began_at) WHERE erased_at IS NULL;

-- +goose Down
SELECT 'forward only';
