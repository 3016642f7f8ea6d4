package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
)

// checkClock returns an error if the zone of --clock does not exist.
func (s *Session) checkClock(ctx context.Context) error {
	switch name := s.Out.Clock.Name; {
	case name == "schedule", name == "mine", name == "utc", s.API == nil:
		return nil
	default:
		_, err := s.Out.Clock.Zone(ctx, name, s.Env.Now())
		return err
	}
}

// zones caches the transitions of zones that the server has told. Tables ask it, so that this machine's zone data is never used.
type zones struct {
	known map[string]transitions
}

// transitions are the changes of a zone's offset from `from` to `to`.
type transitions struct {
	from, to time.Time
	list     []transition
}

type transition struct {
	At           time.Time `json:"at"`
	Before       string    `json:"before"`
	After        string    `json:"after"`
	Abbreviation string    `json:"abbreviation"`
}

// at returns a location with the offset that a zone has at an instant.
func (z *zones) at(ctx context.Context, client *api.Client, name string, at time.Time) (*time.Location, error) {
	t, known := z.known[name]
	if !known || at.Before(t.from) || at.After(t.to) {
		var err error
		if t, err = ask(ctx, client, name, at); err != nil {
			return nil, err
		}
		if z.known == nil {
			z.known = map[string]transitions{}
		}
		z.known[name] = t
	}
	if len(t.list) == 0 {
		return constant(ctx, client, name)
	}
	offset, abbreviation := "", ""
	for _, change := range t.list {
		if change.At.After(at) {
			if offset == "" {
				offset = change.Before
			}
			break
		}
		offset, abbreviation = change.After, change.Abbreviation
	}
	return fixed(offset, abbreviation)
}

func ask(ctx context.Context, client *api.Client, name string, at time.Time) (transitions, error) {
	t := transitions{from: at.AddDate(-1, 0, 0), to: at.AddDate(1, 0, 0)}
	answer, err := client.Do(ctx, api.Request{
		Path:  api.Path("v1", "zones", name),
		Query: url.Values{"from": {t.from.UTC().Format(time.RFC3339)}, "to": {t.to.UTC().Format(time.RFC3339)}},
	})
	if err != nil {
		return t, err
	}
	var body struct {
		Transitions []transition `json:"transitions"`
	}
	err = json.Unmarshal(answer.Body, &body)
	t.list = body.Transitions
	return t, err
}

// constant returns the offset of a zone whose clock does not change near the instant: it is the current one.
func constant(ctx context.Context, client *api.Client, name string) (*time.Location, error) {
	answer, err := client.Do(ctx, api.Request{Path: api.Path("v1", "zones")})
	if err != nil {
		return nil, err
	}
	var body struct {
		Items []struct {
			Timezone     string `json:"timezone"`
			Offset       string `json:"offset"`
			Abbreviation string `json:"abbreviation"`
		} `json:"items"`
	}
	if err := json.Unmarshal(answer.Body, &body); err != nil {
		return nil, err
	}
	for _, zone := range body.Items {
		if zone.Timezone == name {
			return fixed(zone.Offset, zone.Abbreviation)
		}
	}
	return nil, fmt.Errorf("the server does not list the zone %q", name)
}

// fixed returns a location with one offset, such as -05:00.
func fixed(offset, abbreviation string) (*time.Location, error) {
	t, err := time.Parse("-07:00", offset)
	if err != nil {
		return nil, fmt.Errorf("%q is not an offset", offset)
	}
	_, seconds := t.Zone()
	if strings.Trim(abbreviation, "+-0123456789") == "" {
		abbreviation = "" // some zones have only numbers as abbreviations
	}
	return time.FixedZone(abbreviation, seconds), nil
}
