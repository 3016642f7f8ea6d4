package schedules_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/tenants"
)

const bulkPath = "/v1/schedules/bulk"

func dailyLine(key string) string {
	return fmt.Sprintf(`{"workflow":"w","key":%q,"spec":{"cron":"0 12 * * *"}}`+"\n", key)
}

func TestBulkAnswersEachLine(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	body := dailyLine("a") + "\n" + dailyLine("b") +
		`{"workflow":"w","key":"c","spec":{"cron":"0 0 30 2 *"}}` + "\n" + "{nonsense\n" +
		`{"workflow":"w w","key":"\u0001","spec":{"cron":"0 12 * * *"}}` + "\n" + dailyLine("a") +
		`{"workflow":"w","spec":{"cron":"0 12 * * *"},"colour":1}` + "\n" + strings.Repeat("x", 2<<20) + "\n" +
		strings.TrimSpace(`{"workflow":"w","spec":{"cron":"0 12 * * *"}}`)
	a := e.ask("POST", bulkPath, body, "Content-Type", "application/x-ndjson")
	var got []string
	for line := range strings.Lines(a.body) {
		var r bulk.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%d %s %s %t", r.Line, r.Result, r.Key, r.ScheduleID != "")
		if r.Error != nil {
			text += fmt.Sprintf(" %d %s", r.Error.Status, r.Error.Code)
		}
		got = append(got, text)
	}
	want := []string{
		"1 duplicate a false", "3 inserted b true", "4 error c false 422 never_fires", "5 error  false 400 invalid_json", "6 error  false 422 invalid",
		"7 inserted a true", "8 error  false 400 unknown_field", "9 error  false 413 line_too_large", "10 inserted global true", "0   false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s%s", diff, a.body)
	}
	again := e.ask("POST", bulkPath+"?results=errors", body, "Content-Type", "application/x-ndjson")
	if n := strings.Count(again.body, "\n"); n != 6 || !strings.HasSuffix(again.body, `{"summary":{"inserted":0,"updated":0,"unchanged":3,"duplicates":1,"errors":5},"warnings":[]}`+"\n") {
		t.Errorf("got %d lines: %s", n, again.body)
	}
}

func TestBulkTakesGzipOfAnyLength(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for i := range 2500 {
		_, _ = io.WriteString(z, dailyLine(fmt.Sprint(i))) // a buffer takes all
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	a := e.ask("POST", bulkPath, packed.String(), "Content-Type", "application/x-ndjson", "Content-Encoding", "gzip")
	if a.status != 200 || strings.Count(a.body, "\n") != 2501 {
		t.Errorf("got %d with %d lines", a.status, strings.Count(a.body, "\n"))
	}
	if n := one[int](e.home, `SELECT count(*) FROM member`); n != 2500 {
		t.Errorf("got %d members", n)
	}
}

func TestBulkRefusesWhatIsNotLines(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	lines := []string{"Content-Type", "application/x-ndjson"}
	e.want(415, "unsupported_media_type", "POST", bulkPath, dailyLine("a"))
	e.want(400, "unknown_parameter", "POST", bulkPath+"?colour=red", dailyLine("a"), lines...)
	e.want(422, "invalid", "POST", bulkPath+"?results=some", dailyLine("a"), lines...)
	e.want(400, "malformed_body", "POST", bulkPath, "not gzip", append(lines, "Content-Encoding", "gzip")...)
	if a := e.ask("POST", bulkPath, "\n", lines...); a.status != 200 || !strings.Contains(a.body, `"errors":0`) {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// The first batch is answered while the rest of the body is still to come; cut then, it alone is stored.
func TestBulkCutShortLeavesWholeBatches(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	body, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", e.url+bulkPath, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.token("acme", "schedules:write"))
	r.Header.Set("Content-Type", "application/x-ndjson")
	var wg sync.WaitGroup
	defer wg.Wait()
	defer writer.Close()
	wg.Go(func() {
		for i := range 1500 {
			if _, err := io.WriteString(writer, dailyLine(fmt.Sprint(i))); err != nil {
				return
			}
		}
	})
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 100)
	if _, err := io.ReadFull(resp.Body, first); err != nil || !bytes.HasPrefix(first, []byte(`{"line":1,"result":"inserted"`)) {
		t.Fatalf("got %s, %v", first, err)
	}
	cancel()
	if n := one[int](e.home, `SELECT count(*) FROM schedule`); n != 1000 {
		t.Errorf("got %d schedules", n)
	}
}

func TestBulkEndsWithItsBody(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	broken := errors.New("broken")
	_, err := h.inBulk.Upsert(t.Context(), h.acme, "ann", io.NopCloser(io.MultiReader(strings.NewReader(dailyLine("a")), failing{broken})), func([]bulk.Result) error { return nil })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if n := one[int](h, `SELECT count(*) FROM schedule`); n != 0 {
		t.Errorf("got %d schedules of half a batch", n)
	}
	_, err = h.inBulk.Upsert(t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(dailyLine("a"))), func([]bulk.Result) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestManyBulksOfTheSameKeysEndSound(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			var b strings.Builder
			for j := range 300 {
				k := j
				if i%2 == 1 {
					k = 299 - j
				}
				fmt.Fprintf(&b, `{"workflow":"w%d","key":"%d","spec":{"cron":"%d 12 * * *"}}`+"\n", k%3, k, i)
			}
			_, err := h.inBulk.Upsert(t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(b.String())), func(results []bulk.Result) error {
				for _, r := range results {
					if r.Error != nil && r.Error.Code != "busy" {
						t.Errorf("got %+v", r.Error)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := one[string](h, `
		SELECT (SELECT count(*) FROM schedule) || ' ' || (SELECT count(*) FROM schedule_state) || ' ' ||
			(SELECT count(*) FROM member m JOIN schedule s ON s.id = m.schedule_id AND s.cohort_id = m.cohort_id)`); got != "300 300 300" {
		t.Errorf("got %s schedules, states and members", got)
	}
}

func TestABodyIsReadAsFastAsItsTenantMayStore(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var paced []int
	h.inBulk = inBulk(h.schedules, func(_ context.Context, tenant tenants.ID, n int) error {
		if tenant != h.acme {
			t.Errorf("got tenant %d", tenant)
		}
		if paced = append(paced, n); len(paced) > 2 {
			return context.DeadlineExceeded
		}
		return nil
	})
	var body strings.Builder
	for n := range 2500 {
		fmt.Fprintf(&body, `{"workflow": "w", "key": "k%d", "spec": {"cron": "0 8 * * *"}}`+"\n", n)
	}
	stored := 0
	_, err := h.inBulk.Upsert(t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(body.String())), func(batch []bulk.Result) error {
		stored += len(batch)
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || stored > 2000 || !slices.Equal(paced, []int{1000, 1000, 500}) {
		t.Errorf("got %d stored, %v after %v", stored, err, paced)
	}
}
