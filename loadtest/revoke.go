package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	revokeWithin = 5 * time.Second
	revokeGives  = 20 * time.Second // after this the change counts as without effect
	revokePoll   = 20 * time.Millisecond
	revokeRounds = 2
	revokeTenant = "acme"
)

// revoke changes rights through one of two processes, and measures how long the change takes to apply in both. Meanwhile all requests that
// the change does not concern must succeed.
func revoke(ctx context.Context, o options, p *progress) (_ *report, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	w, err := openWorkshop(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer w.close()
	url, stop, err := database(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer stop()
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	v := &revocation{asking: asking{client: httpClient(transport)}, w: w, p: p}
	for _, name := range []string{"one", "other"} { // carillon dev, because it may fetch keys from this machine
		process, at, err := v.dev(ctx, name, url)
		if err != nil {
			return nil, err
		}
		defer process.stop()
		v.urls, v.platform = append(v.urls, at.URL), at.PlatformToken
	}
	r := &report{}
	for _, one := range []struct {
		name string
		run  func(context.Context) (time.Duration, error)
	}{ // each several times, because the result depends on how long ago the processes last looked
		{"api_key_taken_back", v.apiKey},
		{"quota_raised", func(ctx context.Context) (time.Duration, error) { return v.rate(ctx, 300, 700) }},
		{"quota_lowered", func(ctx context.Context) (time.Duration, error) { return v.rate(ctx, 700, 300) }},
		{"published_key_added", v.published},
		{"static_key_added", func(ctx context.Context) (time.Duration, error) { return v.static(ctx, true) }},
		{"static_key_removed", func(ctx context.Context) (time.Duration, error) { return v.static(ctx, false) }},
		{"tenant_suspended", v.suspended},
	} {
		var took time.Duration
		for range max(1, int(revokeRounds*min(1, o.scale))) {
			once, err := one.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
			took = max(took, once)
		}
		p.say("%s: applies in both processes after %s at most", one.name, took)
		r.atMost(one.name+"_seconds", took.Seconds(), revokeWithin.Seconds())
	}
	r.figure("requests_that_should_pass", float64(v.passed))
	r.atMost("refused_that_should_pass", float64(v.wronged), 0)
	return r, nil
}

// revocation is two processes and their clients.
type revocation struct {
	asking
	w        *workshop
	p        *progress
	platform string
	issuer   [2]ed25519.PrivateKey // keys of the tenant's own issuer: the old, the new

	passed, wronged int
}

func (v *revocation) dev(ctx context.Context, name, url string) (*process, announcement, error) {
	var at announcement
	ready := v.w.file(name + ".json")
	process, err := v.w.start(name, nil, "dev", "--no-demo", "--data", v.w.file("data"), "--listen", "127.0.0.1:0", "--ready-file", ready, "--yes", "--database-url", url)
	if err != nil {
		return nil, at, err
	}
	err = process.ready(ctx, func() bool {
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &at) == nil
	})
	if err != nil {
		process.stop()
	}
	return process, at, err
}

// put stores the tenant with a body, through the first process.
func (v *revocation) put(ctx context.Context, body string) error {
	status, _, err := v.ask(ctx, 0, http.MethodPut, "/v1/platform/tenants/"+revokeTenant, v.platform, body)
	if err == nil && status != http.StatusOK && status != http.StatusCreated {
		err = fmt.Errorf("change the tenant: %d", status)
	}
	return err
}

// token returns a token of the platform's issuer for the tenant's operator.
func (v *revocation) token(ctx context.Context) (string, error) {
	return v.w.output(ctx, nil, "token", "--tenant", revokeTenant, "--url", v.urls[0])
}

// until sends requests to each process until all answer as the change demands, and none answers otherwise after that. It returns how long
// this took. Meanwhile requests with the token good (empty: none) must succeed.
func (v *revocation) until(ctx context.Context, token, good string, inForce func(int, http.Header) bool) (time.Duration, error) {
	began := time.Now()
	steady := time.Second + rand.N(time.Second) // so that the next change comes at another age of the caches
	stop := make(chan struct{})
	var passing sync.WaitGroup
	if good != "" {
		passing.Go(func() { v.pass(ctx, good, stop) })
	}
	defer passing.Wait()
	defer close(stop)
	last := began // the last answer without the change
	for {
		all := true
		for to := range v.urls {
			status, header, err := v.ask(ctx, to, http.MethodGet, "/v1/workflows", token, "")
			if err != nil {
				return 0, err
			}
			if !inForce(status, header) {
				all, last = false, time.Now()
			}
		}
		if all && time.Since(last) > steady {
			return last.Sub(began), nil
		}
		if time.Since(began) > revokeGives {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(revokePoll):
		}
	}
}

// pass sends requests that must succeed until stop.
func (v *revocation) pass(ctx context.Context, token string, stop <-chan struct{}) {
	for to := 0; ; to++ {
		select {
		case <-stop:
			return
		case <-time.After(revokePoll):
		}
		status, _, err := v.ask(ctx, to, http.MethodGet, "/v1/workflows", token, "")
		if ctx.Err() != nil {
			return
		}
		if v.passed++; err != nil || status != http.StatusOK {
			v.wronged++
			v.p.say("a request that must succeed was answered %d: %v", status, err)
		}
	}
}

func refused(status int, _ http.Header) bool { return status == http.StatusUnauthorized }
func let(status int, _ http.Header) bool     { return status == http.StatusOK }

const wideEnough = `"requests_per_second": 5000, "concurrent_requests": 200`

// apiKey deletes an API key whose token is in use.
func (v *revocation) apiKey(ctx context.Context) (time.Duration, error) {
	if err := v.put(ctx, `{"quotas": {`+wideEnough+`}}`); err != nil {
		return 0, err
	}
	admin, err := v.token(ctx)
	if err != nil {
		return 0, err
	}
	var key struct{ ID, Key string }
	made, err := v.answer(ctx, 0, http.MethodPost, "/v1/admin/api-keys", admin, `{"name": "worker", "scopes": ["schedules:read"]}`)
	if err != nil || json.Unmarshal(made.body, &key) != nil || key.Key == "" {
		return 0, fmt.Errorf("make an API key: %d %s, %w", made.status, made.body, err)
	}
	var token struct {
		AccessToken string `json:"access_token"`
	}
	got, err := v.answer(ctx, 1, http.MethodPost, "/v1/token", "", fmt.Sprintf(`{"api_key": %q}`, key.Key))
	if err != nil || json.Unmarshal(got.body, &token) != nil || token.AccessToken == "" {
		return 0, fmt.Errorf("exchange the API key: %d %s, %w", got.status, got.body, err)
	}
	if took, err := v.until(ctx, token.AccessToken, admin, let); err != nil || took > revokeWithin {
		return took, err
	}
	if status, _, err := v.ask(ctx, 0, http.MethodDelete, "/v1/admin/api-keys/"+key.ID, admin, ""); err != nil || status != http.StatusNoContent {
		return 0, fmt.Errorf("delete the key: %d, %w", status, err)
	}
	return v.until(ctx, token.AccessToken, admin, refused)
}

// rate gives the tenant one quota and then another; each answer shows the quota.
func (v *revocation) rate(ctx context.Context, was, is int) (took time.Duration, err error) {
	admin, err := v.token(ctx)
	if err != nil {
		return 0, err
	}
	for _, perSecond := range []int{was, is} {
		if err := v.put(ctx, fmt.Sprintf(`{"quotas": {"requests_per_second": %d, "concurrent_requests": 200}}`, perSecond)); err != nil {
			return 0, err
		}
		says := fmt.Sprintf(`"requests_per_second";q=%d;w=1`, perSecond)
		took, err = v.until(ctx, admin, admin, func(_ int, h http.Header) bool { return h.Get("RateLimit-Policy") == says })
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}

const revokeIssuer = "https://login.example.com"

// sign returns a token that one of the keys of the tenant's issuer signs.
func (v *revocation) sign(which int) (string, error) {
	now := time.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": revokeIssuer, "aud": "carillon", "sub": "ann", "tenant": revokeTenant, "scope": "schedules:read",
		"iat": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(),
	})
	t.Header["kid"] = fmt.Sprint("key-", which)
	return t.SignedString(v.issuer[which])
}

