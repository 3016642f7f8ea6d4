package carillon

import (
	"net/url"
	"strconv"
	"time"
)

// query builds a query string from values that are not empty.
type query url.Values

func (q query) text(name, value string) {
	if value != "" {
		q[name] = []string{value}
	}
}

func (q query) number(name string, value int) {
	if value != 0 {
		q.text(name, strconv.Itoa(value))
	}
}

func (q query) time(name string, value time.Time) {
	if !value.IsZero() {
		q.text(name, value.UTC().Format(time.RFC3339Nano))
	}
}

func (q query) flag(name string, value bool) {
	if value {
		q.text(name, "true")
	}
}

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) *T { return &v }
