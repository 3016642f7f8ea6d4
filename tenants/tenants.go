// Package tenants authenticates requests, checks their scopes, and enforces the quotas of tenants. A tenant is one customer; every row,
// quota, token and log line belongs to exactly one tenant.
//
//   - In: requests with a token, and API keys to exchange for tokens. Verifier checks every claim of a token; only the token determines
//     the tenant.
//   - Out: an Identity with tenant, subject and scopes; answers 401, 403, 429 and 503. Directory caches tenants for two seconds.
//   - Tables: tenant, api_key, audit, bucket, happening and setting.
//   - Locks: a tenant's row while it is changed and while an API key is created.
//   - Crash: a process loses the tokens that it took from a bucket (a tenth of a second's worth), and up to 30 s of API key uses.
package tenants

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/carillonhq/carillon/internal/web"
)

// ID identifies a tenant in the database. Tokens and paths contain its name instead. 0 is no tenant.
type ID int32

// Tenant is one customer.
type Tenant struct {
	ID        ID
	Name      string
	Status    string   // active or suspended
	Quotas    Quotas   // overrides and defaults
	Issuers   []Issuer // set by the platform
	Own       []Issuer // set by the tenant's operator
	CreatedAt time.Time
	UpdatedAt time.Time
}

// issuer returns the issuer with a name; nil: the tenant has none.
func (t *Tenant) issuer(name string) *Issuer {
	for _, set := range [][]Issuer{t.Issuers, t.Own} {
		if i := slices.IndexFunc(set, func(i Issuer) bool { return i.Name == name }); i >= 0 {
			return &set[i]
		}
	}
	return nil
}

// The states of a tenant. The tokens of a suspended tenant are invalid, and its schedules do not fire.
const (
	Active    = "active"
	Suspended = "suspended"
)

// Stopped is an SQL condition on row t of table tenant: the tenant is halted or suspended, so its schedules do not fire. All SQL uses
// this condition.
const Stopped = `(t.halted_at IS NOT NULL OR t.status <> '` + Active + `')`

// Params is the body of a PUT of a tenant by the platform's operator. An absent member gets its default, except the status, which stays:
// a change of a quota must not activate a suspended tenant.
type Params struct {
	Name    string    `json:"name,omitempty" validate:"omitempty,name"`
	Status  string    `json:"status,omitempty" validate:"omitempty,oneof=active suspended"`
	Quotas  Overrides `json:"quotas,omitempty"`
	Issuers []Issuer  `json:"issuers,omitempty" validate:"max=20"`
}

// Answer is a tenant as the API returns it.
type Answer struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"`
	Quotas    Quotas    `json:"quotas"`
	Issuers   []Issuer  `json:"issuers"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// revision returns the version in a tenant's entity tag: the time of its last change in microseconds.
func (t Tenant) revision() int64 { return t.UpdatedAt.UnixMicro() }

func (t Tenant) answer() Answer {
	return Answer{t.Name, t.Status, t.Quotas, t.Issuers, t.CreatedAt.UTC(), t.UpdatedAt.UTC()}
}

// Overrides are the quotas set for one tenant: a JSON object with some of the members of Quotas.
type Overrides []byte

// UnmarshalJSON checks the object and stores its bytes.
func (o *Overrides) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*o = nil
		return nil
	}
	q := Defaults()
	if err := web.Unmarshal(b, &q); err != nil {
		return err
	}
	*o = append((*o)[:0], b...)
	return nil
}

// MarshalJSON writes the stored bytes.
func (o Overrides) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("{}"), nil
	}
	return o, nil
}

// quotas returns the overrides completed with the defaults.
func (o Overrides) quotas() (Quotas, error) {
	q := Defaults()
	q.ProjectedTicksPerDay = 0
	if len(o) > 0 {
		if err := json.Unmarshal(o, &q); err != nil {
			return q, err
		}
	}
	if q.ProjectedTicksPerDay == 0 {
		q.ProjectedTicksPerDay = secondsPerDay * q.TicksPerSecond
	}
	return q, nil
}
