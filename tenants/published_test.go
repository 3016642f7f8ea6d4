package tenants

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/carillonhq/carillon/internal/web"
)

// keyHost publishes what it is told to, and counts how often it is asked.
type keyHost struct {
	mu     sync.Mutex
	body   string
	status int
	asked  int
}

func (h *keyHost) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	w.WriteHeader(h.status)
	fmt.Fprint(w, h.body)
}

func (h *keyHost) publish(status int, keys ...web.Raw) {
	h.mu.Lock()
	defer h.mu.Unlock()
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = string(k)
	}
	h.status, h.body = status, `{"keys":[`+strings.Join(texts, ",")+`]}`
}

// wait lets each fetch from a loopback address take a minute.
func (p *published) wait() {
	read := web.Outbound{Loopback: true}.Reader(time.Minute, maxKeySet)
	p.read = func(ctx context.Context, uri string) ([]byte, error) { return read(context.WithoutCancel(ctx), uri) }
}

func TestPublishedKeysRotate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	host := &keyHost{}
	server := httptest.NewServer(host)
	defer server.Close()
	issuers := []Issuer{{Name: acmeIssuer, JWKSURI: server.URL}}
	if err := checkIssuers(issuers, "carillon-test", web.Outbound{}); err == nil {
		t.Error("a loopback address was let pass")
	}
	if _, _, err := Put(t.Context(), w.pool, "acme", Params{Issuers: issuers}); err != nil {
		t.Fatal(err)
	}
	w.verifier = NewVerifier(VerifierOptions{
		Issuer: "carillon-test", Tenants: patientDirectory(w.pool), Outbound: web.Outbound{Loopback: true}, Now: func() time.Time { return w.now },
	})
	w.verifier.published.wait()
	newPublic, newKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	old, fresh := jwkOf(t, "ed", w.ed.Public()), jwkOf(t, "new", newPublic)
	wrap := func(key ed25519.PrivateKey, kid string) string {
		return w.sign(t, jwt.SigningMethodEdDSA, key, map[string]any{"kid": kid}, nil)
	}
	check := func(what, token string, counts bool, asked int) {
		t.Helper()
		_, err := w.verifier.Verify(t.Context(), token)
		if _, refused := errors.AsType[errToken](err); (err == nil) != counts || err != nil && !refused {
			t.Errorf("%s: got %v", what, err)
		}
		host.mu.Lock()
		defer host.mu.Unlock()
		if host.asked != asked {
			t.Errorf("%s: the host was asked %d times by now, want %d", what, host.asked, asked)
		}
	}
	host.publish(500)
	check("a broken host", wrap(w.ed, "ed"), false, 1)
	check("a broken host, at once again", wrap(w.ed, "ed"), false, 1)
	w.now = w.now.Add(fetchGap)
	host.publish(200, old, web.Raw(`{"kty":"oct","k":"c2VjcmV0","kid":"other"}`))
	check("the first key", wrap(w.ed, "ed"), true, 2)
	check("again", wrap(w.ed, "ed"), true, 2)
	host.publish(200, old, fresh)
	for range 10 {
		check("kids made up", wrap(w.ed, "made-up"), false, 2)
	}
	w.now = w.now.Add(fetchGap)
	check("a kid made up", wrap(w.ed, "made-up"), false, 3)
	check("the rotated key", wrap(newKey, "new"), true, 3)
	host.publish(200, fresh)
	w.now = w.now.Add(keysFresh + time.Second)
	check("the withdrawn key", wrap(w.ed, "ed"), false, 4)
	host.publish(503)
	w.now = w.now.Add(keysFresh + time.Second)
	check("a host that is down", wrap(newKey, "new"), true, 5)
	w.now = w.now.Add(keysStale + time.Second)
	check("a host that stays down", wrap(newKey, "new"), false, 6)
	w.now = w.now.Add(fetchGap)
	host.publish(200, web.Raw(strings.Repeat(" ", maxKeySet)), fresh)
	check("a flood of keys", wrap(newKey, "new"), false, 7)
}

func TestPublishedKeysAreFetchedOnceByMany(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	host := &keyHost{}
	host.publish(200, jwkOf(t, "k", public))
	server := httptest.NewServer(host)
	defer server.Close()
	p := newPublished(web.Outbound{Loopback: true})
	p.wait()
	fit := func(keys []Key) []Key { return candidates(keys, edDSA, "k", true) }
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = given
			}
			keys, err := p.keys(ctx, server.URL, fit, time.Now())
			if i%2 == 1 && (err != nil || len(keys) != 1) {
				t.Errorf("got %v, %v", keys, err)
			}
		})
	}
	wg.Wait()
	if host.asked != 1 {
		t.Errorf("the host was asked %d times", host.asked)
	}
}
