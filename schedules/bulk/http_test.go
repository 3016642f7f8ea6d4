package bulk_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

// stream is a request whose body is still being sent while its answer is read.
type stream struct {
	t      *testing.T
	body   *io.PipeWriter
	answer *bufio.Scanner
	lines  int // that were sent
}

// openStream begins a bulk upsert with a batch of its own, and reads the results of that batch.
func openStream(t *testing.T, e *schedulestest.Site, token string) *stream {
	t.Helper()
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", e.URL+schedulestest.BulkPath, in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/x-ndjson")
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	t.Cleanup(func() { out.Close() })
	s := &stream{t: t, body: out}
	go s.send(1000)
	resp, err := base.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	s.answer = bufio.NewScanner(resp.Body)
	for range 1000 {
		if !s.answer.Scan() || !strings.Contains(s.answer.Text(), `"inserted"`) {
			t.Fatalf("got %d %q %v", resp.StatusCode, s.answer.Text(), s.answer.Err())
		}
	}
	return s
}

// send sends n more lines, each of a schedule of its own. An error shows in the answer.
func (s *stream) send(n int) {
	var b strings.Builder
	for range n {
		s.lines++
		b.WriteString(schedulestest.DailyLine(fmt.Sprint(s.lines)))
	}
	_, _ = io.WriteString(s.body, b.String())
}

// last reads the answer to its end, and returns the status and the code of the line that reports an early end.
func (s *stream) last() (status int, code string) {
	s.t.Helper()
	var last string
	for s.answer.Scan() {
		last = s.answer.Text()
	}
	var line struct {
		Line  int
		Error struct {
			Status int
			Code   string
		}
	}
	if err := json.Unmarshal([]byte(last), &line); err != nil || line.Line != 0 {
		s.t.Errorf("the last line is %q, %v, %v", last, err, s.answer.Err())
	}
	return line.Error.Status, line.Error.Code
}

func TestAStreamEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(e *schedulestest.Site) error{
		"the token expires": func(e *schedulestest.Site) error {
			e.ClockAhead.Store(int64(time.Hour))
			return nil
		},
		"the tenant is suspended": func(e *schedulestest.Site) error {
			_, err := e.Pool.Exec(e.T.Context(), `UPDATE tenant SET status = 'suspended' WHERE id = $1`, e.Acme)
			return err
		},
		"the tenant is erased": func(e *schedulestest.Site) error {
			_, _, err := tenants.Erase(e.T.Context(), e.Pool, "acme")
			return err
		},
		"the API key is taken back": func(e *schedulestest.Site) error {
			_, err := e.Pool.Exec(e.T.Context(), `DELETE FROM api_key WHERE tenant_id = $1`, e.Acme)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := schedulestest.NewSite(t)
			s := openStream(t, e, keyToken(e))
			if err := end(e); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			var sending sync.WaitGroup
			sending.Go(func() {
				for every := time.NewTicker(30 * time.Millisecond); s.lines < 1990; { // fewer lines than fill a batch
					select {
					case <-stop:
						return
					case <-every.C:
						s.send(1)
					}
				}
			})
			if status, code := s.last(); status != 401 || code != "invalid_token" {
				t.Errorf("got %d %s", status, code)
			}
			close(stop)
			s.body.Close()
			sending.Wait()
			if n := schedulestest.One[int](e.Fixture, `SELECT count(*) FROM schedule`); n != 1000 {
				t.Errorf("got %d schedules", n)
			}
		})
	}
}

// keyToken makes an API key and returns a token that a client got for it.
func keyToken(e *schedulestest.Site) string {
	e.T.Helper()
	var id string
	err := e.Pool.QueryRow(e.T.Context(), `
		INSERT INTO api_key (tenant_id, id, name, hash, scopes, created_by)
		VALUES ($1, 'key_a', 'a', sha256('a'), '{schedules:write}', 'ann')
		RETURNING id`, e.Acme).Scan(&id)
	if err != nil {
		e.T.Fatal(err)
	}
	token, err := e.Minter.Mint(tenants.Claims{Subject: id, Tenant: "acme", Scopes: []string{tenants.SchedulesWrite}, TTL: time.Minute, APIKey: id}, time.Now())
	if err != nil {
		e.T.Fatal(err)
	}
	return token
}

