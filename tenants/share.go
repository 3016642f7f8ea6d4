package tenants

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2"
)

// What one caller of a tenant leaves to the others while they send requests, too: an API key that runs wild, or a worker, would
// otherwise take all that the tenant may ask.
const (
	othersSeen  = 10 * time.Second // a caller counts as one of the others for so long after a request
	leftPart    = 8                // one in so many of what may be worked on at a time
	mostCallers = 100_000          // quotas of tenants whose callers are remembered
)

// callers remember who asks of a tenant's quotas, in this process. They are safe for concurrent use.
type callers struct {
	now  func() time.Time
	mu   sync.Mutex
	kept *lru.Cache[bucketName, *demand]
}

// demand is who has asked of one quota of late.
type demand struct {
	most string // the only caller that may have sent more than half of the requests (the vote of Boyer and Moore)
	lead int    // how many more of them it sent than all others

	last, before seen // the last caller, and the last one that is another
}

type seen struct {
	caller string
	at     time.Time
}

func newCallers() *callers {
	kept, err := lru.New[bucketName, *demand](mostCallers)
	if err != nil {
		panic(err) // its size is no more than zero
	}
	return &callers{now: time.Now, kept: kept}
}

// note remembers a request of a caller, whether it is let pass or not. It reports whether others sent some too, of late, and
// whether this caller sends more than all of them.
func (k *callers) note(name bucketName, caller string, perSec int) (others, most bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, known := k.kept.Get(name)
	if !known {
		a = &demand{}
		k.kept.Add(name, a)
	}
	now := k.now()
	if a.last.caller != caller {
		a.before = a.last
	}
	a.last = seen{caller, now}
	switch {
	case a.most == caller:
		a.lead = min(a.lead+1, 2*perSec)
	case a.lead == 0:
		a.most, a.lead = caller, 1
	default:
		a.lead--
	}
	others = now.Sub(a.before.at) < othersSeen
	return others, a.most == caller && a.lead > perSec/4
}
