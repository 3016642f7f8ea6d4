package carillon

import (
	"encoding/json"
	"time"
)

// Ticks are the firings of the tenant's schedules.
type Ticks struct{ c *Client }

// Tick is one firing of a schedule, as a handler receives it. P is the payload's type; json.RawMessage keeps its bytes.
type Tick[P any] struct {
	TickID     string `json:"tick_id"` // the same on every attempt
	ScheduleID string `json:"schedule_id"`
	Workflow   string `json:"workflow"`
	Key        string `json:"key"`
	Subject    string `json:"subject"` // the person or thing that its schedule was for when it fired

	Labels        map[string]string `json:"labels"`
	Timestamp     time.Time         `json:"timestamp"`  // nominal: the time the spec names, not the time of sending
	LocalTime     time.Time         `json:"local_time"` // the same instant with the offset of Timezone
	Timezone      string            `json:"timezone"`
	LastTimestamp *time.Time        `json:"last_timestamp"` // nominal time of the tick before; nil on the first
	Upcoming      []time.Time       `json:"upcoming"`       // nominal times after it, up to 5

	FiredAt     time.Time `json:"fired_at"`
	LatenessMS  int64     `json:"lateness_ms"`
	Attempt     int       `json:"attempt"` // from 1
	MaxAttempts int       `json:"max_attempts"`
	Occurrence  *int64    `json:"occurrence"`   // its number in the sequence; nil outside the sequence
	MissedCount int64     `json:"missed_count"` // how many earlier ticks it stands for
	Cause       string    `json:"cause"`        // "schedule", "manual", "backfill", "catch_up" or "buffered"
	DST         string    `json:"dst"`          // "none", "gap", "overlap_first" or "overlap_second"

	ScheduleVersion int64  `json:"schedule_version"`
	WorkflowVersion string `json:"workflow_version"` // registered when the tick fired; empty: none
	Expired         bool   `json:"expired"`          // it is later than its max_lateness, and on_expired delivers it all the same
	Timeout         string `json:"timeout"`          // how long this attempt may run, such as "60s"
	Traceparent     string `json:"traceparent"`      // the trace that it continues (W3C Trace Context)
	LeaseToken      string `json:"lease_token"`
	Payload         P      `json:"payload"`
}

// typed decodes the payload of t into a P.
func typed[P any](t Tick[json.RawMessage]) (Tick[P], error) {
	out := Tick[P]{
		TickID:          t.TickID,
		ScheduleID:      t.ScheduleID,
		Workflow:        t.Workflow,
		Key:             t.Key,
		Subject:         t.Subject,
		Labels:          t.Labels,
		Timestamp:       t.Timestamp,
		LocalTime:       t.LocalTime,
		Timezone:        t.Timezone,
		LastTimestamp:   t.LastTimestamp,
		Upcoming:        t.Upcoming,
		FiredAt:         t.FiredAt,
		LatenessMS:      t.LatenessMS,
		Attempt:         t.Attempt,
		MaxAttempts:     t.MaxAttempts,
		Occurrence:      t.Occurrence,
		MissedCount:     t.MissedCount,
		Cause:           t.Cause,
		DST:             t.DST,
		ScheduleVersion: t.ScheduleVersion,
		WorkflowVersion: t.WorkflowVersion,
		Expired:         t.Expired,
		Timeout:         t.Timeout,
		Traceparent:     t.Traceparent,
		LeaseToken:      t.LeaseToken,
	}
	if len(t.Payload) == 0 {
		return out, nil
	}
	err := json.Unmarshal(t.Payload, &out.Payload)
	return out, err
}

// TickRecord is the stored record of a tick.
type TickRecord struct {
	TickID     string `json:"tick_id"`
	ScheduleID string `json:"schedule_id"`
	Workflow   string `json:"workflow"`
	Key        string `json:"key"`
	Subject    string `json:"subject"` // as in Tick

	Timestamp       time.Time  `json:"timestamp"`        // nominal
	LocalTime       time.Time  `json:"local_time"`       // the same instant with the offset of Timezone
	Timezone        string     `json:"timezone"`         // by which the schedule was timed
	State           string     `json:"state"`            // "scheduled", "running", "succeeded", "failed", "cancelled" or "skipped"
	Reason          string     `json:"reason,omitempty"` // why it was skipped
	Cause           string     `json:"cause"`            // as in Tick
	DST             string     `json:"dst"`              // as in Tick
	LastTimestamp   *time.Time `json:"last_timestamp"`   // nominal time of the tick before; nil on the first
	DueAt           *time.Time `json:"due_at,omitempty"` // when it fires, while it waits for that time
	FiredAt         time.Time  `json:"fired_at"`         // zero while it waits for its time
	EndedAt         *time.Time `json:"ended_at"`         // nil while it is scheduled or running
	LatenessMS      int64      `json:"lateness_ms"`
	Attempt         int        `json:"attempt"` // number of the last attempt; 0 before the first
	Occurrence      *int64     `json:"occurrence"`
	MissedCount     int64      `json:"missed_count"`
	ScheduleVersion int64      `json:"schedule_version"`
	Traceparent     string     `json:"traceparent"` // as in Tick

	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`    // error of the last attempt
	Payload  json.RawMessage `json:"payload,omitempty"`  // only from Ticks.Get
	Attempts []Attempt       `json:"attempts,omitempty"` // those that ended; only from Ticks.Get

	PayloadKept *bool `json:"payload_kept,omitempty"` // false: the retention of ticks has dropped the payload
}

// Attempt is one ended attempt to deliver a tick.
type Attempt struct {
	Attempt   int        `json:"attempt"` // from 1
	StartedAt *time.Time `json:"started_at"`
	EndedAt   time.Time  `json:"ended_at"`
	TookMS    *int64     `json:"took_ms"`          // nil: its start is not known
	Outcome   string     `json:"outcome"`          // "succeeded", "failed", "timed_out", "lost" or "cancelled"
	Status    int        `json:"status,omitempty"` // HTTP status, if it was pushed
	Answer    string     `json:"answer,omitempty"` // the first KiB of the endpoint's answer, if the attempt failed because of it
	Error     string     `json:"error,omitempty"`
	Worker    string     `json:"worker,omitempty"` // name of the worker that leased it

	// Result is that of a cancelled tick, if the worker sent it after the tick was told to stop.
	Result json.RawMessage `json:"result,omitempty"`
}
