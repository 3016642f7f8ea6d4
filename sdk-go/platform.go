package carillon

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Platform manages tenants. It needs a token with the scope platform:admin.
type Platform struct{ c *Client }

// TenantParams define a tenant.
type TenantParams struct {
	Status  string           `json:"status,omitempty"`  // "active" or "suspended"; empty: unchanged, or active if it is new
	Quotas  map[string]int64 `json:"quotas,omitempty"`  // by name as in Quotas; the others are the defaults
	Issuers []Issuer         `json:"issuers,omitempty"` // of its tokens

	IfMatch time.Time `json:"-"` // if not zero, the UpdatedAt that must be the stored one
}

// Tenant is a stored tenant.
type Tenant struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"` // "active" or "suspended": its schedules do not fire, and its tokens are refused
	Quotas    Quotas    `json:"quotas"`
	Issuers   []Issuer  `json:"issuers"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Quotas are all limits of a tenant.
type Quotas struct {
	Schedules               int64 `json:"schedules"`
	Subjects                int64 `json:"subjects"` // profiles
	Workflows               int64 `json:"workflows"`
	Endpoints               int64 `json:"endpoints"`
	APIKeys                 int64 `json:"api_keys"`
	RequestsPerSecond       int64 `json:"requests_per_second"`
	UpsertsPerSecond        int64 `json:"upserts_per_second"`
	ConcurrentRequests      int64 `json:"concurrent_requests"`
	ConcurrentBulk          int64 `json:"concurrent_bulk"`
	ConcurrentPolls         int64 `json:"concurrent_polls"`
	Leased                  int64 `json:"leased"`
	SmallestIntervalSeconds int64 `json:"smallest_interval_seconds"`
	PayloadBytes            int64 `json:"payload_bytes"`
	StoredBytes             int64 `json:"stored_bytes"` // of specs, payloads and results
	SpecBytes               int64 `json:"spec_bytes"`
	TicksPerSecond          int64 `json:"ticks_per_second"`
	Running                 int64 `json:"running"`
	RunningPerEndpoint      int64 `json:"running_per_endpoint"`
	ProjectedTicksPerDay    int64 `json:"projected_ticks_per_day"`
	TickRetentionDays       int64 `json:"tick_retention_days"`
	AttemptRetentionDays    int64 `json:"attempt_retention_days"`
	DeadLetterRetentionDays int64 `json:"dead_letter_retention_days"`
	AuditRetentionDays      int64 `json:"audit_retention_days"`
}

// Tenants iterates over the tenants. An error comes once and ends the loop.
func (p Platform) Tenants(ctx context.Context) iter.Seq2[Tenant, error] {
	return pages[Tenant](ctx, p.c, path("platform", "tenants"), url.Values{})
}

// Tenant returns a tenant.
func (p Platform) Tenant(ctx context.Context, name string) (Tenant, error) {
	return get[Tenant](ctx, p.c, path("platform", "tenants", name), nil)
}

// PutTenant creates or replaces a tenant. The change is in force everywhere within 5 s.
func (p Platform) PutTenant(ctx context.Context, name string, params TenantParams) (Tenant, error) {
	return change[Tenant](ctx, p.c, http.MethodPut, path("platform", "tenants", name), params, ifUnchanged(params.IfMatch))
}

// PatchTenant changes parts of an existing tenant.
func (p Platform) PatchTenant(ctx context.Context, name string, params MergePatch) (Tenant, error) {
	return patch[Tenant](ctx, p.c, path("platform", "tenants", name), params.Merge, ifUnchanged(params.IfMatch))
}

// ErasingTenant is a tenant that the server is erasing.
type ErasingTenant struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"` // "suspended"
	ErasingAt time.Time `json:"erasing_at"`
}

// eraseWait is how long one request may erase.
const eraseWait = 2 * time.Minute

// EraseTenant deletes everything of a tenant, and cannot be undone. It returns nil when the tenant is gone. Otherwise the server continues
// by itself. Call EraseTenant again to wait for the end; it then returns nil or ErrNotFound.
func (p Platform) EraseTenant(ctx context.Context, name string, params ...RemoveParams) (*ErasingTenant, error) {
	r := removal(path("platform", "tenants", name), params)
	r.timeout = eraseWait
	body, err := p.c.do(ctx, r)
	if r.lost && errors.Is(err, ErrNotFound) || err == nil && len(body) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	erasing := new(ErasingTenant)
	return erasing, decode(body, erasing)
}

// PlatformOverview is the state of the engine, over all tenants.
type PlatformOverview struct {
	At             time.Time        `json:"at"`
	Processes      []Process        `json:"processes"`         // those that are alive
	Due            int64            `json:"due"`               // due times that no sweep has served yet
	OldestDueAgeMS int64            `json:"oldest_due_age_ms"` // for how long the oldest of them has been due; 0: there is none
	Unopened       int64            `json:"unopened"`          // ticks that were swept and are not handed out
	Queues         map[string]int64 `json:"queues"`            // waiting jobs, by queue
	BrokenPromises int64            `json:"broken_promises"`   // rows that contradict a promise; 0 is health
	Tenants        TenantCounts     `json:"tenants"`
}

// Process is a process of the server.
type Process struct {
	Name      string   `json:"name"`  // host and process id
	Roles     []string `json:"roles"` // "api", "sweep", "dispatch"
	Version   string   `json:"version"`
	BeatAgeMS int64    `json:"beat_age_ms"` // the age of its last heartbeat
	Shards    int      `json:"shards"`      // how many of the 64 shards it sweeps
}

// TenantCounts counts tenants by status.
type TenantCounts struct {
	Active    int64 `json:"active"`
	Suspended int64 `json:"suspended"` // with those that are being erased
	Erasing   int64 `json:"erasing"`
}

// Overview returns the state of the engine.
func (p Platform) Overview(ctx context.Context) (PlatformOverview, error) {
	return get[PlatformOverview](ctx, p.c, path("platform", "overview"), nil)
}

// TenantUse is what a tenant used on a day of UTC, and what it stores now.
type TenantUse struct {
	Tenant      string `json:"tenant"`
	Day         string `json:"day"`   // "2027-01-01"
	Ticks       int64  `json:"ticks"` // recorded on the day
	Succeeded   int64  `json:"succeeded"`
	Failed      int64  `json:"failed"`
	Cancelled   int64  `json:"cancelled"`
	Skipped     int64  `json:"skipped"`
	Missed      int64  `json:"missed"`
	Schedules   int64  `json:"schedules"`    // now
	Subjects    int64  `json:"subjects"`     // profiles, now
	StoredBytes int64  `json:"stored_bytes"` // now
}

// Usage iterates over what the tenants used on a day such as "2027-01-01", by name; an empty day is today. An error comes once and ends the
// loop.
func (p Platform) Usage(ctx context.Context, day string) iter.Seq2[TenantUse, error] {
	q := query{}
	q.text("day", day)
	return pages[TenantUse](ctx, p.c, path("platform", "usage"), url.Values(q))
}

// Audit iterates over the changes that the platform's operators made to tenants, newest first. An error comes once and ends the loop.
func (p Platform) Audit(ctx context.Context, f AuditFilter) iter.Seq2[AuditEntry, error] {
	return pages[AuditEntry](ctx, p.c, path("platform", "audit"), f.query())
}
