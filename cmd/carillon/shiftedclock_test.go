package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/postgres/shiftedclock"
)

// shifted is a `carillon dev` with a database clock that a test puts forward.
type shifted struct {
	running
	pool *pgxpool.Pool
	now  time.Time
}

// startShifted starts a server whose clock shows at, a moment to come: the clock only goes forward, and history hides ticks by the real one.
func startShifted(t *testing.T, at time.Time) *shifted {
	t.Helper()
	raw := postgrestest.URL(t)
	open := func(url string) *pgxpool.Pool {
		pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConns: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	if err := shiftedclock.Install(t.Context(), open(raw)); err != nil {
		t.Fatal(err)
	}
	u, err := shiftedclock.URL(raw)
	if err != nil {
		t.Fatal(err)
	}
	s := &shifted{running: start(t, "--database-url", u, "--yes", "--no-demo"), pool: open(u), now: time.Now()}
	s.forward(t, at)
	return s
}

// forward sets the clock to a moment. The processes stay alive: their beats move with the clock.
func (s *shifted) forward(t *testing.T, to time.Time) {
	t.Helper()
	if err := shiftedclock.Forward(t.Context(), s.pool, to.Sub(s.now)); err != nil {
		t.Fatal(err)
	}
	s.now = to
}

// settle waits until all due ticks have fired.
func (s *shifted) settle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(inTime); ; <-time.After(10 * time.Millisecond) {
		due, err := shiftedclock.Due(t.Context(), s.pool)
		if err != nil {
			t.Fatal(err)
		}
		if !due {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("at %s something is due and does not fire: %s", s.now, shiftedclock.Waiting(t.Context(), s.pool))
		}
	}
}

// put makes a schedule of workflow dst, whose ticks all fire, however many are due at once.
func (s *shifted) put(t *testing.T, key, zone, cron string) {
	t.Helper()
	body := fmt.Sprintf(`{"spec": {"timezone": %q, "cron": [%q]}, "policy": {"missed": "all", "overlap": "allow_all"}}`, zone, cron)
	if status, text := call(t, http.MethodPut, s.URL+"/v1/workflows/dst/schedules/"+key, s.Token, body); status != http.StatusCreated {
		t.Fatalf("%s: %d: %s", key, status, text)
	}
}

// fired returns the nominal times of a schedule's ticks between two moments, as the API lists them, oldest first.
func (s *shifted) fired(t *testing.T, key string) (all []time.Time) {
	t.Helper()
	for query := "?limit=1000"; ; {
		status, text := call(t, http.MethodGet, s.URL+"/v1/workflows/dst/schedules/"+key+"/ticks"+query, s.Token, "")
		var page struct {
			Items []struct {
				Timestamp time.Time
				State     string
			}
			NextCursor string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d, %v: %s", key, status, err, text)
		}
		for _, one := range page.Items {
			if one.State == "skipped" {
				t.Errorf("%s: the tick of %s is skipped", key, one.Timestamp)
			}
			all = append(all, one.Timestamp)
		}
		if page.NextCursor == "" {
			slices.SortFunc(all, time.Time.Compare)
			return all
		}
		query = "?limit=1000&cursor=" + url.QueryEscape(page.NextCursor)
	}
}

// wall returns the instants after `after`, and up to upto, at which the clock of a zone shows a time of the day. If hour is -1, this is
// the minute of every hour. Otherwise it is one time a day: if the clock shows the time twice, wall returns the first instant; if the
// clock skips the time, wall returns the instant at which the clock would show it with the offset from before the change. It asks the
// standard library for each minute, and does not use package calendar.
func wall(zone *time.Location, after, upto time.Time, hour, minute int) (all []time.Time) {
	seen := map[string]bool{}
	for at := after.Truncate(time.Minute).Add(time.Minute); !at.After(upto); at = at.Add(time.Minute) {
		local := at.In(zone)
		_, offset := local.Zone()
		_, before := at.Add(-3 * time.Hour).In(zone).Zone()
		day := local.Format(time.DateOnly)
		switch {
		case hour == -1 && local.Minute() == minute:
			all = append(all, at)
		case hour != -1 && !seen[day] && local.Hour() == hour && local.Minute() == minute:
			seen[day] = true
			all = append(all, at)
		case hour != -1 && !seen[day] && offset > before:
			// The clock has jumped forward within three hours. The old offset reads the skipped time here.
			old := at.In(time.FixedZone("", before))
			if old.Hour() == hour && old.Minute() == minute && skips(zone, at, hour, minute) {
				seen[day] = true
				all = append(all, at)
			}
		}
	}
	return all
}

