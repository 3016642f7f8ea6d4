package carillon_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

var daily = carillon.Cron("0 8 * * *")

func TestListAsksPageByPage(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{
		{status: 200, body: `{"items":[{"key":"a"},{"key":"b"}],"next_cursor":"c1"}`},
		{status: 200, body: `{"items":[{"key":"c"}],"next_cursor":null}`},
	}}
	var keys []string
	for item, err := range s.client(t).Schedules.List(t.Context(), carillon.Filter{Workflow: "w", Label: "plan:pro", PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, item.Key)
	}
	if !slices.Equal(keys, []string{"a", "b", "c"}) {
		t.Errorf("got %v", keys)
	}
	if got, want := s.seen[1].URL.RawQuery, "cursor=c1&label=plan%3Apro&limit=2&workflow=w"; got != want {
		t.Errorf("got query %s, want %s", got, want)
	}
}

func TestListStopsWhenTheLoopDoes(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{{status: 200, body: `{"items":[{"key":"a"},{"key":"b"}],"next_cursor":"c1"}`}}}
	for range s.client(t).Schedules.List(t.Context(), carillon.Filter{}) {
		break
	}
	if len(s.seen) != 1 {
		t.Errorf("got %d requests, want 1", len(s.seen))
	}
}

func TestListErrorComesOnceAndEndsTheLoop(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{{status: 200, body: `{"items":[{"key":"a"}],"next_cursor":"c1"}`}, refused(403, "")}}
	list := s.client(t).Schedules.List(t.Context(), carillon.Filter{})
	var seen []string
	for item, err := range list {
		seen = append(seen, fmt.Sprint(item.Key, errors.Is(err, carillon.ErrForbidden)))
	}
	if !slices.Equal(seen, []string{"afalse", "true"}) {
		t.Errorf("got %v", seen)
	}
	for item := range list { // a list can be walked again, from its start
		if item.Key == "" && len(s.seen) < 3 {
			t.Error("the second walk asked nothing")
		}
	}
}
