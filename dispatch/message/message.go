package message

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/schedules/cohorts"
	lru "github.com/hashicorp/golang-lru/v2"
)

// Config has the dependencies of Messages.
type Config struct {
	IDs      ident.Codec
	Timings  *cohorts.Timings
	LeaseKey []byte // signs lease tokens; all processes share it
	Log      *slog.Logger
}

// Messages makes what workers receive for ticks, and their lease tokens. It is safe for concurrent use.
type Messages struct {
	Config
	times *timeCache
	macs  sync.Pool // of hash.Hash with LeaseKey
}

// New returns Messages with an empty cache.
func New(c Config) *Messages {
	return &Messages{Config: c, times: newTimeCache()}
}

// Message is what a worker receives for a tick, the same whether the tick is pushed or leased.
type Message struct {
	*record.Tick
	Workflow        string
	WorkflowVersion string // of the time when the tick fired; empty: the workflow had none
	Expired         bool   // the tick is later than its max_lateness
	MaxAttempts     int16
	Timeout         time.Duration // how long this attempt may run, in whole seconds
	Token           string
	Content         record.Content

	ID, Schedule string // Messages.Complete sets these and When
	When         []byte
}

// Context returns the trace that the tick continues: see record.Tick.TraceOf.
func (m *Message) Context() trace.Context { return m.TraceOf(m.ID) }

// AppendJSON appends the message as JSON. It copies the payload as the client sent it.
func (m *Message) AppendJSON(b []byte) []byte {
	b = append(slices.Grow(b, m.size()), `{"tick_id":"`...)
	b = append(b, m.ID...)
	b = append(b, `","schedule_id":"`...)
	b = append(b, m.Schedule...)
	b = append(b, `","workflow":"`...)
	b = append(b, m.Workflow...)
	b = append(b, `","key":`...)
	b = appendString(b, m.Content.Key)
	b = append(b, `,"subject":`...)
	b = appendString(b, *cmp.Or(m.Content.Subject, &m.Content.Key))
	b = append(b, `,"labels":`...)
	b = append(b, *cmp.Or(m.Content.Labels, &noLabels)...)
	b = append(b, ',')
	b = append(b, m.When...)
	b = append(b, `,"last_timestamp":`...)
	if m.LastAt == nil {
		b = append(b, "null"...)
	} else {
		b = AppendTime(b, *m.LastAt)
	}
	b = append(b, `,"fired_at":"`...)
	b = m.FiredAt.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	b = append(b, `","lateness_ms":`...)
	b = strconv.AppendInt(b, m.FiredAt.Sub(m.NominalAt).Milliseconds(), 10)
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(m.Attempt), 10)
	b = append(b, `,"max_attempts":`...)
	b = strconv.AppendInt(b, int64(m.MaxAttempts), 10)
	b = append(b, `,"timeout":"`...)
	b = strconv.AppendInt(b, int64(m.Timeout/time.Second), 10)
	b = append(b, `s","occurrence":`...)
	if m.Occurrence == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, *m.Occurrence, 10)
	}
	b = append(b, `,"missed_count":`...)
	b = strconv.AppendInt(b, int64(m.MissedCount), 10)
	b = append(b, `,"cause":"`...)
	b = append(b, m.Cause.String()...)
	b = append(b, `","dst":"`...)
	b = append(b, m.DST.String()...)
	b = append(b, `","schedule_version":`...)
	b = strconv.AppendInt(b, int64(m.Version), 10)
	b = append(b, `,"workflow_version":`...)
	b = appendOptional(b, m.WorkflowVersion)
	b = append(b, `,"expired":`...)
	b = strconv.AppendBool(b, m.Expired)
	b = m.Context().AppendText(append(b, `,"traceparent":"`...))
	b = append(b, `","lease_token":"`...)
	b = append(b, m.Token...)
	b = append(b, `","payload":`...)
	if m.Content.Payload == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, *m.Content.Payload...)
	}
	return append(b, '}')
}

// size returns about how many bytes the JSON has, so that it is rarely copied while it grows.
func (m *Message) size() int {
	const names = 640 // and the values that are short
	n := names + len(m.Workflow) + 2*len(m.Content.Key) + len(m.When) + len(m.Token)
	for _, text := range []*string{m.Content.Subject, m.Content.Labels, m.Content.Payload} {
		if text != nil {
			n += len(*text)
		}
	}
	return n
}

var noLabels = "{}"

// appendOptional appends a string, or null if it is empty.
func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

func appendString(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always encodes
	return append(b, quoted...)
}

// AppendTime appends a time as a JSON string: RFC 3339, in UTC, whole seconds.
func AppendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339)
	return append(b, '"')
}

// timeCache is an LRU of the part of a message that all members of a cohort share: the nominal time in UTC and in the zone, and the
// upcoming times.
type timeCache struct {
	cached *lru.Cache[timeKey, []byte]
}

type timeKey struct {
	timing *calendar.Timing
	at     int64
	until  int64 // the last nominal time; the end of time if there is none
}

func newTimeCache() *timeCache {
	cached, err := lru.New[timeKey, []byte](10_000)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return &timeCache{cached}
}

const upcomingSent = 5 // times in a message

func (c *timeCache) get(t *calendar.Timing, at time.Time, until *time.Time) []byte {
	key := timeKey{t, at.Unix(), record.EndOfTime.Unix()}
	if until != nil {
		key.until = until.Unix()
	}
	if b, ok := c.cached.Get(key); ok {
		return b
	}
	b := append([]byte(nil), `"timestamp":`...)
	b = AppendTime(b, at)
	b = append(b, `,"local_time":"`...)
	b = t.Local(at).AppendFormat(b, time.RFC3339)
	b = append(b, `","timezone":"`...)
	b = append(b, t.Zone()...)
	b = append(b, `","upcoming":[`...)
	after, most := at, upcomingSent
	if sabotage.UpcomingFromNow.On() {
		after = time.Now()
	}
	if _, delays := t.FixedDelay(); delays {
		most = 0 // the next time depends on the end of this tick
	}
	for i := range most {
		next, ok := t.Next(after)
		if !ok || next.At.Unix() > key.until {
			break
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendTime(b, next.At)
		after = next.At
	}
	b = append(b, ']')
	c.cached.Add(key, b)
	return b
}

// Complete returns m with its ids and times set. timing is the timing of the tick's cohort.
func (s *Messages) Complete(m Message, timing *calendar.Timing) Message {
	k := m.Tick.RowKey()
	if sabotage.NewIDs.On() {
		k.Seq += int32(m.Attempt-1) << 16
	}
	m.ID, m.Schedule, m.When = s.IDs.Tick(k), s.IDs.Schedule(m.ScheduleID), s.times.get(timing, m.NominalAt.UTC(), m.UntilAt)
	return m
}
