package carillontest

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/calendar"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// tick is one firing of a schedule, with its lease if it has one.
type tick struct {
	of         *schedule
	number     int
	at         time.Time // nominal
	last       *time.Time
	firedAt    time.Time
	endedAt    *time.Time
	state      string
	reason     string // why it is skipped, or why it is told to stop while it runs
	cause      string
	dst        calendar.DSTNote
	timed      bool // it is of the schedule's timing, and not manual
	aside      bool // it was replayed
	missed     int
	occurrence *int64
	version    int64

	workflowVersion string
	def             *definition // of the schedule, when it fired
	payload         rawJSON     // of its own; empty: the schedule's
	subject         string
	timing          *calendar.Timing
	until           *time.Time // the last time of the schedule; nil: no limit

	attempt  int
	first    int // the attempts before the last replay, which do not count
	attempts []carillon.Attempt
	result   rawJSON
	err      string

	event   *event // of a retry, of a manual tick for later, or of an end
	retries bool   // it waits for another attempt
	later   bool   // it waits for its time
	began   time.Time
	token   string
	leased  time.Time // end of the lease, by the real clock
	worker  string
	byWork  bool // a worker of Work has it
	parked  bool // it waits for the release of its workflow
}

// newTick makes a tick of a schedule. The caller holds the lock.
func (s *Server) newTick(h *schedule, at time.Time, cause string) *tick {
	t := &tick{
		of: h, number: len(s.order) + 1, at: at, cause: cause, firedAt: s.now, last: h.lastAt, version: h.version, def: h.definition, subject: h.subjectName(), timing: h.timing, attempt: 1,
	}
	if h.member != nil {
		t.until = h.member.until
	}
	h.history, h.last = append(h.history, t), t
	s.order = append(s.order, t)
	return t
}

func (t *tick) id() string { return "tick_" + strconv.Itoa(t.number) }

// finish ends the tick.
func (t *tick) finish(state, reason string) {
	t.state, t.endedAt = state, new(t.of.server.now)
	if reason != "" {
		t.reason = reason
	}
}

// stopped reports whether a running tick is told to stop.
func (t *tick) stopped() bool { return t.state == "running" && t.reason != "" }

// ownPayload returns the payload that the tick has.
func (t *tick) ownPayload() json.RawMessage {
	return json.RawMessage(cmp.Or(string(t.payload), string(t.def.payload), "null"))
}

// terms returns the policy and the delivery of the tick: those that its schedule stated when it fired, in its workflow as it is now.
func (t *tick) terms() terms { return t.def.termsIn(t.of.server.workflows[t.of.workflow]) }

// record returns the tick as the history shows it.
func (t *tick) record() carillon.TickRecord {
	h := t.of
	r := carillon.TickRecord{
		TickID: t.id(), ScheduleID: h.id, Workflow: h.workflow, Key: h.key, Subject: t.subject,
		Timestamp: t.at, LocalTime: t.timing.Local(t.at), Timezone: t.timing.Zone(), State: t.state, Reason: t.reason, Cause: t.cause, DST: t.dst.String(),
		LastTimestamp: t.last, FiredAt: t.firedAt, EndedAt: t.endedAt, LatenessMS: t.firedAt.Sub(t.at).Milliseconds(), Attempt: t.attempt,
		Occurrence: t.occurrence, MissedCount: int64(t.missed), ScheduleVersion: t.version, Traceparent: t.traceparent(), Result: json.RawMessage(t.result), Error: t.err, Attempts: t.attempts,
	}
	if t.later {
		r.DueAt, r.FiredAt, r.LatenessMS = &t.at, t.at, 0
	}
	return r
}

// traceparent names a trace of the tick's own, which is not sampled. Each tick has one, and fmt would take a large part of a year's time.
func (t *tick) traceparent() string {
	const zeros = "0000000000000000"
	hex := strconv.FormatInt(int64(t.number), 16)
	padded := zeros[len(hex):] + hex
	return "00-" + zeros + padded + "-" + padded + "-00"
}

// wire returns the tick as workers and webhooks get it.
func (t *tick) wire() carillon.Tick[json.RawMessage] {
	h, terms := t.of, t.terms()
	return carillon.Tick[json.RawMessage]{
		TickID: t.id(), ScheduleID: h.id, Workflow: h.workflow, Key: h.key, Subject: t.subject, Labels: t.def.labels,
		Timestamp: t.at, LocalTime: t.timing.Local(t.at), Timezone: t.timing.Zone(), LastTimestamp: t.last, Upcoming: t.upcoming(),
		FiredAt: t.firedAt, LatenessMS: t.firedAt.Sub(t.at).Milliseconds(), Attempt: t.attempt, MaxAttempts: terms.delivery.MaxAttempts + t.first,
		Occurrence: t.occurrence, MissedCount: int64(t.missed), Cause: t.cause, DST: t.dst.String(),
		ScheduleVersion: t.version, WorkflowVersion: t.workflowVersion, Expired: terms.late(t.at, h.server.now), Traceparent: t.traceparent(), LeaseToken: t.token, Payload: t.ownPayload(),
	}
}

// upcoming returns the nominal times after the tick, by the timing with which it fired.
func (t *tick) upcoming() []time.Time {
	all := []time.Time{}
	for after := t.at; len(all) < 5; {
		tick, ok := t.timing.Next(after)
		if !ok || t.until != nil && tick.At.After(*t.until) {
			break
		}
		all, after = append(all, tick.At), tick.At
	}
	return all
}