// skips reports whether the clock of a zone never shows a time of the day on the local day of at.
func skips(zone *time.Location, at time.Time, hour, minute int) bool {
	day := at.In(zone).Format(time.DateOnly)
	for m := at.Add(-26 * time.Hour); m.Before(at.Add(26 * time.Hour)); m = m.Add(time.Minute) {
		if local := m.In(zone); local.Format(time.DateOnly) == day && local.Hour() == hour && local.Minute() == minute {
			return false
		}
	}
	return true
}

// pass moves the clock to a moment in steps of two hours, and waits at each until all due ticks have fired.
func (s *shifted) pass(t *testing.T, to time.Time) {
	t.Helper()
	for s.now.Before(to) {
		next := s.now.Add(2 * time.Hour)
		if next.After(to) {
			next = to
		}
		s.forward(t, next)
		s.settle(t)
	}
}

// check compares the ticks of a schedule with the wanted times.
func (s *shifted) check(t *testing.T, key string, want []time.Time) {
	t.Helper()
	if got := s.fired(t, key); !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("%s fired at\n%v, want\n%v", key, got, want)
	}
}

func TestWeekendsOfClockChangesOnTheRealServer(t *testing.T) {
	t.Parallel()
	type clock struct {
		zone         string
		hour, minute int // the clock skips this time, or shows it twice
	}
	weekends := []struct {
		month  time.Month
		day    int // the clocks change on the first Sunday from this day on
		clocks []clock
	}{
		{time.March, 8, []clock{{"America/New_York", 2, 30}}},
		{time.March, 25, []clock{{"Europe/London", 1, 30}}},
		{time.April, 2, []clock{{"America/Santiago", 23, 30}, {"Australia/Sydney", 2, 30}, {"Australia/Lord_Howe", 1, 45}}},
		{time.September, 2, []clock{{"America/Santiago", 0, 30}}},
		{time.October, 1, []clock{{"Australia/Sydney", 2, 30}, {"Australia/Lord_Howe", 2, 15}}},
		{time.October, 25, []clock{{"Europe/London", 1, 30}}},
		{time.November, 1, []clock{{"America/New_York", 1, 30}}},
	}
	year := time.Now().UTC().Year() + 1
	if time.Date(year, time.April, 1, 0, 0, 0, 0, time.UTC).Weekday() == time.Sunday {
		year++ // on this day Australia would change its clocks, and Chile a week later
	}
	s := startShifted(t, time.Date(year, time.March, 1, 0, 0, 0, 0, time.UTC))
	for _, w := range weekends {
		first := time.Date(year, w.month, w.day, 0, 0, 0, 0, time.UTC)
		saturday := first.AddDate(0, 0, (7-int(first.Weekday()))%7-1)
		from, to := saturday.Add(-12*time.Hour+30*time.Second), saturday.Add(52*time.Hour)
		s.forward(t, from)
		for i, c := range w.clocks {
			s.put(t, fmt.Sprintf("daily-%s-%d", saturday.Format(time.DateOnly), i), c.zone, fmt.Sprintf("%d %d * * *", c.minute, c.hour))
			s.put(t, fmt.Sprintf("hourly-%s-%d", saturday.Format(time.DateOnly), i), c.zone, fmt.Sprintf("%d * * * *", c.minute))
		}
		s.pass(t, to)
		for i, c := range w.clocks {
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			daily, hourly := fmt.Sprintf("daily-%s-%d", saturday.Format(time.DateOnly), i), fmt.Sprintf("hourly-%s-%d", saturday.Format(time.DateOnly), i)
			s.check(t, daily, wall(zone, from, to, c.hour, c.minute))
			s.check(t, hourly, wall(zone, from, to, -1, c.minute))
			for _, key := range []string{daily, hourly} {
				if status, text := call(t, http.MethodDelete, s.URL+"/v1/workflows/dst/schedules/"+key, s.Token, ""); status != http.StatusNoContent {
					t.Fatalf("%d: %s", status, text)
				}
			}
		}
	}
}

func TestAMonthOnTheRealServer(t *testing.T) {
	t.Parallel()
	from := time.Date(time.Now().UTC().Year()+1, time.February, 25, 0, 0, 30, 0, time.UTC)
	to := from.AddDate(0, 1, 7) // the last Sunday of March is past, on which Dublin changes its clock
	s := startShifted(t, from)
	zones := map[string]string{"new-york": "America/New_York", "kathmandu": "Asia/Kathmandu", "dublin": "Europe/Dublin"}
	for key, zone := range zones {
		s.put(t, key, zone, "15 8 * * *")
	}
	s.pass(t, to)
	for key, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		s.check(t, key, wall(zone, from, to, 8, 15))
	}
}
