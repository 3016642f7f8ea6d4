// Package tenants says who asks, what they may do, and how much. A tenant is one customer: every row, quota, token and
// log line belongs to exactly one. Who a request is for comes from its token alone, and a token counts only when all
// that it says has been checked.
package tenants

import (
	"encoding/json"
	"time"

	"github.com/carillonhq/carillon/internal/web"
)

// ID is a tenant in the database. Its name is what tokens and paths bear. 0 is none.
type ID int32

// Tenant is one customer.
type Tenant struct {
	ID        ID
	Name      string
	Status    string // active or suspended
	Quotas    Quotas // with the defaults of what is not set for this tenant
	Issuers   []Issuer
	CreatedAt time.Time
	UpdatedAt time.Time
}

// The states of a tenant. A suspended one's tokens are refused and its schedules do not fire.
const (
	Active    = "active"
	Suspended = "suspended"
)

// Stopped is the SQL condition that the schedules of the tenant in row t of table tenant do not fire: the tenant is halted or
// suspended. All SQL uses this condition.
const Stopped = `(t.halted_at IS NOT NULL OR t.status <> '` + Active + `')`

// Params are what the platform's operator says of a tenant. What is left out is the default, but a status stays: no
// change of a quota wakes a tenant that was suspended.
type Params struct {
	Name    string    `json:"name,omitempty" validate:"omitempty,name"`
	Status  string    `json:"status,omitempty" validate:"omitempty,oneof=active suspended"`
	Quotas  Overrides `json:"quotas,omitempty"`
	Issuers []Issuer  `json:"issuers,omitempty" validate:"max=20"`
}

// Answer is a tenant as the API shows it.
type Answer struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"`
	Quotas    Quotas    `json:"quotas"`
	Issuers   []Issuer  `json:"issuers"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// revision is the version that a tenant's entity tag names: the microsecond of its last change.
func (t Tenant) revision() int64 { return t.UpdatedAt.UnixMicro() }

func (t Tenant) answer() Answer {
	return Answer{t.Name, t.Status, t.Quotas, t.Issuers, t.CreatedAt.UTC(), t.UpdatedAt.UTC()}
}

// Overrides are the quotas that are set for one tenant: a JSON object with some of the members of Quotas.
type Overrides []byte

// UnmarshalJSON keeps the object once it is one of quotas with values that can be.
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

// MarshalJSON writes the object as it was set.
func (o Overrides) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("{}"), nil
	}
	return o, nil
}

// quotas are the overrides with the defaults of what they leave out.
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
