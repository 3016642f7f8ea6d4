package calendar

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// planVersion is the version of the canonical form in this program.
const planVersion = 1

// plan is the canonical form of a timing: all defaults are resolved, and all lists are sorted without duplicates.
type plan struct {
	Version  int            `json:"v"`
	Zone     string         `json:"zone"`
	Fields   []fieldPlan    `json:"fields,omitempty"`
	Every    []everyPlan    `json:"every,omitempty"`
	Rule     *rulePlan      `json:"rule,omitempty"`
	Walls    []wallPlan     `json:"walls,omitempty"`
	Moments  []int64        `json:"moments,omitempty"`
	Relative []relativePlan `json:"relative,omitempty"`
	Without  *without       `json:"without,omitempty"`
	Start    *int64         `json:"start,omitempty"`
	End      *int64         `json:"end,omitempty"`
	Jitter   int64          `json:"jitter,omitempty"` // seconds
	Quiet    Quiet          `json:"quiet,omitempty"`
	Moved    []movePlan     `json:"moved,omitempty"`
}

// policies are the DST policies of a member, never auto.
type policies struct {
	Gap     gapPolicy     `json:"g"`
	Overlap overlapPolicy `json:"o"`
}

type fieldPlan struct {
	policies
	fields
}

// everyPlan is {Phase + n × Every}, from Since on: instants, or wall times if Civil.
type everyPlan struct {
	policies
	Every int64  `json:"every"` // seconds
	Phase int64  `json:"phase"`
	Civil bool   `json:"civil,omitempty"`
	Delay bool   `json:"delay,omitempty"` // Every after the end of the previous tick
	Since *int64 `json:"since,omitempty"`
}

type wallPlan struct {
	policies
	Wall wall `json:"w"`
}

// without has the exclusions of a plan: fields of whole days, fields of exact times, single days and named calendars.
type without struct {
	Days  []fields `json:"days,omitempty"`
	Times []fields `json:"times,omitempty"`
	Dates []int    `json:"dates,omitempty"`
	Named []string `json:"named,omitempty"`
	Then  string   `json:"then,omitempty"` // next, previous; "" drops
}

// order sorts each list of the plan and removes duplicates.
func (p *plan) order() {
	p.Version = planVersion
	p.Fields = sorted(p.Fields)
	p.Every = sorted(p.Every)
	p.Walls = sorted(p.Walls)
	p.Relative = sorted(p.Relative)
	slices.Sort(p.Moments)
	p.Moments = slices.Compact(p.Moments)
	if w := p.Without; w != nil {
		w.Days, w.Times = sorted(w.Days), sorted(w.Times)
		slices.Sort(w.Dates)
		w.Dates = slices.Compact(w.Dates)
		slices.Sort(w.Named)
		w.Named = slices.Compact(w.Named)
	}
}

// sorted returns the list in the order of its elements' JSON, without duplicates.
func sorted[T any](list []T) []T {
	if len(list) < 2 {
		return list
	}
	type keyed struct {
		key string
		one T
	}
	all := make([]keyed, len(list))
	for i, one := range list {
		all[i] = keyed{string(encode(one)), one}
	}
	slices.SortFunc(all, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	out := list[:0]
	for i, k := range all {
		if i == 0 || k.key != all[i-1].key {
			out = append(out, k.one)
		}
	}
	return out
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("calendar: " + err.Error()) // plans contain numbers and strings only
	}
	return b
}

// Canonical returns the timing's canonical form in JSON, which is the same for all specs with the same meaning. FromCanonical reads it.
// Anchors, hashed fields and policies are resolved. max_ticks, comments and the dates of named calendars are not part of it.
func (t *Timing) Canonical() []byte { return encode(t.plan) }

// Hash returns a hash of Canonical. Equal timings have equal hashes.
func (t *Timing) Hash() [16]byte { return t.hash() }

func (t *Timing) hashedOnce() func() [16]byte {
	return sync.OnceValue(func() [16]byte {
		sum := sha256.Sum256(t.Canonical())
		return [16]byte(sum[:16])
	})
}

// ErrNewerForm is the error of a canonical form with a newer version or an unknown member: a newer program wrote it.
var ErrNewerForm = errors.New("a newer program wrote it")

// FromCanonical reads a canonical form. It returns an error for a form of another version (ErrNewerForm for a newer one), and for a zone
// or a named calendar that c lacks.
func FromCanonical(b []byte, c Context) (*Timing, error) {
	p, err := readPlan(b)
	if err != nil {
		return nil, fmt.Errorf("read a canonical timing: %w", err)
	}
	t, faults := p.build(c)
	if len(faults) > 0 {
		return nil, fmt.Errorf("read a canonical timing: %w", faults)
	}
	return t, nil
}

func readPlan(b []byte) (p plan, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, cmp.Or(newer(b), err)
	}
	if p.Version > planVersion {
		return p, ErrNewerForm
	}
	if p.Version != planVersion {
		return p, fmt.Errorf("version %d, not %d", p.Version, planVersion)
	}
	return p, nil
}

// newer returns ErrNewerForm for an unreadable plan of a newer program: its version is newer, or only unknown members make it unreadable.
func newer(b []byte) error {
	var version struct {
		Version int `json:"v"`
	}
	if json.Unmarshal(b, &version) == nil && version.Version > planVersion {
		return ErrNewerForm
	}
	var p plan
	if json.Unmarshal(b, &p) == nil && p.Version == planVersion {
		return ErrNewerForm
	}
	return nil
}
