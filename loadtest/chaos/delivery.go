package chaos

import (
	"bytes"
	"slices"
	"time"
)

// deliveries checks the receipts of one tick at endpoints and workers: I2, I3, I5, I6 and I9.
func (c *checker) deliveries(id string, list []*receipt) {
	first, recorded := list[0], c.byID[id]
	n := first.name(first.Tenant)
	if recorded == nil {
		if inSpan := !first.Timestamp.After(c.record.judged) && !first.Timestamp.Before(c.record.began); inSpan && !c.early {
			c.violate("I8", n, &first.tick, "a received tick is not in the record")
		}
		return
	}
	var before *receipt
	for _, r := range list {
		if r.At.Before(r.Timestamp) {
			c.violate("I2", n, &r.tick, "it was received %s before its time", r.Timestamp.Sub(r.At))
		}
		if !r.Signed || r.ID != r.TickID {
			c.violate("I5", n, &r.tick, "its signature does not verify, or its webhook-id is %s", r.ID)
		}
		if o := r.owner(); o.Tenant != r.Tenant {
			c.violate("I9", n, &r.tick, "tenant %s received a tick of tenant %s", r.Tenant, o.Tenant)
		} else if o.Key != r.Key {
			c.violate("I5", n, &r.tick, "its payload is of key %q", o.Key)
		}
		if !bytes.Equal(r.Payload, first.Payload) {
			c.violate("I5", n, &r.tick, "its payload is %s, and was %s before", r.Payload, first.Payload)
		}
		if !c.early || recorded.EndedAt != nil { // a tick that waited when the record was read may have been released since
			c.asRecorded(n, r, recorded)
		}
		if r.Outcome != taken {
			continue
		}
		if before != nil && !c.troubles.near(before.At, before.Done.Add(2*time.Second), doubtfulFor) {
			c.violate("I6", n, &r.tick, "it was taken at %s and again at %s, and no acknowledgement can have been lost",
				before.Done.Format("15:04:05.000"), r.Done.Format("15:04:05.000"))
		}
		before = r
	}
	if before != nil && recorded.State == "failed" && !c.troubles.near(before.At, before.Done.Add(2*time.Second), doubtfulFor) {
		c.violate("I6", n, recorded, "it was taken, and is recorded as failed")
	}
	c.asDefined(n, first)
}

// asRecorded compares a message with the record of its tick.
func (c *checker) asRecorded(n name, r *receipt, t *tick) {
	same := r.Timestamp.Equal(t.Timestamp) && r.ScheduleID == t.ScheduleID && r.Workflow == t.Workflow && r.Key == t.Key &&
		r.MissedCount == t.MissedCount && r.Version == t.Version &&
		(r.LastTimestamp == nil) == (t.LastTimestamp == nil) && (r.LastTimestamp == nil || r.LastTimestamp.Equal(*t.LastTimestamp)) &&
		(r.Occurrence == nil) == (t.Occurrence == nil) && (r.Occurrence == nil || *r.Occurrence == *t.Occurrence)
	if !same {
		c.violate("I3", n, &r.tick, "the message differs from the record: last %v, occurrence %v, missed %d, version %d; recorded last %v, occurrence %v, missed %d, version %d",
			r.LastTimestamp, deref(r.Occurrence), r.MissedCount, r.Version, t.LastTimestamp, deref(t.Occurrence), t.MissedCount, t.Version)
	}
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// asDefined compares a message with the definition that it names: the payload, byte for byte, and the upcoming times.
func (c *checker) asDefined(n name, r *receipt) {
	b := c.lives[n]
	if b == nil || !b.doubt.IsZero() {
		return
	}
	for _, l := range b.lives {
		d := l.versions[r.Version]
		if l.id != r.ScheduleID || d == nil {
			continue
		}
		if string(r.Payload) != d.payload {
			c.violate("I5", n, &r.tick, "its payload is %s, and version %d has %s", r.Payload, r.Version, d.payload)
		}
		if r.timed() && !c.foretold(l, r, d) {
			c.violate("I3", n, &r.tick, "upcoming is %v", r.Upcoming)
		}
	}
}

// foretold reports whether upcoming follows from the timing of the tick's version, or from that of an era in which the tick may have been
// swept. A tick that waits while its key gets other versions uses the calendar of the moment at which it is delivered.
func (c *checker) foretold(l *life, r *receipt, d *definition) bool {
	timings := []*timing{&d.timing}
	for _, e := range l.eras {
		edited := d.timing.out.named && e.timing.out.named && e.fromA.Before(r.At) // each attempt uses the calendar of its own moment
		if e.may(r.Timestamp) || edited {
			timings = append(timings, e.timing)
		}
	}
	if d.timing.out.named {
		for _, holiday := range c.history.holidays(r.Tenant, r.Timestamp, r.At) {
			t := d.timing
			t.out.holiday = holiday
			timings = append(timings, &t)
		}
	}
	return slices.ContainsFunc(timings, func(t *timing) bool {
		if t.kind == delayed { // the next time depends on the end of this tick
			return true
		}
		want := t.next(r.Timestamp, 5, r.Timestamp.Add(8*24*time.Hour))
		if t.most > 0 || t.kind == once { // a message does not show how many ticks are left
			return len(r.Upcoming) <= len(want) && slices.EqualFunc(r.Upcoming, want[:len(r.Upcoming)], time.Time.Equal)
		}
		return slices.EqualFunc(r.Upcoming, want, time.Time.Equal)
	})
}
