package schedules

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillonhq/carillon/schedules/policy"
)

// stored is what tells whether a line says what is stored. Its texts last until the next row.
type stored struct {
	id      int64
	shard   int16
	status  string
	pausing bool // only until a moment
	spec    pgtype.DriverBytes
	payload pgtype.DriverBytes
	labels  pgtype.DriverBytes
	note    *string
	terms   policy.Stored
}

// placeColumns say where a schedule is stored, and storedColumns also what.
const (
	placeColumns  = `id, shard`
	storedColumns = placeColumns + `, status, paused_until IS NOT NULL, spec, payload, labels::text, note, ` + termColumns
)

func (s *stored) place() []any { return s.fields()[:2] }

func (s *stored) fields() []any {
	t := &s.terms
	return []any{
		&s.id, &s.shard, &s.status, &s.pausing, &s.spec, &s.payload, &s.labels, &s.note,
		&t.Overlap, &t.Missed, &t.MaxLateness, &t.OnExpired, &t.PauseAfterFailures, &t.Queue, &t.Priority, &t.Timeout, &t.MaxAttempts, &t.KeepSucceeded, &t.KeepFailed,
	}
}

// says tells whether a definition, put again, changes nothing. Known are labels by their text, as far as they were read.
func (s *stored) says(d definition, known map[string]map[string]string) (bool, error) {
	labels, ok := known[string(s.labels)]
	if !ok {
		if err := json.Unmarshal(s.labels, &labels); err != nil {
			return false, fmt.Errorf("labels of schedule %d: %w", s.id, err)
		}
		keep(known, string(s.labels), labels)
	}
	return string(s.spec) == d.specText && (s.payload == nil) == (d.payload == nil) && (d.payload == nil || string(s.payload) == *d.payload) &&
		maps.Equal(labels, d.labels) && (d.note == nil && !d.noteless || policy.Same(d.note, s.note)) && s.terms.Equal(d.terms) &&
		(s.status == Active || s.status == Paused && !s.pausing) && (d.status == "" || d.status == s.status), nil
}
