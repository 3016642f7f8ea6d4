package tenants

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2"
)

// Fairness between the callers of one tenant. The busiest caller leaves a part of each quota to the others while they send requests.
// Otherwise one faulty API key or worker could use all of the tenant's quotas.
const (
	othersSeen = 10 * time.Second // how long a caller counts as active after a request
	leftPart   = 8                // one of so many concurrent requests is left to the others
	maxDemands = 100_000          // quotas of tenants in memory
)

// callers records the recent callers of each tenant's quotas in this process. It is safe for concurrent use.
type callers struct {
	now     func() time.Time
	mu      sync.Mutex
	demands *lru.Cache[bucketName, *demand]
}

// demand describes the recent callers of one quota.
type demand struct {
	most string // the only caller that may have sent more than half of the requests (majority vote of Boyer and Moore)
	lead int    // how many more requests it has sent than all others together

	last, before seen // the last caller, and the last other caller
}

type seen struct {
	caller string
	at     time.Time
}

func newCallers() *callers {
	demands, err := lru.New[bucketName, *demand](maxDemands)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return &callers{now: time.Now, demands: demands}
}

// note records a request of a caller, allowed or refused. It reports whether other callers have sent requests recently, and whether this
// caller sends more than all of them together.
func (k *callers) note(name bucketName, caller string, perSec int) (others, most bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, known := k.demands.Get(name)
	if !known {
		a = &demand{}
		k.demands.Add(name, a)
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
