package calendar

import (
	"errors"
	"time"
)

var errOffset = errors.New("the offset is not one of -23:59 to +23:59")

// parseInstant reads an RFC 3339 instant. Unlike time.Parse it refuses the offsets +24:00 and +10:60, which the RFC does not
// have (section 5.6). It is written here as well as in internal/instant, since this package imports nothing of ours.
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
