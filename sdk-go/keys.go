package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// QuietHours is the daily time in which a key gets no ticks: from From until before To, as wall times in its zone ("22:00").
type QuietHours struct {
	From string `json:"from"`
	To   string `json:"to"`
	Then string `json:"then,omitempty"` // defer (default): the last tick inside fires at the end; skip: none fires
}

// KeyParams define the profile of a key. Schedules with the time zone "@key" follow it.
type KeyParams struct {
	Timezone   string      `json:"timezone"`
	QuietHours *QuietHours `json:"quiet_hours,omitempty"`

	IfMatch int64 `json:"-"` // if not zero, the version that must be the stored one
}

// Key is the stored profile of a key, over all workflows.
type Key struct {
	Key        string      `json:"key"`
	Timezone   string      `json:"timezone"`
	QuietHours *QuietHours `json:"quiet_hours"`
	Version    int64       `json:"version"`
	CreatedAt  time.Time   `json:"created_at"`
	UpdatedAt  time.Time   `json:"updated_at"`
	UpdatedBy  string      `json:"updated_by"`
}

// KeyRetiming is the stored profile of a key. Operation is not nil if more than 500 schedules follow the profile: it retimes
// them after the answer, and [Client.Operation] returns its progress.
type KeyRetiming struct {
	Key
	Operation *Operation `json:"operation"`
}

// Erasure is the receipt of a key's erasure. KeyHash does not reveal the key, and is the same for the same key.
type Erasure struct {
	KeyHash  string        `json:"key_hash"`
	ErasedAt time.Time     `json:"erased_at"`
	ErasedBy string        `json:"erased_by"`
	Counts   ErasureCounts `json:"counts"`
}

// ErasureCounts counts what was stored of an erased key.
type ErasureCounts struct {
	Profiles  int   `json:"profiles"`
	Schedules int   `json:"schedules"`
	Revisions int   `json:"revisions"`
	Ticks     int64 `json:"ticks"`
	Attempts  int64 `json:"attempts"`
	Answers   int64 `json:"answers"`
}

// PutKey stores the profile of a key, and retimes the schedules that follow it, or begins the operation that retimes them.
func (c *Client) PutKey(ctx context.Context, key string, p KeyParams) (KeyRetiming, error) {
	body, err := encode(p)
	if err != nil {
		return KeyRetiming{}, err
	}
	return read[KeyRetiming](ctx, c, &call{method: http.MethodPut, path: path("keys", key), body: body, header: ifMatch(p.IfMatch)})
}

// Key returns the profile of a key.
func (c *Client) Key(ctx context.Context, key string) (Key, error) {
	return read[Key](ctx, c, &call{method: http.MethodGet, path: path("keys", key)})
}

// Keys iterates over the profiles of the keys that begin with a prefix. An error comes once and ends the loop.
func (c *Client) Keys(ctx context.Context, prefix string) iter.Seq2[Key, error] {
	q := query{}
	q.text("key_prefix", prefix)
	return pages[Key](ctx, c, path("keys"), url.Values(q))
}

// EraseKey erases everything that is stored of a key in all workflows, with its history. It cannot be undone. The token needs the scope
// subjects:erase. If p has an IfMatch, the profile must have that version.
func (c *Client) EraseKey(ctx context.Context, key string, p ...DeleteParams) (Erasure, error) {
	r := &call{method: http.MethodDelete, path: path("keys", key)}
	for _, one := range p {
		r.header = ifMatch(one.IfMatch)
	}
	return read[Erasure](ctx, c, r)
}

// RenameKey renames a key: its schedules in all workflows, their history and its profile. No time moves. It returns ErrConflict if a workflow
// already has a schedule with the new name.
func (c *Client) RenameKey(ctx context.Context, key, to string) error {
	body, err := encode(struct {
		To string `json:"to"`
	}{to})
	if err != nil {
		return err
	}
	_, err = read[struct{}](ctx, c, &call{method: http.MethodPost, path: path("keys", key, "rename"), body: body, header: idempotent("")})
	return err
}
