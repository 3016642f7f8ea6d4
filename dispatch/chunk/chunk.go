package chunk

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/varint"
	"github.com/carillonhq/carillon/tenants"
)

// The kinds of chunks.
const (
	FirstTries int16 = 0 // schedules whose nominal time has come
	LaterTries int16 = 1 // ticks that are sent again, or whose worker has not answered
)

const (
	mostInChunk  = 500
	mostAttempts = 250 // fewer, because the keys of ticks are longer than ids
)

// Group is the part of a chunk with one cohort and one nominal time.
type Group struct {
	Cohort   int64
	At       time.Time
	Workflow int // its index in the chunk's workflows
	DST      calendar.DSTNote
	Late     bool
	Drop     bool
	Forced   bool
	Dated    bool // its cohort names calendars, which may be edited before the chunk is opened
	Excluded bool // set by the opening, not packed: the current timing excludes the nominal time
	Quiet    bool
	Missed   int
	IDs      []int64 // of schedules, ascending
}

const (
	lateFlag = 1 << (iota + 2)
	dropFlag
	forcedFlag
	missedFlag
	quietFlag
	datedFlag = 1 << 7
)

// PackGroups packs the groups of a chunk whose earliest nominal time is at: ids as varint deltas, two bytes a tick if a million users
// share a timing. If the groups have several nominal times, a zero comes first, and each group begins with its seconds after at.
func PackGroups(at time.Time, groups []Group) []byte {
	var b []byte
	mixed := slices.ContainsFunc(groups, func(g Group) bool { return !g.At.Equal(at) })
	if mixed {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(groups)))
	for i := range groups {
		g := &groups[i]
		if mixed {
			b = binary.AppendUvarint(b, uint64(g.At.Unix()-at.Unix()))
		}
		b = append(binary.AppendUvarint(b, uint64(g.Cohort)), g.flags())
		b = binary.AppendUvarint(b, uint64(g.Workflow))
		if g.Missed > 0 {
			b = binary.AppendUvarint(b, uint64(g.Missed))
		}
		b = binary.AppendUvarint(b, uint64(len(g.IDs)))
		last := int64(0)
		for _, id := range g.IDs {
			b = binary.AppendUvarint(b, uint64(id-last))
			last = id
		}
	}
	return b
}

func (g *Group) flags() byte {
	flags := byte(g.DST)
	set := func(flag byte, is bool) {
		if is {
			flags |= flag
		}
	}
	set(lateFlag, g.Late)
	set(dropFlag, g.Drop)
	set(forcedFlag, g.Forced)
	set(missedFlag, g.Missed > 0)
	set(quietFlag, g.Quiet)
	set(datedFlag, g.Dated)
	return flags
}

// ErrBroken is the error of packed items that cannot be unpacked.
var ErrBroken = errors.New("the items of a chunk are broken")

// UnpackGroups returns the groups of a chunk of first attempts, whose earliest nominal time is at.
func UnpackGroups(at time.Time, b []byte) ([]Group, error) {
	r := varint.NewReader(b)
	n := r.Count(mostInChunk)
	mixed := n == 0 && len(r.Rest()) > 0
	if mixed {
		n = r.Count(mostInChunk)
	}
	groups := make([]Group, n)
	for i := range groups {
		g := &groups[i]
		if g.At = at; mixed {
			g.At = at.Add(time.Duration(r.Next()) * time.Second)
		}
		g.Cohort = int64(r.Next())
		flags := r.Byte()
		g.DST = calendar.DSTNote(flags & 3)
		g.Late, g.Drop, g.Forced, g.Quiet, g.Dated = flags&lateFlag != 0, flags&dropFlag != 0, flags&forcedFlag != 0, flags&quietFlag != 0, flags&datedFlag != 0
		g.Workflow = r.Count(mostInChunk)
		if flags&missedFlag != 0 {
			g.Missed = int(r.Next())
		}
		g.IDs = make([]int64, r.Count(mostInChunk))
		last := int64(0)
		for j := range g.IDs {
			last += int64(r.Next())
			g.IDs[j] = last
		}
	}
	if !r.Whole() {
		return nil, ErrBroken
	}
	return groups, nil
}

