package bulk_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// atEnd is a body that calls a function at its end.
type atEnd struct {
	io.Reader
	call func()
}

func (a atEnd) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		a.call()
	}
	return n, err
}

func (atEnd) Close() error { return nil }

// loseSyncs makes the database forget all syncs, as a crash does.
func loseSyncs(h *schedulestest.Fixture) { h.Exec(`TRUNCATE sync, sync_line RESTART IDENTITY`) }

func TestSyncWhoseStagingIsLostChangesNothing(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	for _, body := range []string{"", strings.Repeat(schedulestest.DailyLine("b")+schedulestest.DailyLine("c"), 600)} {
		_, _, err := h.SyncBulk(bulk.SyncParams{Workflow: "w", Unlisted: "delete"}, atEnd{strings.NewReader(body), func() { loseSyncs(h) }})
		schedulestest.WantFault(t, err, 503, "unavailable")
	}
	if got := h.Stored(); got != "w a 1 active" {
		t.Errorf("got %s", got)
	}
}

// After a crash of the database another sync of the tenant gets the same number. Neither sync uses the lines of the other.
func TestSyncWhoseNumberIsAnothersChangesNothing(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	p := bulk.SyncParams{Workflow: "w", Unlisted: "delete"}
	lost, begun, goOn := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		var body strings.Builder
		for i := range 1200 {
			body.WriteString(schedulestest.DailyLine(fmt.Sprint("b", i)))
		}
		_, _, err := h.SyncBulk(p, atEnd{strings.NewReader(body.String()), func() { close(begun); <-goOn }})
		lost <- err
	}()
	<-begun
	loseSyncs(h)
	results, sum, err := h.SyncBulk(p, atEnd{strings.NewReader(schedulestest.DailyLine("c")), func() {
		if n := schedulestest.One[int](h, `SELECT max(id)::int FROM sync`); n != 1 {
			t.Errorf("the second sync has number %d", n)
		}
		close(goOn)
		schedulestest.WantFault(t, <-lost, 503, "unavailable")
		if got := h.Stored(); got != "w a 1 active" {
			t.Errorf("got %s", got)
		}
	}})
	if err != nil || len(results) != 1 || sum != summary(1, 0, 0, 0, 0, 1) {
		t.Errorf("the second sync: got %+v %+v %v", results, sum, err)
	}
	if got := h.Stored(); got != "w c 1 active" {
		t.Errorf("got %s", got)
	}
}
