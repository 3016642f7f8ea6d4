package carillon

import (
	"context"
	"time"
)

// Zones are the time zones by which the server times schedules. Their data may be newer than those of this machine.
type Zones struct{ c *Client }

// ZoneList holds all zones, by name.
type ZoneList struct {
	TZData string `json:"tzdata"` // version of the time zone data
	Items  []Zone `json:"items"`
}

// Zone is a time zone as it is now.
type Zone struct {
	Timezone     string      `json:"timezone"` // the IANA name
	Offset       string      `json:"offset"`   // from UTC, such as "+05:45"
	Abbreviation string      `json:"abbreviation"`
	NextChange   *ZoneChange `json:"next_change"` // nil: the rules have none
}

// ZoneChange is a change of a zone's offset.
type ZoneChange struct {
	At     time.Time `json:"at"`
	Offset string    `json:"offset"` // from then on
}

// ZoneTransitions are the changes of a zone's clock in a time.
type ZoneTransitions struct {
	Timezone    string           `json:"timezone"`
	TZData      string           `json:"tzdata"`
	Transitions []ZoneTransition `json:"transitions"`
}

// ZoneTransition is a moment at which the offset or the abbreviation of a zone changes.
type ZoneTransition struct {
	At           time.Time `json:"at"`
	Before       string    `json:"before"` // the offset until then
	After        string    `json:"after"`  // the offset from then on
	Abbreviation string    `json:"abbreviation"`
}

// List returns all zones with their offsets now.
func (z Zones) List(ctx context.Context) (ZoneList, error) {
	return get[ZoneList](ctx, z.c, path("zones"), nil)
}

// Get returns the changes of a zone's clock from one moment on and before another. Zero times stand for now, and for five years later.
func (z Zones) Get(ctx context.Context, timezone string, from, to time.Time) (ZoneTransitions, error) {
	q := query{}
	q.time("from", from)
	q.time("to", to)
	return get[ZoneTransitions](ctx, z.c, path("zones", timezone), q)
}
