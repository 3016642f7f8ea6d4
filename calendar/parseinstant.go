package calendar

import (
	"errors"
	"time"
)

var errOffset = errors.New("the offset is not one of -23:59 to +23:59")

// parseInstant parses an RFC 3339 time. Unlike time.Parse it refuses offsets such as +24:00 and +10:60, which the RFC does not allow
// (section 5.6). It is a copy of internal/instant.Parse, because this package imports no other package of the module.
func parseInstant(text string) (time.Time, error) {
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
