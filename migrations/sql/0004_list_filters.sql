-- +goose Up
-- What a list by label walks: one row a label of a schedule, kept by triggers, so that no writer can forget it.
CREATE TABLE label (
  tenant_id int  NOT NULL,
  name      text COLLATE "C" NOT NULL,
  value     text COLLATE "C" NOT NULL,
  workflow  text COLLATE "C" NOT NULL,
  key       text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant_id, name, value, workflow, key)
);

-- +goose StatementBegin
CREATE FUNCTION schedule_labelled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    DELETE FROM label l
    USING jsonb_each_text(OLD.labels) o
    WHERE l.tenant_id = OLD.tenant_id AND l.name = o.key AND l.value = o.value AND l.workflow = OLD.workflow AND l.key = OLD.key;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO label (tenant_id, name, value, workflow, key)
    SELECT NEW.tenant_id, n.key, n.value, NEW.workflow, NEW.key
    FROM jsonb_each_text(NEW.labels) n;
  END IF;
  RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER schedule_labels_made AFTER INSERT ON schedule
  FOR EACH ROW WHEN (NEW.labels <> '{}') EXECUTE FUNCTION schedule_labelled();
CREATE TRIGGER schedule_labels_changed AFTER UPDATE ON schedule
  FOR EACH ROW WHEN (OLD.labels <> NEW.labels OR OLD.labels <> '{}' AND (OLD.workflow, OLD.key) <> (NEW.workflow, NEW.key))
  EXECUTE FUNCTION schedule_labelled();
CREATE TRIGGER schedule_labels_gone AFTER DELETE ON schedule
  FOR EACH ROW WHEN (OLD.labels <> '{}') EXECUTE FUNCTION schedule_labelled();
INSERT INTO label (tenant_id, name, value, workflow, key)
SELECT s.tenant_id, n.key, n.value, s.workflow, s.key
FROM schedule s, jsonb_each_text(s.labels) n;

-- A list in due order is cut between cohorts of the same time.
DROP INDEX cohort_next;
CREATE INDEX cohort_next ON cohort (tenant_id, next_at, id) WHERE next_at IS NOT NULL;

-- +goose Down
SELECT 'forward only';
