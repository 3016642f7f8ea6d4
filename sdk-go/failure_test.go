package carillon_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestNoErrorStaysNone(t *testing.T) {
	t.Parallel()
	if carillon.Permanent(nil) != nil || carillon.RetryAfter(nil, time.Hour) != nil {
		t.Error("a nil error became one")
	}
	if err := carillon.Permanent(carillon.RetryAfter(errCut, time.Hour)); !errors.Is(err, errCut) || err.Error() != errCut.Error() {
		t.Errorf("got %v, want the error as it was", err)
	}
}

func TestFailSaysWhatTheErrorIs(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("é", 3000))
	for want, err := range map[string]error{
		`{"lease_token":"l","error":"connection reset by peer","retry":true}`:                     errCut,
		`{"lease_token":"l","error":"connection reset by peer","retry":false}`:                    carillon.Permanent(carillon.RetryAfter(errCut, time.Hour)),
		`{"lease_token":"l","error":"connection reset by peer","retry":true,"retry_after":"90s"}`: carillon.RetryAfter(errCut, 89500*time.Millisecond),
		`{"lease_token":"l","error":"failed without an error","retry":true}`:                      nil,
		`{"lease_token":"l","error":"` + strings.Repeat("é", 1024) + `…","retry":true}`:           long,
	} {
		s := &script{}
		if err := s.client(t).Ticks.Fail(t.Context(), "t1", "l", err); err != nil {
			t.Fatal(err)
		}
		if got := s.seen[0].body; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestRetryAfterMayBeADate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(9 * time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
		s := &script{answers: []answer{refused(503, at)}}
		began := time.Now()
		if _, err := s.client(t).Schedules.Get(t.Context(), "w", "k"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("waited %s, want some 9s", took)
		}
	})
}
