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

// planVersion is the version of the canonical form that this program writes and reads.
const planVersion = 1

// plan is the canonical form of a timing: everything resolved that a spec leaves open, in one order, without repeats.
type plan struct {
	Version int         `json:"v"`
	Zone    string      `json:"zone"`
	Fields  []fieldPlan `json:"fields,omitempty"`
	Every   []everyPlan `json:"every,omitempty"`
	Rule    *rulePlan   `json:"rule,omitempty"`
	Walls   []wallPlan  `json:"walls,omitempty"`
	Moments []int64     `json:"moments,omitempty"`
	Without *without    `json:"without,omitempty"`
	Start   *int64      `json:"start,omitempty"`
	End     *int64      `json:"end,omitempty"`
	Jitter  int64       `json:"jitter,omitempty"` // seconds
	Quiet   *Quiet      `json:"quiet,omitempty"`
	Moved   []movePlan  `json:"moved,omitempty"`
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

// everyPlan is {Phase + n × Every}: instants, or walls if Civil. Since bounds it below.
type everyPlan struct {
	policies
	Every int64  `json:"every"` // seconds
	Phase int64  `json:"phase"`
	Civil bool   `json:"civil,omitempty"`
	Delay bool   `json:"delay,omitempty"` // Every after the tick before
	Since *int64 `json:"since,omitempty"`
}

type wallPlan struct {
	policies
	Wall wall `json:"w"`
}

// without is what a plan leaves out: fields of whole days and of exact times, days and named calendars.
type without struct {
	Days  []fields `json:"days,omitempty"`
	Times []fields `json:"times,omitempty"`
	Dates []int    `json:"dates,omitempty"`
	Named []string `json:"named,omitempty"`
	Then  string   `json:"then,omitempty"` // next, previous; empty drops
}

// order sorts each list of the plan and removes repeats.
func (p *plan) order() {
	p.Version = planVersion
	p.Fields = sorted(p.Fields)
	p.Every = sorted(p.Every)
	p.Walls = sorted(p.Walls)
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

// sorted is a list in the order of its JSON, each once.
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
		panic("calendar: " + err.Error()) // plans hold numbers and strings only
	}
	return b
}

// Canonical is the timing in a JSON form that is the same for all specs that mean the same, and that FromCanonical reads.
// Anchors, hashed fields and policies are resolved in it; max_ticks, comments and the dates of named calendars are not in it.
func (t *Timing) Canonical() []byte { return encode(t.plan) }

// Hash is a hash of Canonical: equal timings hash alike however they are written.
func (t *Timing) Hash() [16]byte { return t.hash() }

func (t *Timing) hashedOnce() func() [16]byte {
	return sync.OnceValue(func() [16]byte {
		sum := sha256.Sum256(t.Canonical())
		return [16]byte(sum[:16])
	})
}

// ErrNewerForm says that a canonical timing has a version or a member that this program does not know: a newer one wrote it.
var ErrNewerForm = errors.New("a newer program wrote it")

// FromCanonical reads what Canonical wrote. It fails on another version's form (ErrNewerForm if that is newer), and on a zone or a
// named calendar that c lacks.
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

// newer returns ErrNewerForm for a plan that cannot be read because a newer program wrote it: it says so by its version, or it
// can be read but for members that are not known.
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
