package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workCommand { // a worker that a scenario started
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if err := os.Setenv("PGCONNECT_TIMEOUT", "10"); err != nil { // connecting may take long while other tests run
		panic(err)
	}
	postgrestest.MainNoLeaks(m)
}

// outcome is what a scenario prints with --json.
type outcome struct {
	Name     string             `json:"name"`
	Figures  map[string]float64 `json:"figures"`
	Promises []promise          `json:"promises"`
	Holds    bool               `json:"holds"`
}

// built compiles carillon and returns its path, so that a test of several scenarios compiles it only once.
func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "carillon")
	if err := buildCarillon(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// runs runs a whole scenario, and fails the test if a promise does not hold.
func runs(t *testing.T, args ...string) outcome {
	t.Helper()
	var out bytes.Buffer
	said := &lines{t: t}
	if code := run(t.Context(), append(args, "--json"), &out, said); code == exitNotRun {
		t.Fatal("it could not run")
	}
	var o outcome
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		t.Fatal(err)
	}
	for _, p := range o.Promises {
		if !p.Holds {
			t.Errorf("%s is %v, at most %v", p.Name, p.Value, p.Limit)
		}
	}
	if o.Name != args[0] || !o.Holds {
		t.Errorf("got %s, holds: %v", o.Name, o.Holds)
	}
	t.Logf("%v", o.Figures)
	return o
}

// lines sends what is said to the test's log.
type lines struct{ t *testing.T }

func (l *lines) Write(b []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimRight(b, "\n"))
	return len(b), nil
}

func TestSmoke(t *testing.T) {
	t.Parallel()
	o := runs(t, "smoke", "--scale", "0.2")
	if o.Figures["schedules"] != 2000 || o.Figures["ticks"] < 2400 {
		t.Errorf("got %v schedules and %v ticks", o.Figures["schedules"], o.Figures["ticks"])
	}
}

func TestAnotherWorkerFinishesWhatAKilledOneHeld(t *testing.T) {
	t.Parallel()
	runs(t, "handover", "--scale", "0.03")
}

func TestProgramsSyncOnlyTheirOwnSchedules(t *testing.T) {
	t.Parallel()
	runs(t, "declare", "--scale", "0.02")
}

func TestPair(t *testing.T) {
	t.Parallel()
	o := runs(t, "pair", "--scale", "0.2", "--database-url", postgrestest.EmptyURL(t))
	if o.Figures["ticks"] < 1000 {
		t.Errorf("got %v ticks", o.Figures["ticks"])
	}
}

// The test does not check how fast upserts are, because that depends on the machine.
func TestUpsertsAreMeasured(t *testing.T) {
	t.Parallel()
	program := built(t)
	for scenario, figure := range map[string]string{"upsert": "all_changed_ratio", "single": "changed_ratio", "subjects": "overview_p50_ms"} {
		var out bytes.Buffer
		if code := run(t.Context(), []string{scenario, "--program", program, "--scale", "0.01", "--json", "--database-url", postgrestest.EmptyURL(t)}, &out, &lines{t: t}); code == exitNotRun {
			t.Errorf("%s could not run", scenario)
			continue
		}
		var o outcome
		if err := json.Unmarshal(out.Bytes(), &o); err != nil || o.Figures[figure] <= 0 {
			t.Errorf("%s: got %v, %v", scenario, o.Figures, err)
		}
	}
}

func TestHerdsAreMeasuredAndLoseNothing(t *testing.T) {
	t.Parallel()
	program := built(t)
	for _, scenario := range []string{"herd", "mix", "pull", "push", "grow", "churn"} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if code := run(t.Context(), []string{scenario, "--program", program, "--scale", "0.003", "--json", "--database-url", postgrestest.EmptyURL(t)}, &out, &lines{t: t}); code == exitNotRun {
				t.Fatal("it could not run")
			}
			var o outcome
			if err := json.Unmarshal(out.Bytes(), &o); err != nil {
				t.Fatal(err)
			}
			exact := 0
			for _, p := range o.Promises {
				if p.Limit != 0 {
					continue // how fast it is depends on the machine
				}
				if exact++; !p.Holds {
					t.Errorf("%s is %v", p.Name, p.Value)
				}
			}
			if exact == 0 {
				t.Errorf("it promises nothing exact: %v", o.Promises)
			}
		})
	}
}

// The test does not check how much the statements read, because that depends on other work of the machine.
func TestReadsBesideAnOldSnapshotAreMeasured(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if code := run(t.Context(), []string{"snapshot", "--scale", "0.01", "--for", "20s", "--json"}, &out, &lines{t: t}); code == exitNotRun {
		t.Fatal("it could not run")
	}
	var o outcome
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		t.Fatal(err)
	}
	if o.Figures["ticks"] == 0 || o.Figures["statements_of_ours"] == 0 || o.Figures["river_fetches_at_the_end"] == 0 {
		t.Errorf("got %v", o.Figures)
	}
}

func TestWhatCannotRunIsSaidSo(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"nothing"}, {"smoke", "--scale", "0"}, {"smoke", "--scale", "x"}, {"smoke", "--wrong"}, {"pair", "more"}, {"chaos", "--seed", "x"}, {"chaos", "--program", "/nothing", "--old", "nothing"}} {
		var said bytes.Buffer
		if code := run(t.Context(), args, io.Discard, &said); code != exitNotRun || said.Len() == 0 {
			t.Errorf("%v: got %d: %s", args, code, said.String())
		}
	}
}

func TestTriggersForLaterComeOnceThroughAYear(t *testing.T) {
	t.Parallel()
	o := runs(t, "later", "--program", built(t), "--scale", "0.02", "--database-url", postgrestest.EmptyURL(t))
	if o.Figures["triggers"] != 200 || o.Figures["kills"] < 5 {
		t.Errorf("got %v", o.Figures)
	}
}