// PackTries packs attempts that are due again.
func PackTries(tries []record.Try) []byte {
	b := binary.AppendUvarint(nil, uint64(len(tries)))
	for _, t := range tries {
		b = binary.AppendUvarint(b, uint64(t.Schedule))
		b = binary.AppendUvarint(b, uint64(t.At.Unix()))
		b = binary.AppendUvarint(b, uint64(t.Seq))
		answer := uint64(0)
		if t.Answer {
			answer = 1
		}
		b = binary.AppendUvarint(b, uint64(t.Attempt)<<1|answer)
	}
	return b
}

// UnpackTries returns the attempts of a chunk of attempts that are due again.
func UnpackTries(b []byte) ([]record.Try, error) {
	r := varint.NewReader(b)
	tries := make([]record.Try, r.Count(1<<16))
	for i := range tries {
		t := &tries[i]
		t.Schedule, t.At, t.Seq = int64(r.Next()), time.Unix(int64(r.Next()), 0).UTC(), int32(r.Next())
		last := r.Next()
		t.Attempt, t.Answer = int16(last>>1), last&1 == 1
	}
	if !r.Whole() {
		return nil, ErrBroken
	}
	return tries, nil
}

// Shares reports whether two chunks of first tries hold the same schedule.
func Shares(a, b []Group) bool {
	ids := map[int64]bool{}
	for _, g := range a {
		for _, id := range g.IDs {
			ids[id] = true
		}
	}
	return slices.ContainsFunc(b, func(g Group) bool {
		return slices.ContainsFunc(g.IDs, func(id int64) bool { return ids[id] })
	})
}

// Chunk is a row of chunk.
type Chunk struct {
	ID        int64
	Shard     int16
	TenantID  tenants.ID
	Kind      int16
	Lane      string
	NominalAt time.Time // the earliest of its ticks
	FirstID   int64
	LastID    int64
	Items     []byte
	Workflows []string
	OpenedAt  *time.Time
	Epoch     int32
	HandAt    *time.Time // its ticks are handed out at this time or later
	Trace     []byte     // the trace.Context of its sweep, stored; nil: no span of it is exported
}

// Columns are the columns of chunk that a Chunk is scanned from.
const Columns = `id, shard, tenant_id, kind, lane, nominal_at, first_id, last_id, items, workflows, opened_at, epoch, hand_at, trace`

// Tries returns the attempts that the chunk may have sent. The error is ErrBroken if its items cannot be unpacked.
func (c *Chunk) Tries() ([]record.Try, error) {
	if c.Kind == LaterTries {
		all, err := UnpackTries(c.Items)
		if err != nil {
			return nil, err
		}
		var sent []record.Try
		for _, t := range all {
			if !t.Answer {
				sent = append(sent, t)
			}
		}
		return sent, nil
	}
	groups, err := UnpackGroups(c.NominalAt, c.Items)
	if err != nil {
		return nil, err
	}
	var all []record.Try
	for _, g := range groups {
		for _, id := range g.IDs {
			t := record.Try{Attempt: 1}
			t.Schedule, t.At = id, g.At
			all = append(all, t)
		}
	}
	return all, nil
}

// OwningChunks returns common table expressions. The last one, owning, holds the owners of open chunks that are not among processes, a
// query of process numbers. It looks between two of those numbers, so that it reads no chunk of theirs: most of these are done, and
// the index keeps an entry of each while an old snapshot is open.
func OwningChunks(processes string) string {
	return `known AS (
				SELECT id, lead(id, 1, 9223372036854775807) OVER (ORDER BY id) AS next
				FROM (` + processes + ` UNION SELECT -9223372036854775808) p (id)
			), owning AS (
				SELECT n.owner, k.next
				FROM known k
				CROSS JOIN LATERAL (
					SELECT owner
					FROM chunk
					WHERE opened_at IS NOT NULL AND done_at IS NULL AND owner > k.id AND owner < k.next
					ORDER BY owner
					LIMIT 1
				) n
				UNION ALL
				SELECT n.owner, o.next
				FROM owning o
				CROSS JOIN LATERAL (
					SELECT owner
					FROM chunk
					WHERE opened_at IS NOT NULL AND done_at IS NULL AND owner > o.owner AND owner < o.next
					ORDER BY owner
					LIMIT 1
				) n
			)`
}