// jwk returns one of the issuer's keys in its published form.
func (v *revocation) jwk(which int) string {
	public := v.issuer[which].Public().(ed25519.PublicKey)
	return fmt.Sprintf(`{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "key-%d", "x": %q}`, which, base64.RawURLEncoding.EncodeToString(public))
}

// published makes an issuer publish a second key while tokens of the first are in use.
func (v *revocation) published(ctx context.Context) (time.Duration, error) {
	for i := range v.issuer {
		v.issuer[i] = ed25519.NewKeyFromSeed(randomSeed())
	}
	var mu sync.Mutex
	keys := []string{v.jwk(0)}
	issuer := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(rw, `{"keys": [%s]}`, strings.Join(keys, ", "))
	}))
	defer issuer.Close()
	err := v.put(ctx, fmt.Sprintf(`{"quotas": {%s}, "issuers": [{"issuer": %q, "jwks_uri": %q, "algorithms": ["EdDSA"]}]}`, wideEnough, revokeIssuer, issuer.URL+"/jwks.json"))
	if err != nil {
		return 0, err
	}
	old, err := v.sign(0)
	if err != nil {
		return 0, err
	}
	fresh, err := v.sign(1)
	if err != nil {
		return 0, err
	}
	if took, err := v.until(ctx, old, "", let); err != nil || took > revokeWithin {
		return took, err
	}
	mu.Lock()
	keys = append(keys, v.jwk(1))
	mu.Unlock()
	return v.until(ctx, fresh, old, let)
}

