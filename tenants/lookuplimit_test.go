package tenants

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/carillonhq/carillon/internal/fault"
)

// limitedBy tells whether an error is the answer to too many requests of one address.
func limitedBy(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Status == http.StatusTooManyRequests && f.Code == "rate_limited" && f.RetryAfter >= time.Second
}

// A token that only says that it is the platform's causes no look-up of the tenant that it names.
func TestForgedTokensOfThePlatformReachNoDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, forger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	before := w.pool.Stat().AcquireCount()
	for n := range 100 {
		token := w.sign(t, jwt.SigningMethodEdDSA, forger, map[string]any{"kid": nil}, map[string]any{"iss": w.minter.Name(), "tenant": fmt.Sprint("made-up-", n)})
		if _, err := w.verifier.Verify(t.Context(), token); err == nil || err.Error() != unsigned().Error() {
			t.Fatalf("got %v", err)
		}
	}
	if got := w.pool.Stat().AcquireCount() - before; got != 0 {
		t.Errorf("100 forged tokens caused %d calls of the database", got)
	}
}

// Requests of one address may cause look-ups of made-up tenants only at a limited rate. These look-ups remove no tenant from the cache,
// and they stop neither known tenants nor other addresses.
func TestMadeUpTenantsAreLookedForAtALimitedRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.verifier.Tenants
	clock := time.Now()
	d.now = func() time.Time { return clock }
	d.lookups.now = d.now
	from := func(address string) context.Context { return withAddress(t.Context(), address) }
	acme := w.sign(t, jwt.SigningMethodEdDSA, w.ed, nil, nil)
	if _, err := w.verifier.Verify(from("192.0.2.1"), acme); err != nil {
		t.Fatal(err)
	}
	var looked int
	for n := range nameRate.burst + 100 {
		_, err := d.named(from("192.0.2.1"), fmt.Sprint("made-up-", n), false)
		switch {
		case err == nil:
			looked++
		case !limitedBy(err):
			t.Fatal(err)
		}
	}
	if looked != nameRate.burst-1 { // the first look-up was for acme
		t.Errorf("%d made-up tenants were looked for, want %d", looked, nameRate.burst-1)
	}
	if _, err := d.named(from("192.0.2.1"), "made-up-0", false); err != nil {
		t.Errorf("a name that was just looked for: %v", err)
	}
	if d.names.known.Len() != 1 {
		t.Errorf("%d tenants are remembered, want acme", d.names.known.Len())
	}
	clock = clock.Add(cacheFor)
	d.lookups.now = func() time.Time { return clock.Add(-cacheFor) } // the address has gained nothing
	if _, err := w.verifier.Verify(from("192.0.2.1"), acme); err != nil {
		t.Errorf("a known tenant from the address: %v", err)
	}
	if _, err := d.named(from("192.0.2.2"), "other", false); err != nil {
		t.Errorf("another address: %v", err)
	}
	if _, err := d.named(from("192.0.2.1"), "other", true); err != nil {
		t.Errorf("a tenant whose name the platform has signed: %v", err)
	}
}

func TestAddressesHaveBucketsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newLookupLimiter()
	clock := time.Unix(1_800_000_000, 0)
	s.now = func() time.Time { return clock }
	rate := addressRate{perSec: 10, burst: 3}
	take := func(address string) time.Duration { return s.take(withAddress(t.Context(), address), rate) }
	for n := range 3 {
		if wait := take("2001:db8::1"); wait != 0 {
			t.Errorf("look-up %d waits %s", n, wait)
		}
	}
	if wait := take("2001:db8::2"); wait != 100*time.Millisecond {
		t.Errorf("another host of the network waits %s", wait)
	}
	for _, address := range []string{"2001:db8:0:1::1", "192.0.2.1", "192.0.2.2", ""} {
		if wait := take(address); wait != 0 {
			t.Errorf("%q waits %s", address, wait)
		}
	}
	clock = clock.Add(100 * time.Millisecond)
	if wait := take("2001:db8::2"); wait != 0 {
		t.Errorf("a tenth of a second later it waits %s", wait)
	}
	if wait := take("::ffff:192.0.2.1"); wait != 0 || s.fullAt.Len() != 5 {
		t.Errorf("waits %s; %d networks are known", wait, s.fullAt.Len())
	}
}

// Only a limited number of look-ups may wait. Each of these is refused after a second at most, and further ones are refused at once.
func TestLookUpsOfStrangersWaitInALine(t *testing.T) {
	t.Parallel()
	s := newLookupLimiter()
	entered, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	ask := func(n int) {
		ctx := withAddress(t.Context(), fmt.Sprintf("192.0.2.%d", n))
		ended <- s.run(ctx, exchangeRate, func() error { entered <- struct{}{}; <-release; return nil })
	}
	for n := range lookupsRunning {
		go ask(n)
	}
	for range lookupsRunning {
		<-entered
	}
	for n := range lookupsWaiting + 10 {
		go ask(n)
	}
	refused := func(err error) bool {
		f, ok := errors.AsType[*fault.Error](err)
		return ok && f.Status == http.StatusServiceUnavailable && f.RetryAfter > 0
	}
	for range lookupsWaiting + 10 { // ten at once, the others when they have waited
		if err := <-ended; !refused(err) {
			t.Errorf("got %v", err)
		}
	}
	close(release)
	for range lookupsRunning {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
