package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestReportSaysWhichPromiseIsBroken(t *testing.T) {
	t.Parallel()
	r := &report{name: "sample"}
	r.figure("ticks", 12)
	r.figure("seconds", 1.23456)
	r.atMost("lost", 0, 0)
	if !r.holds() {
		t.Error("it does not hold")
	}
	r.atMost("take_over_ms", 10_000.5, 10_000)
	if r.holds() {
		t.Error("it holds")
	}
	var asJSON, table bytes.Buffer
	if err := r.write(&asJSON, true); err != nil {
		t.Fatal(err)
	}
	want := `{"name":"sample","figures":{"seconds":1.235,"ticks":12},"promises":[{"name":"lost","value":0,"limit":0,"holds":true},{"name":"take_over_ms","value":10000.5,"limit":10000,"holds":false}],"holds":false}`
	if got := strings.TrimSpace(asJSON.String()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := r.write(&table, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sample", "ticks", "1.235", "take_over_ms", "BROKEN", "holds"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %s:\n%s", want, table.String())
		}
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for p, want := range map[float64]time.Duration{0.5: 50, 0.99: 99, 1: 100, 0.001: 1} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("%v: got %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("got %d of none", got)
	}
}