func TestNoBatchIsStoredOnceTheTokenExpired(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	s := openStream(t, e, keyToken(e))
	e.ClockAhead.Store(int64(time.Hour))
	s.send(1000)
	if status, code := s.last(); status != 401 || code != "invalid_token" {
		t.Errorf("got %d %s", status, code)
	}
	if n := schedulestest.One[int](e.Fixture, `SELECT count(*) FROM schedule`); n != 1000 {
		t.Errorf("got %d schedules", n)
	}
}

func TestASyncEndsWithItsToken(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", e.URL+"/v1/schedules/sync?workflow=w&unlisted=delete", in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.Token("acme", tenants.SchedulesWrite))
	r.Header.Set("Content-Type", "application/x-ndjson")
	e.Put("stays", schedulestest.ByCron("0 12 * * *"))
	begun := func(db postgres.DB) (begun bool, err error) {
		err = db.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM sync)`).Scan(&begun)
		return begun, err
	}
	go func() {
		defer out.Close()
		for range time.Tick(10 * time.Millisecond) {
			if begun, err := begun(e.Pool); begun || err != nil {
				break
			}
		}
		e.ClockAhead.Store(int64(time.Hour))
		for i := range 1000 {
			_, _ = io.WriteString(out, schedulestest.DailyLine(fmt.Sprint(i))) // an error shows in the answer
		}
	}()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := base.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 401 {
		t.Errorf("got %d %.300s %v", resp.StatusCode, body, err)
	}
	if n := schedulestest.One[int](e.Fixture, `SELECT count(*) FROM schedule`); n != 1 {
		t.Errorf("got %d schedules", n)
	}
}

func TestAnExportEndsWithItsToken(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	var b strings.Builder
	for i := range 600 {
		fmt.Fprintf(&b, `{"workflow":"w","key":"%d","spec":{"cron":"0 12 * * *"},"payload":"%030000d"}`+"\n", i, i)
	}
	_, err := e.InBulk.Upsert(t.Context(), e.Acme, "ann", io.NopCloser(strings.NewReader(b.String())), func([]bulk.Result) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.URL+"/v1/schedules/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := base.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	e.ClockAhead.Store(int64(time.Hour)) // the first page is 15 MB: more than is on its way
	got, err := io.ReadAll(resp.Body)
	if n := strings.Count(string(got), "\n"); err == nil || n >= 600 {
		t.Errorf("got %d lines of the export, %v", n, err)
	}
}

func TestBulkAnswersEachLine(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	body := schedulestest.DailyLine("a") + "\n" + schedulestest.DailyLine("b") +
		`{"workflow":"w","key":"c","spec":{"cron":"0 0 30 2 *"}}` + "\n" + "{nonsense\n" +
		`{"workflow":"w w","key":"\u0001","spec":{"cron":"0 12 * * *"}}` + "\n" + schedulestest.DailyLine("a") +
		`{"workflow":"w","spec":{"cron":"0 12 * * *"},"colour":1}` + "\n" + strings.Repeat("x", 2<<20) + "\n" +
		strings.TrimSpace(`{"workflow":"w","spec":{"cron":"0 12 * * *"}}`)
	a := e.Ask("POST", schedulestest.BulkPath, body, "Content-Type", "application/x-ndjson")
	var got []string
	for line := range strings.Lines(a.Body) {
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
		t.Errorf("(-want +got):\n%s%s", diff, a.Body)
	}
	again := e.Ask("POST", schedulestest.BulkPath+"?results=errors", body, "Content-Type", "application/x-ndjson")
	if n := strings.Count(again.Body, "\n"); n != 6 || !strings.HasSuffix(again.Body, `{"summary":{"inserted":0,"updated":0,"unchanged":3,"duplicates":1,"errors":5},"warnings":[]}`+"\n") {
		t.Errorf("got %d lines: %s", n, again.Body)
	}
}

// A line without a key is of the key "global".
// A dry run answers each line and stores nothing.
func TestADryRunOfABulkStoresNothing(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	lines := []string{"Content-Type", "application/x-ndjson"}
	e.Want(200, "", "POST", schedulestest.BulkPath, schedulestest.DailyLine("a")+schedulestest.DailyLine("b"), lines...)
	body := schedulestest.DailyLine("a") + strings.Replace(schedulestest.DailyLine("b"), "0 12", "0 13", 1) + schedulestest.DailyLine("c") + `{"workflow":"w","key":"d","spec":{"cron":"x"}}` + "\n"
	before := e.Want(200, "", "GET", "/v1/schedules", "")
	e.Want(422, "invalid", "POST", schedulestest.BulkPath+"?dry_run=perhaps", body, lines...)
	shown := e.Ask("POST", schedulestest.BulkPath+"?dry_run=true", body, lines...)
	if !strings.Contains(shown.Body, `"summary":{"inserted":1,"updated":1,"unchanged":1,"duplicates":0,"errors":1}`) {
		t.Errorf("got %s", shown.Body)
	}
	if after := e.Want(200, "", "GET", "/v1/schedules", ""); after.Body != before.Body {
		t.Errorf("after a dry run there is %s, before %s", after.Body, before.Body)
	}
}

func TestAKeyThatIsLeftOutIsGlobal(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const line = `"spec":{"cron":"0 12 * * *"},"labels":{"source":"crm"}}`
	e.Want(200, "", "POST", schedulestest.BulkPath, `{"workflow":"bulk",`+line, "Content-Type", "application/x-ndjson")
	e.Want(200, "", "POST", "/v1/schedules/sync?workflow=sync", `{`+line, "Content-Type", "application/x-ndjson")
	e.Want(200, "", "POST", "/v1/schedules/sync?label=source:crm", `{"workflow":"label",`+line, "Content-Type", "application/x-ndjson")
	if got, want := e.Stored(), "bulk global 1 active, label global 1 active, sync global 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBulkTakesGzipOfAnyLength(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for i := range 2500 {
		_, _ = io.WriteString(z, schedulestest.DailyLine(fmt.Sprint(i))) // a buffer takes all
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	a := e.Ask("POST", schedulestest.BulkPath, packed.String(), "Content-Type", "application/x-ndjson", "Content-Encoding", "gzip")
	if a.Status != 200 || strings.Count(a.Body, "\n") != 2501 {
		t.Errorf("got %d with %d lines", a.Status, strings.Count(a.Body, "\n"))
	}
	if n := schedulestest.One[int](e.Fixture, `SELECT count(*) FROM member`); n != 2500 {
		t.Errorf("got %d members", n)
	}
}

func TestBulkRefusesWhatIsNotLines(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	lines := []string{"Content-Type", "application/x-ndjson"}
	e.Want(415, "unsupported_media_type", "POST", schedulestest.BulkPath, schedulestest.DailyLine("a"))
	e.Want(400, "unknown_parameter", "POST", schedulestest.BulkPath+"?colour=red", schedulestest.DailyLine("a"), lines...)
	e.Want(422, "invalid", "POST", schedulestest.BulkPath+"?results=some", schedulestest.DailyLine("a"), lines...)
	e.Want(400, "malformed_body", "POST", schedulestest.BulkPath, "not gzip", append(lines, "Content-Encoding", "gzip")...)
	if a := e.Ask("POST", schedulestest.BulkPath, "\n", lines...); a.Status != 200 || !strings.Contains(a.Body, `"errors":0`) {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
}

// The answer to the first batch comes before the client sends the rest of the body. If the connection breaks then, only that batch is stored.
func TestBulkCutShortLeavesWholeBatches(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	body, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", e.URL+schedulestest.BulkPath, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.Token("acme", "schedules:write"))
	r.Header.Set("Content-Type", "application/x-ndjson")
	var wg sync.WaitGroup
	defer wg.Wait()
	defer writer.Close()
	wg.Go(func() {
		for i := range 1500 {
			if _, err := io.WriteString(writer, schedulestest.DailyLine(fmt.Sprint(i))); err != nil {
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
	if n := schedulestest.One[int](e.Fixture, `SELECT count(*) FROM schedule`); n != 1000 {
		t.Errorf("got %d schedules", n)
	}
}
