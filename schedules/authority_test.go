package schedules_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/tenants"
)

// stream is a request whose body is still being sent while its answer is read.
type stream struct {
	t      *testing.T
	body   *io.PipeWriter
	answer *bufio.Scanner
	lines  int // that were sent
}

// stream begins a bulk upsert with a batch of its own, and reads what became of that batch.
func (e *edge) stream(t *testing.T, token string) *stream {
	t.Helper()
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", e.url+bulkPath, in)
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
		b.WriteString(dailyLine(fmt.Sprint(s.lines)))
	}
	_, _ = io.WriteString(s.body, b.String())
}

// last reads the answer to its end, and returns the status and the code of the line that ends a stream before its time.
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
	for name, end := range map[string]func(e *edge) error{
		"the token expires": func(e *edge) error {
			e.ahead.Store(int64(time.Hour))
			return nil
		},
		"the tenant is suspended": func(e *edge) error {
			_, err := e.pool.Exec(e.t.Context(), `UPDATE tenant SET status = 'suspended' WHERE id = $1`, e.acme)
			return err
		},
		"the tenant is erased": func(e *edge) error {
			_, _, err := tenants.Erase(e.t.Context(), e.pool, "acme")
			return err
		},
		"the API key is taken back": func(e *edge) error {
			_, err := e.pool.Exec(e.t.Context(), `DELETE FROM api_key WHERE tenant_id = $1`, e.acme)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t)
			s := e.stream(t, e.keyToken())
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
			if n := one[int](e.home, `SELECT count(*) FROM schedule`); n != 1000 {
				t.Errorf("got %d schedules", n)
			}
		})
	}
}

// keyToken makes an API key and returns a token that it was exchanged for.
func (e *edge) keyToken() string {
	e.t.Helper()
	var id string
	err := e.pool.QueryRow(e.t.Context(), `
		INSERT INTO api_key (tenant_id, id, name, hash, scopes, created_by)
		VALUES ($1, 'key_a', 'a', sha256('a'), '{schedules:write}', 'ann')
		RETURNING id`, e.acme).Scan(&id)
	if err != nil {
		e.t.Fatal(err)
	}
	token, err := e.minter.Mint(tenants.Claims{Subject: id, Tenant: "acme", Scopes: []string{tenants.SchedulesWrite}, TTL: time.Minute, APIKey: id}, time.Now())
	if err != nil {
		e.t.Fatal(err)
	}
	return token
}

func TestNoBatchIsStoredOnceTheTokenExpired(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	s := e.stream(t, e.keyToken())
	e.ahead.Store(int64(time.Hour))
	s.send(1000)
	if status, code := s.last(); status != 401 || code != "invalid_token" {
		t.Errorf("got %d %s", status, code)
	}
	if n := one[int](e.home, `SELECT count(*) FROM schedule`); n != 1000 {
		t.Errorf("got %d schedules", n)
	}
}

func TestASyncEndsWithItsToken(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", e.url+"/v1/schedules/sync?workflow=w&unlisted=delete", in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.token("acme", tenants.SchedulesWrite))
	r.Header.Set("Content-Type", "application/x-ndjson")
	e.put("stays", spec(cron("0 12 * * *")))
	begun := func(db postgres.DB) (begun bool, err error) {
		err = db.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM sync)`).Scan(&begun)
		return begun, err
	}
	go func() {
		defer out.Close()
		for range time.Tick(10 * time.Millisecond) {
			if begun, err := begun(e.pool); begun || err != nil {
				break
			}
		}
		e.ahead.Store(int64(time.Hour))
		for i := range 1000 {
			_, _ = io.WriteString(out, dailyLine(fmt.Sprint(i))) // an error shows in the answer
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
	if n := one[int](e.home, `SELECT count(*) FROM schedule`); n != 1 {
		t.Errorf("got %d schedules", n)
	}
}

func TestAnExportEndsWithItsToken(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	var b strings.Builder
	for i := range 600 {
		fmt.Fprintf(&b, `{"workflow":"w","key":"%d","spec":{"cron":"0 12 * * *"},"payload":"%030000d"}`+"\n", i, i)
	}
	_, err := e.inBulk.Upsert(t.Context(), e.acme, "ann", io.NopCloser(strings.NewReader(b.String())), func([]bulk.Result) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url+"/v1/schedules/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.token("acme", tenants.SchedulesRead))
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := base.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	e.ahead.Store(int64(time.Hour)) // the first page is 15 MB: more than is on its way
	got, err := io.ReadAll(resp.Body)
	if n := strings.Count(string(got), "\n"); err == nil || n >= 600 {
		t.Errorf("got %d lines of the export, %v", n, err)
	}
}
