package cohorts

import (
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// Moved is a nominal time that a client moved: At is what the spec names, To when its tick comes instead.
type Moved struct {
	At      time.Time `json:"at"`
	To      time.Time `json:"to"`
	MovedAt time.Time `json:"moved_at"`
	By      string    `json:"by"`
}

// Shifts returns the moves in the form that a timing takes.
func Shifts(moves []Moved) []calendar.Move {
	shifts := make([]calendar.Move, len(moves))
	for i, m := range moves {
		shifts[i] = calendar.Move{At: m.At, To: m.To}
	}
	return shifts
}

// Ahead reports whether the move concerns a coming tick.
func (m Moved) Ahead(now time.Time) bool { return m.At.After(now) || m.To.After(now) }
