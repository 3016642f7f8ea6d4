package events_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/cmd/carillon/cli/events"
)

func read(t *testing.T, r io.Reader) (list []events.Event, failed error) {
	t.Helper()
	for e, err := range events.Read(r) {
		if err != nil {
			return list, err
		}
		list = append(list, e)
	}
	return list, nil
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []events.Event
	}{
		"nothing":              {"", nil},
		"a comment":            {": alive\n\n", nil},
		"one":                  {"event: tick\nid: 7\ndata: {}\n\n", []events.Event{{"tick", "7", "{}"}}},
		"the id stays":         {"id: 7\ndata: a\n\ndata: b\n\n", []events.Event{{"message", "7", "a"}, {"message", "7", "b"}}},
		"lines of data":        {"data: a\ndata\ndata:b\n\n", []events.Event{{"message", "", "a\n\nb"}}},
		"CR and CRLF":          {"event:x\r\ndata:1\r\r\ndata:2\r\n\r\n", []events.Event{{"x", "", "1"}, {"message", "", "2"}}},
		"without data":         {"event: x\n\ndata: 1\n\n", []events.Event{{"message", "", "1"}}},
		"cut off":              {"data: 1\n\ndata: 2\n", []events.Event{{"message", "", "1"}}},
		"only one blank":       {"data:  1\n\n", []events.Event{{"message", "", " 1"}}},
		"unknown fields":       {"retry: 3\nfoo: bar\ndata: 1\n\n", []events.Event{{"message", "", "1"}}},
		"an id with a NUL":     {"id: 1\ndata: a\n\nid: \x00\ndata: b\n\n", []events.Event{{"message", "1", "a"}, {"message", "1", "b"}}},
		"data that is nothing": {"data\n\n", []events.Event{{"message", "", ""}}},
	} {
		if got, err := read(t, strings.NewReader(c.text)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// An event is returned when it is complete, even if the stream then pauses.
func TestAnEventIsNotHeldBack(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer r.Close()
	go w.Write([]byte("data: 1\r\r")) // it returns when the reader is closed
	for e, err := range events.Read(r) {
		if err != nil || e.Data != "1" {
			t.Errorf("got %v, %v", e, err)
		}
		break
	}
}

func TestABrokenStreamIsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r, w := io.Pipe()
	go func() {
		w.Write([]byte("data: 1\n\nda")) // the reader gets it before the error
		w.CloseWithError(broken)
	}()
	if got, err := read(t, r); len(got) != 1 || !errors.Is(err, broken) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := read(t, strings.NewReader("data: "+strings.Repeat("x", 2<<20))); err == nil || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("a long line: got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("event: tick\r\nid: 7\ndata: {}\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		for e, err := range events.Read(strings.NewReader(text)) {
			if err == nil && (e.Name == "" || strings.ContainsAny(e.Name+e.ID, "\r\n")) {
				t.Fatalf("%q: got %q", text, e)
			}
		}
	})
}
