package sweep_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// failureLog counts the log lines that hold a text, and keeps when they were written.
type failureLog struct {
	text string

	mu sync.Mutex
	at []time.Time
}

func (f *failureLog) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Contains(line, []byte(f.text)) {
		f.at = append(f.at, time.Now())
	}
	return len(line), nil
}

func (f *failureLog) times() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.at...)
}

func TestAFailingShardIsSweptAgainAfterAPause(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.EverySecond())
	h.Exec(`
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON chunk EXECUTE FUNCTION refuse()`)
	failures := &failureLog{text: "cannot sweep"}
	h.Config.Log = slog.New(slog.NewTextHandler(failures, nil))
	d := h.Process()
	h.Start(d)
	dispatchtest.Until(t, "the sweep has failed four times", func() bool { return len(failures.times()) >= 4 })
	// The pauses between them are 0.2, 0.4 and 0.8 s; a loaded machine adds to them.
	if at := failures.times(); at[3].Sub(at[0]) < 1300*time.Millisecond {
		t.Errorf("four sweeps of a failing shard began within %s", at[3].Sub(at[0]))
	}
	h.Exec(`DROP TRIGGER refuse ON chunk`)
	dispatchtest.Until(t, "the shard is swept", func() bool { return h.Number(`SELECT count(*) FROM tick`) > 0 })
}
