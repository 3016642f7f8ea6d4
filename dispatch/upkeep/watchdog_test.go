package upkeep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

// gauges are what a registry tells now, by name, and label where there is one.
func gauges(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetGauge().GetValue()
		}
	}
	return all
}

func TestWatchdogFindsWhatIsStuck(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	r := prometheus.NewRegistry()
	h.Config.Metrics = dispatch.NewMetrics(r)
	look := h.Process().Watchdog()
	now := time.Now()
	see := func(after time.Duration) map[string]float64 {
		t.Helper()
		if err := look(t.Context(), now.Add(after)); err != nil {
			t.Fatal(err)
		}
		return gauges(t, r)
	}
	names := []string{
		"carillon_overdue_seconds cohort", "carillon_overdue_seconds delayed", "carillon_overdue_seconds turn",
		"carillon_unopened_chunk_seconds", "carillon_schedules_without_next", "carillon_schedules_quarantined",
	}
	for i := range 6 {
		p := dispatchtest.Rarely("skip")
		p.Spec.Cron[0] = fmt.Sprint(i, " 0 1 1 *")
		h.Put("w", fmt.Sprint("k", i), p)
	}
	h.Put("w", "waits", dispatchtest.Delay("1h"))
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL WHERE delay`)
	h.Exec(`UPDATE schedule_state st SET delay_at = now() FROM schedule s WHERE s.id = st.schedule_id AND s.key = 'waits'`) // its tick runs
	see(0)
	got := see(time.Hour)
	for _, name := range names {
		if got[name] != 0 {
			t.Errorf("while all is well, %s is %v", name, got[name])
		}
	}
	if at := got["carillon_watched_timestamp_seconds"]; at != float64(now.Add(time.Hour).Unix()) {
		t.Errorf("it looked last at %v", at)
	}

	of := func(i int) string { return fmt.Sprintf(`(SELECT cohort_id FROM schedule WHERE key = 'k%d')`, i) }
	h.Exec(`UPDATE cohort SET due_at = now() - interval '100 seconds' WHERE id = ` + of(0))
	h.Exec(`INSERT INTO delayed (tenant_id, schedule_id, nominal_at, seq, attempt, shard, why, due_at) VALUES ($1, 1, now(), 0, 1, 63, 'retry', now() - interval '200 seconds')`, h.Tenant)
	h.Exec(`INSERT INTO fair_turn (tenant_id, shard, due_at) VALUES ($1, 0, now() - interval '300 seconds')`, h.Tenant)
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at)
		VALUES (0, $1, 0, 'small', now(), 1, 1, 1, '{w}', '\x00', now() - interval '400 seconds')`, h.Tenant)
	h.Exec(`UPDATE schedule SET status = 'quarantined', cohort_id = NULL WHERE key = 'k1'`)
	h.Exec(`UPDATE cohort SET due_at = NULL, next_at = NULL WHERE id = ` + of(2))
	h.Exec(`DELETE FROM member WHERE cohort_id = ` + of(3))
	h.Exec(`UPDATE schedule SET cohort_id = NULL WHERE key = 'k4'`)
	h.Exec(`DELETE FROM cohort WHERE id = ` + of(5))
	h.Exec(`UPDATE schedule_state st SET delay_at = NULL FROM schedule s WHERE s.id = st.schedule_id AND s.key = 'waits'`) // nobody would arm it
	got = see(2 * time.Hour)
	for i, name := range names[:4] {
		if least := float64(100 * (i + 1)); got[name] < least || got[name] > least+99 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	if got[names[4]] != 3 || got[names[5]] != 1 {
		t.Errorf("without a next time %v, quarantined %v; want 3 at once, and 1", got[names[4]], got[names[5]])
	}
	if got = see(2*time.Hour + 3*time.Minute); got[names[4]] != 5 {
		t.Errorf("without a next time for two minutes: %v, want 5", got[names[4]])
	}
	h.Exec(`UPDATE schedule SET status = 'completed', cohort_id = NULL WHERE status = 'active'`)
	if got = see(3 * time.Hour); got[names[4]] != 0 {
		t.Errorf("without a next time: %v of none that is active", got[names[4]])
	}
}