// static adds a second key to the stored keys of the tenant's issuer, or removes the first.
func (v *revocation) static(ctx context.Context, add bool) (time.Duration, error) {
	old, err := v.sign(0)
	if err != nil {
		return 0, err
	}
	fresh, err := v.sign(1)
	if err != nil {
		return 0, err
	}
	with := func(keys ...string) error {
		return v.put(ctx, fmt.Sprintf(`{"quotas": {%s}, "issuers": [{"issuer": %q, "keys": [%s], "algorithms": ["EdDSA"]}]}`, wideEnough, revokeIssuer, strings.Join(keys, ", ")))
	}
	if !add {
		if err := with(v.jwk(0), v.jwk(1)); err != nil {
			return 0, err
		}
		if took, err := v.until(ctx, old, fresh, let); err != nil || took > revokeWithin {
			return took, err
		}
		if err := with(v.jwk(1)); err != nil {
			return 0, err
		}
		return v.until(ctx, old, fresh, refused)
	}
	if err := with(v.jwk(0)); err != nil {
		return 0, err
	}
	if took, err := v.until(ctx, fresh, "", refused); err != nil || took > revokeWithin {
		return took, err
	}
	if err := with(v.jwk(0), v.jwk(1)); err != nil {
		return 0, err
	}
	return v.until(ctx, fresh, old, let)
}

// suspended suspends the tenant.
func (v *revocation) suspended(ctx context.Context) (time.Duration, error) {
	admin, err := v.token(ctx)
	if err != nil {
		return 0, err
	}
	if err := v.put(ctx, `{"status": "active", "quotas": {`+wideEnough+`}}`); err != nil {
		return 0, err
	}
	if took, err := v.until(ctx, admin, "", let); err != nil || took > revokeWithin {
		return took, err
	}
	if err := v.put(ctx, `{"status": "suspended"}`); err != nil {
		return 0, err
	}
	return v.until(ctx, admin, "", refused)
}
