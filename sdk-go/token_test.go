package carillon_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// vault is a token source that takes a second for each token, and a server that notes the tokens.
type vault struct {
	mu      sync.Mutex
	asked   int
	life    time.Duration // of a token; zero: it names no end
	err     error
	sent    []string
	refuses map[string]bool
}

func (v *vault) source(ctx context.Context) (carillon.AccessToken, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return carillon.AccessToken{}, ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	token := carillon.AccessToken{Token: fmt.Sprint("t", v.asked)}
	if v.life > 0 {
		token.ExpiresAt = time.Now().Add(v.life)
	}
	return token, v.err
}

func (v *vault) RoundTrip(r *http.Request) (*http.Response, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	token := r.Header.Get("Authorization")[len("Bearer "):]
	v.sent = append(v.sent, token)
	if v.refuses[token] {
		return refused(http.StatusUnauthorized, "").response(r), nil
	}
	return answer{status: http.StatusOK, body: "{}"}.response(r), nil
}

func (v *vault) client(t *testing.T) *carillon.Client {
	c, err := carillon.New(carillon.Config{URL: "http://carillon.test", TokenSource: v.source, HTTPClient: &http.Client{Transport: v}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(ctx context.Context, c *carillon.Client) error {
	_, err := c.Workflows.Get(ctx, "w")
	return err
}

func TestATokenIsFetchedOnceForAllCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &vault{life: time.Hour}
		c := v.client(t)
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				if err := get(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if v.asked != 1 || len(v.sent) != 50 {
			t.Errorf("asked %d times for %d requests", v.asked, len(v.sent))
		}
	})
}

func TestATokenIsRenewedBeforeItExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &vault{life: 10 * time.Minute}
		c := v.client(t)
		for range 3 { // after 0, 7 and 14 minutes
			if err := get(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Minute)
		}
		if got := fmt.Sprint(v.sent); got != "[t1 t1 t2]" {
			t.Errorf("sent %s", got)
		}
		v.err = errors.New("the vault is sealed") // the token still counts for three minutes
		time.Sleep(90 * time.Second)
		for range 2 {
			if err := get(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if v.asked != 3 || v.sent[4] != "t2" {
			t.Errorf("asked %d times, sent %s", v.asked, v.sent)
		}
		time.Sleep(10 * time.Minute)
		if err := get(t.Context(), c); !errors.Is(err, v.err) {
			t.Errorf("without any token: got %v", err)
		}
	})
}

func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &vault{refuses: map[string]bool{"t1": true, "t3": true, "t4": true}}
		c := v.client(t)
		if err := get(t.Context(), c); err != nil {
			t.Errorf("with the second token: got %v", err)
		}
		v.refuses["t2"] = true
		if err := get(t.Context(), c); !errors.Is(err, carillon.ErrUnauthorized) {
			t.Errorf("with two refused tokens: got %v", err)
		}
		if got := fmt.Sprint(v.sent); got != "[t1 t2 t2 t3]" {
			t.Errorf("sent %s", got)
		}
	})
}

// A caller that gives up does not take the token away from the others.
func TestACallerThatEndsDoesNotEndTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &vault{life: time.Hour}
		c := v.client(t)
		hurried, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var callers sync.WaitGroup
		callers.Go(func() {
			if err := get(hurried, c); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first caller: got %v", err)
			}
		})
		synctest.Wait()
		callers.Go(func() {
			if err := get(t.Context(), c); err != nil {
				t.Errorf("the second caller: got %v", err)
			}
		})
		callers.Wait()
	})
}
