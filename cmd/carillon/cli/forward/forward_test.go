package forward_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillonhq/carillon/cmd/carillon/cli/forward"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestATickIsSignedByStandardWebhooks(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Retry-After", "7")
		http.Error(w, "mail refused\nsecond line", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	target := forward.Target{URL: server.URL, Secret: secret, Header: http.Header{"X-Own": {"1"}, "User-Agent": {"mine"}}, Client: server.Client()}
	answer, err := target.Send(t.Context(), "tick_1", []byte(`{"a":1}`), time.Now(), http.Header{forward.MirrorHeader: {"1"}})
	if err != nil || answer.Good() || answer.Accepted() || answer.Wait != 7*time.Second || answer.Took <= 0 {
		t.Fatalf("got %+v, %v", answer, err)
	}
	if want := "503 Service Unavailable: mail refused"; answer.Text() != want {
		t.Errorf("got %q, want %q", answer.Text(), want)
	}
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(body, got.Header); err != nil {
		t.Errorf("the signature: %v", err)
	}
	for name, want := range map[string]string{"Webhook-Id": "tick_1", "Carillon-Mirror": "1", "X-Own": "1", "Content-Type": "application/json", "User-Agent": "carillon"} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: got %q, want %q", name, got.Header.Get(name), want)
		}
	}
}

func TestAProgramThatIsAwayIsAnErrorWithoutTheURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := forward.Target{URL: server.URL + "/x", Secret: secret, Client: http.DefaultClient}.Send(t.Context(), "tick_1", nil, time.Now(), nil)
	if err == nil || strings.Contains(err.Error(), "/x") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func TestTheSecretStaysTheSame(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config", "listen-secret")
	secrets := make([]string, 8)
	var group sync.WaitGroup
	for i := range secrets {
		group.Go(func() {
			var err error
			if secrets[i], err = forward.Secret(path); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, s := range secrets {
		if s != secrets[0] || !strings.HasPrefix(s, "whsec_") {
			t.Errorf("got %q and %q", s, secrets[0])
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("got %v, %v", left, err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := forward.Secret(path); err == nil || !strings.Contains(err.Error(), "delete the file") {
		t.Errorf("a file with something else: got %v", err)
	}
}

const (
	record = `{"tick_id":"tick_1","schedule_id":"sch_1","workflow":"digest","key":"user_1","subject":"user_1","timestamp":"2026-11-23T13:00:00Z",
		"local_time":"2026-11-23T08:00:00-05:00","timezone":"America/New_York","state":"running","cause":"schedule","dst":"none",
		"last_timestamp":"2026-11-20T13:00:00Z","fired_at":"2026-11-23T13:00:00.14Z","ended_at":null,"lateness_ms":140,"attempt":0,
		"occurrence":42,"missed_count":0,"schedule_version":3,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00","payload":{"a": "<b>", "n": 12345678901234567890}}`
	sample = `{"tick_id":"tick_2","schedule_id":"sch_1","workflow":"digest","key":"user_1","subject":"user_1","labels":{"plan":"pro"},
		"timestamp":"2026-11-24T13:00:00Z","local_time":"2026-11-24T08:00:00-05:00","timezone":"America/New_York",
		"upcoming":["2026-11-25T13:00:00Z","2026-11-26T13:00:00Z","2026-11-27T13:00:00Z","2026-11-30T13:00:00Z","2026-12-01T13:00:00Z"],
		"last_timestamp":"2026-11-23T13:00:00Z","fired_at":"2026-11-24T13:00:00.000Z","lateness_ms":0,"attempt":1,"max_attempts":10,"timeout":"60s",
		"occurrence":43,"missed_count":0,"cause":"schedule","dst":"none","schedule_version":3,"workflow_version":"v7","expired":false,
		"lease_token":"(not shown)","payload":{"a":2}}`
)

func TestACopyHasTheRecordAndTheRestOfTheSample(t *testing.T) {
	t.Parallel()
	want := `{"tick_id":"tick_1","schedule_id":"sch_1","workflow":"digest","key":"user_1","subject":"user_1","labels":{"plan":"pro"},` +
		`"timestamp":"2026-11-23T13:00:00Z","local_time":"2026-11-23T08:00:00-05:00","timezone":"America/New_York",` +
		`"upcoming":["2026-11-24T13:00:00Z","2026-11-25T13:00:00Z","2026-11-26T13:00:00Z","2026-11-27T13:00:00Z","2026-11-30T13:00:00Z"],` +
		`"last_timestamp":"2026-11-20T13:00:00Z","fired_at":"2026-11-23T13:00:00.140Z","lateness_ms":140,"attempt":1,"max_attempts":10,"timeout":"60s",` +
		`"occurrence":42,"missed_count":0,"cause":"schedule","dst":"none","schedule_version":3,"workflow_version":"v7","expired":false,` +
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",` +
		`"lease_token":"(a copy has none)","payload":{"a": "<b>", "n": 12345678901234567890}}`
	if id, got, err := forward.Copy([]byte(record), []byte(sample)); err != nil || id != "tick_1" || string(got) != want {
		t.Errorf("got %s, %s, %v\nwant %s", id, got, err, want)
	}
	if _, got, err := forward.Copy([]byte(record), []byte(`{"ticks":[`+sample+`]}`)); err != nil || string(got) != `{"ticks":[`+want+`]}` {
		t.Errorf("a batch: got %s, %v", got, err)
	}
}

func TestACopyWithoutASample(t *testing.T) {
	t.Parallel()
	_, got, err := forward.Copy([]byte(strings.Replace(record, `,"payload":{"a": "<b>", "n": 12345678901234567890}`, "", 1)), nil)
	if err != nil || !json.Valid(got) || !bytes.Contains(got, []byte(`"labels":{},`)) || !bytes.HasSuffix(got, []byte(`"payload":null}`)) {
		t.Errorf("got %s, %v", got, err)
	}
	for _, c := range [][2]string{{"x", sample}, {record, "x"}} {
		if _, _, err := forward.Copy([]byte(c[0]), []byte(c[1])); err == nil {
			t.Errorf("%s: got no error", c)
		}
	}
}

func TestHeadersAndURLs(t *testing.T) {
	t.Parallel()
	header, err := forward.Headers([]string{"Authorization: Bearer x:y", "x-a:1", "X-A: 2"})
	if err != nil || header.Get("Authorization") != "Bearer x:y" || len(header["X-A"]) != 2 {
		t.Errorf("got %v, %v", header, err)
	}
	for _, line := range []string{"", "x", ":1", "a b: 1", "a: 1\nb: 2"} {
		if _, err := forward.Headers([]string{line}); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
	for _, u := range []string{"", "localhost:3000", "ftp://x", "/x", "http://"} {
		if forward.Check(u) == nil {
			t.Errorf("%q is taken", u)
		}
	}
	if err := forward.Check("http://localhost:3000/ticks"); err != nil {
		t.Error(err)
	}
}
