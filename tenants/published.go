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

// When published keys are fetched. The request that needs them fetches them, so nothing runs without requests.
const (
	keysFresh    = 5 * time.Minute
	keysStale    = time.Hour       // how long old keys stay valid while no fetch succeeds
	fetchGap     = 5 * time.Second // the minimum between two fetches, and the longest that a rotated key waits
	fetchTimeout = 2 * time.Second
	maxKeySet    = 256 << 10
)

// published caches the key sets that issuers publish (RFC 7517 section 5), by address.
type published struct {
	read func(ctx context.Context, uri string) ([]byte, error)
	sets *lru.Cache[string, *keySet]
	mu   sync.Mutex // held while a set is added
}

// keySet is the key set of one address. The holder of slot fetches it and writes its fields.
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

// keys returns the published keys that fit a token. It fetches them if they are older than five minutes or none fits. It returns none
// if the address cannot be read.
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
		if len(known) > 0 { // another request is fetching
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

// known returns the cached keys that fit, and whether a fetch is due.
func (s *keySet) known(fit func([]Key) []Key, now time.Time) (keys []Key, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.fetched) <= keysStale {
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

// fetch reads the key set. It does not stop when the request is cancelled: otherwise a request that is cancelled every five seconds
// would delay a rotation forever.
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
		if k, err := ParseKey(raw); err == nil { // a set may contain keys for other uses
			keys = append(keys, k)
		}
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("the key set has more than %d keys", maxKeys)
	}
	return keys, nil
}
