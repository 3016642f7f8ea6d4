package schedules_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// Whoever comes first: a schedule that begins to follow its key while its profile changes is timed by the profile in the end,
// and one of a key that is erased or renamed meanwhile never follows a profile that is not there.
func TestAScheduleNeverMissesAChangeOfItsKey(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	zones := []string{"Asia/Tokyo", "Europe/Berlin", "America/New_York", "Etc/UTC"}
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		h.putKey(key, subjects.KeyParams{Timezone: zones[0]})
	}
	var wg sync.WaitGroup
	fail := func(err error, codes ...string) {
		for _, code := range codes {
			if err == nil || strings.Contains(fmt.Sprintf("%+v", err), code) {
				return
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	for n := range 12 {
		workflow, key := fmt.Sprintf("w%d", n), keys[n%len(keys)]
		wg.Go(func() {
			for i := range 6 {
				p := following(fmt.Sprintf("%d 8 * * *", i))
				if i%3 == 2 {
					p.Spec.Timezone = "Asia/Kathmandu"
				}
				_, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: workflow, Key: key}, p, "ann", version.Precondition{})
				fail(err, "no profile")
				lines := fmt.Sprintf(`{"workflow":"bulk%d","key":%q,"spec":{"timezone":"@key","cron":["%d 9 * * *"]}}`, n, key, i)
				_, err = h.inBulk.Upsert(t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(lines)), func([]bulk.Result) error { return nil })
				fail(err)
			}
		})
	}
	for n, key := range keys {
		wg.Go(func() {
			for i := range 12 {
				_, _, _, err := h.subjects.PutKey(t.Context(), h.acme, key, subjects.KeyParams{Timezone: zones[(i+n)%len(zones)]}, "ann", version.Precondition{})
				fail(err)
			}
		})
	}
	wg.Go(func() {
		_, err := h.subjects.Erase(t.Context(), h.acme, keys[0], "ann", version.Precondition{})
		fail(err)
	})
	wg.Go(func() {
		_, _, err := h.subjects.Rename(t.Context(), h.acme, keys[1], subjects.RenameParams{To: "renamed"}, once.Request{})
		fail(err)
	})
	wg.Wait()
	rows, err := h.pool.Query(t.Context(), `
		SELECT s.workflow || '/' || s.key, COALESCE(kp.timezone, ''), COALESCE(c.timing, '')
		FROM schedule s
		LEFT JOIN key_profile kp ON kp.tenant_id = s.tenant_id AND kp.key = s.key
		LEFT JOIN cohort_timing c ON c.tenant_id = s.tenant_id AND c.shard = s.shard AND c.id = s.cohort_id
		WHERE s.by_key`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var name, zone, timing string
		if err := rows.Scan(&name, &zone, &timing); err != nil {
			t.Fatal(err)
		}
		n++
		timed, err := calendar.FromCanonical([]byte(timing), calendar.Context{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if timed.Zone() != zone {
			t.Errorf("%s is timed in %s, its key's zone is %s", name, timed.Zone(), zone)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("nothing follows a key")
	}
	if left := one[int](h, `SELECT count(*)::int FROM member m WHERE NOT EXISTS (SELECT FROM schedule s WHERE s.id = m.schedule_id AND s.cohort_id = m.cohort_id)`); left != 0 {
		t.Errorf("%d members of nobody", left)
	}
}
