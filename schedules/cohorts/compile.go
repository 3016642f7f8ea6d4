package cohorts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// ErrUncomputable is the error of a stored spec that could be computed when it was put and now cannot be.
var ErrUncomputable = errors.New("the spec cannot be computed")

// Uncomputable reports whether the cause of an error is a stored spec or timing that cannot be computed, and not the database.
func Uncomputable(err error) bool { return errors.Is(err, ErrUncomputable) }

// Identity names a schedule for hashes that must not change: the H in a cron, and jitter.
func Identity(tenant tenants.ID, workflow, key string) string {
	return strconv.Itoa(int(tenant)) + "/" + workflow + "/" + key
}

// Compile compiles a spec for a schedule; faults are located below /spec.
func Compile(spec calendar.Spec, c calendar.Context) (*calendar.Timing, error) {
	t, err := calendar.Compile(spec, c)
	if err != nil {
		return nil, SpecFault(err)
	}
	return t, nil
}

// CalendarsOf returns the named calendars of a spec, each once.
func CalendarsOf(spec calendar.Spec) []string {
	if spec.Exclude == nil || len(spec.Exclude.Named) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(spec.Exclude.Named)))
}

// StoredSpec is the spec of one version of a schedule, with everything else from which its timing is compiled.
type StoredSpec struct {
	Tenant        tenants.ID
	ID            int64 // of the schedule, for errors
	Workflow, Key string
	Spec          string
	AnchorAt      time.Time
	Subject       string // whose profile FromSpec reads
	Moves         []calendar.Move
	Profile       Profile
	Compiled      *calendar.Timing // the spec by the present calendars, without moves; nil: it is not compiled yet
}

// Identity returns the name of the schedule from which H and jitter are hashed.
func (s StoredSpec) Identity() string {
	return Identity(s.Tenant, s.Workflow, s.Key)
}

func (s StoredSpec) context() calendar.Context { return s.Profile.Context(s.AnchorAt, s.Identity()) }

// Meaning compiles the spec without looking up what its calendars hold: enough to tell whether two specs mean the same.
func (s StoredSpec) Meaning() (*calendar.Timing, error) {
	var spec calendar.Spec
	if err := json.Unmarshal([]byte(s.Spec), &spec); err != nil {
		return nil, fmt.Errorf("spec of schedule %d: %w: %w", s.ID, ErrUncomputable, err)
	}
	c := s.context()
	c.Named = func(string) ([]calendar.Date, bool) { return nil, true }
	return s.compiled(spec, c)
}

func (s StoredSpec) compiled(spec calendar.Spec, c calendar.Context) (*calendar.Timing, error) {
	t, err := Compile(spec, c)
	if err != nil {
		return nil, fmt.Errorf("spec of schedule %d: %w: %v", s.ID, ErrUncomputable, err) // not as a fault: the caller has not sent it
	}
	return s.moved(t), nil
}

func (s StoredSpec) moved(t *calendar.Timing) *calendar.Timing {
	if len(s.Moves) > 0 {
		return t.Moved(s.Moves)
	}
	return t
}

// CompileStored compiles a stored spec with the present calendars. If the spec cannot be computed, the error is ErrUncomputable.
func (ts *Timings) CompileStored(ctx context.Context, db postgres.DB, s StoredSpec) (*calendar.Timing, error) {
	if s.Compiled != nil {
		return s.moved(s.Compiled), nil
	}
	spec, err := ts.Spec(s.Spec)
	if err != nil {
		return nil, fmt.Errorf("spec of schedule %d: %w: %w", s.ID, ErrUncomputable, err)
	}
	a, err := ts.CalendarsNow(ctx, db, s.Tenant, CalendarsOf(spec))
	if err != nil {
		return nil, err
	}
	return s.compiled(spec, a.In(s.context()))
}

// FromSpec compiles a stored spec with the present profile of its subject. broken is the reason why the spec cannot be computed; err is
// an error of the database.
func (ts *Timings) FromSpec(ctx context.Context, db postgres.DB, s StoredSpec) (t *calendar.Timing, broken, err error) {
	follower := Follower{s.Workflow, s.Subject}
	found, err := ReadProfiles(ctx, db, s.Tenant, follower)
	if err != nil {
		return nil, nil, err
	}
	s.Profile = found[follower]
	if t, err = ts.CompileStored(ctx, db, s); errors.Is(err, ErrUncomputable) {
		return nil, err, nil
	}
	return t, nil, err
}

// Spec reads the text of a stored spec. Callers share the result and must not change it.
func (ts *Timings) Spec(text string) (calendar.Spec, error) {
	if known, ok := ts.specs.Get(text); ok {
		return known, nil
	}
	var spec calendar.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return spec, err
	}
	if len(text) <= longestKept {
		ts.specs.Add(text, spec)
	}
	return spec, nil
}

// longestKept is the length in bytes of the longest text whose spec is cached.
const longestKept = 512

// wording is the key of cached warnings: a timing, and a hash of the text of its spec. Warnings depend on both.
type wording struct {
	timingKey
	spec [sha256.Size]byte
}

// dated holds the warnings of one day. They are cached because the spec must be compiled to find them.
type dated struct {
	day  int64
	list []calendar.Warning
}

// Warnings returns the warnings of a stored spec as of the day of now. t is the timing that the schedule fires by, and cohort the
// cohort of that timing; nil: the schedule does not fire.
func (ts *Timings) Warnings(ctx context.Context, db postgres.DB, s StoredSpec, cohort *CohortTiming, t *calendar.Timing, now time.Time) []calendar.Warning {
	key, day := wording{spec: sha256.Sum256([]byte(s.Spec))}, now.Unix()/secondsPerDay
	if cohort != nil {
		key.timingKey = cohort.key()
	} else {
		key.timingKey = timingKey{hash: t.Hash(), tzdata: t.Zones().Version()}
	}
	if known, ok := ts.warned.Get(key); ok && known.day == day {
		return known.list
	}
	if own, err := ts.CompileStored(ctx, db, s); err == nil {
		t = own // the cached timing may come from a spec with another text
	}
	list := t.Warnings(now)
	ts.warned.Add(key, dated{day, list})
	return list
}

const secondsPerDay = 24 * 60 * 60

// SpecFault returns the faults of a spec as its sender sees them: each has a pointer below /spec and its place in the text. It returns
// any other error unchanged.
func SpecFault(err error) error {
	faults, ok := errors.AsType[calendar.Faults](err)
	if !ok {
		return err
	}
	fields := make([]fault.Field, len(faults))
	for i, f := range faults {
		fields[i] = fault.Field{Pointer: "/spec" + f.Pointer, Code: f.Code, Detail: f.Detail}
		if f.Position >= 0 {
			fields[i].Detail += fmt.Sprintf(" (at byte %d)", f.Position)
		}
	}
	return fault.Fields(fields...)
}
