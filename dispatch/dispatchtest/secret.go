package dispatchtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiver is an endpoint that keeps requests as they come, and answers with status.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	text   string
	got    []request
}

type request struct {
	Header http.Header
	Body   []byte
}

func NewReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: 204}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.got = append(r.got, request{req.Header, body})
	}
	w.WriteHeader(r.status)
	if r.text != "" {
		_, _ = io.WriteString(w, r.text) // the client may have gone
	}
}

func (r *receiver) Answers(status int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.text = status, text
}

func (r *receiver) Requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.got...)
}

// Last is the newest request.
func (r *receiver) Last(t *testing.T) request {
	t.Helper()
	all := r.Requests()
	if len(all) == 0 {
		t.Fatal("nothing came")
	}
	return all[len(all)-1]
}

// SignedBy returns "yes" or "no" for each of the secrets: whether it signed the request.
func (r request) SignedBy(t *testing.T, secrets ...string) string {
	t.Helper()
	var by strings.Builder
	for _, secret := range secrets {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if hook.Verify(r.Body, r.Header) == nil {
			by.WriteString("yes ")
		} else {
			by.WriteString("no ")
		}
	}
	return strings.TrimSpace(by.String())
}

// Try sends a test tick by a process, and returns the result of SignedBy for its request; "" if none was sent.
func (r *receiver) Try(h *Carillon, d *Process, name string, secrets ...string) string {
	h.T.Helper()
	before := len(r.Requests())
	trial, err := d.Pusher.Endpoints.TryEndpoint(h.T.Context(), h.Tenant, name)
	if err != nil {
		h.T.Fatal(err)
	}
	if len(r.Requests()) == before {
		if trial.Error == nil || trial.Status != nil {
			h.T.Errorf("nothing was sent, and it says %+v", trial)
		}
		return ""
	}
	return r.Last(h.T).SignedBy(h.T, secrets...)
}
