// Package instant parses the RFC 3339 times of clients, and converts times to UTC for answers. It uses no table and no lock.
package instant

import (
	"errors"
	"time"
)

var errOffset = errors.New("the offset is not one of -23:59 to +23:59")

// Parse reads an RFC 3339 time. Unlike time.Parse it refuses offsets beyond 23:59, which the RFC does not allow.
func Parse(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || text[len(text)-1] == 'Z' {
		return at, err
	}
	offset := text[len(text)-len("07:00"):]
	if offset[:2] > "23" || offset[3:] > "59" {
		return time.Time{}, errOffset
	}
	return at, nil
}

// UTC returns a copy of a time in UTC; nil stays nil.
func UTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}
