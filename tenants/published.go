package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/internal/web"
)

// When published keys are fetched. They are fetched by the request that needs them, so nothing runs when nobody asks.
const (
	keysFresh    = 5 * time.Minute
	keysKept     = time.Hour       // after they were fetched last, where they cannot be fetched again
	fetchGap     = 5 * time.Second // an unknown kid makes us fetch no oftener; a rotation waits no longer
	fetchTimeout = 2 * time.Second
	maxKeySet    = 256 << 10
)

// published are the key sets that issuers publish (RFC 7517 section 5), by address.
type published struct {
	read func(ctx context.Context, uri string) ([]byte, error)
	sets *lru.Cache[string, *keySet]
	mu   sync.Mutex // over making a set
}

// keySet is what one address publishes. Who holds its slot may fetch it and write its fields.
type keySet struct {
	slot    chan struct{}
	mu      sync.Mutex
	keys    []Key
	fetched time.Time
	tried   time.Time
}

func newPublished(o web.Outbound) *published {
	sets, err := lru.New[string, *keySet](10_000)
	if err != nil {
		panic(err)
	}
	return &published{read: o.Reader(fetchTimeout, maxKeySet), sets: sets}
}

// keys are the published keys that fit a token. They are fetched where they are older than five minutes or none fits.
// It returns none where the address cannot be read.
func (p *published) keys(ctx context.Context, uri string, fit func([]Key) []Key, now time.Time) ([]Key, error) {
	set := p.set(uri)
	known, due := set.known(fit, now)
	if !due {
		return known, nil
	}
	select {
	case set.slot <- struct{}{}:
		defer func() { <-set.slot }()
	default:
		if len(known) > 0 { // another request is at it already
			return known, nil
		}
		select {
		case set.slot <- struct{}{}:
			defer func() { <-set.slot }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if known, due = set.known(fit, now); !due {
		return known, nil
	}
	keys, err := p.fetch(ctx, uri)
	set.note(keys, err, now)
	known, _ = set.known(fit, now)
	return known, nil
}

func (p *published) set(uri string) *keySet {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.sets.Get(uri); ok {
		return s
	}
	s := &keySet{slot: make(chan struct{}, 1)}
	p.sets.Add(uri, s)
	return s
}

// known are the keys that fit, and whether it is time to fetch.
func (s *keySet) known(fit func([]Key) []Key, now time.Time) (keys []Key, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.fetched) <= keysKept {
		keys = fit(s.keys)
	}
	due = now.Sub(s.fetched) > keysFresh || len(keys) == 0
	return keys, due && now.Sub(s.tried) >= fetchGap
}

func (s *keySet) note(keys []Key, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = now
	if err == nil {
		s.keys, s.fetched = keys, now
	}
}

// fetch reads the key set. It goes on though the request that needs it was given up: else one request that is given up
// each five seconds would hold off a rotation.
func (p *published) fetch(ctx context.Context, uri string) ([]Key, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	b, err := p.read(ctx, uri)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	var keys []Key
	for _, raw := range doc.Keys {
		if k, err := ParseKey(raw); err == nil { // a set may hold keys for other ends
			keys = append(keys, k)
		}
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("the key set has more than %d keys", maxKeys)
	}
	return keys, nil
}
