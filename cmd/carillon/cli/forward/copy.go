package forward

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// tick is a tick as an endpoint gets it, without its payload, in the order of the server's members.
type tick struct {
	TickID          string            `json:"tick_id"`
	ScheduleID      string            `json:"schedule_id"`
	Workflow        string            `json:"workflow"`
	Key             string            `json:"key"`
	Subject         string            `json:"subject"`
	Labels          map[string]string `json:"labels"`
	Timestamp       string            `json:"timestamp"`
	LocalTime       string            `json:"local_time"`
	Timezone        string            `json:"timezone"`
	Upcoming        []string          `json:"upcoming"`
	LastTimestamp   *string           `json:"last_timestamp"`
	FiredAt         string            `json:"fired_at"`
	LatenessMS      int64             `json:"lateness_ms"`
	Attempt         int64             `json:"attempt"`
	MaxAttempts     int64             `json:"max_attempts"`
	Timeout         string            `json:"timeout,omitempty"`
	Occurrence      *int64            `json:"occurrence"`
	MissedCount     int64             `json:"missed_count"`
	Cause           string            `json:"cause"`
	DST             string            `json:"dst"`
	ScheduleVersion int64             `json:"schedule_version"`
	WorkflowVersion *string           `json:"workflow_version"`
	Expired         bool              `json:"expired"`
	Traceparent     string            `json:"traceparent,omitempty"`
	LeaseToken      string            `json:"lease_token"`
}

// hidden stands in the place of the lease token in a copy. The receiver of a copy reports no result, so it needs no token.
const hidden = "(a copy has none)"

// Copy returns a copy of a tick as an endpoint gets it. record is what the server keeps of the tick. sample is the schedule's next tick,
// from which the copy has what a record does not keep; nil if there is none. A sample for an endpoint that takes batches makes a batch.
func Copy(record, sample []byte) (id string, body []byte, err error) {
	next, batch := sample, struct{ Ticks []json.RawMessage }{}
	if json.Unmarshal(sample, &batch) == nil && len(batch.Ticks) == 1 {
		next = batch.Ticks[0]
	}
	t := tick{Labels: map[string]string{}, Upcoming: []string{}, MaxAttempts: 1}
	if sample != nil {
		if err := json.Unmarshal(next, &t); err != nil {
			return "", nil, fmt.Errorf("the sample is no tick: %w", err)
		}
		t.Upcoming = append([]string{t.Timestamp}, t.Upcoming...)
		t.Upcoming = t.Upcoming[:min(len(t.Upcoming), 5)]
		t.LastTimestamp, t.Occurrence = nil, nil
	}
	if err := json.Unmarshal(record, &t); err != nil {
		return "", nil, fmt.Errorf("the record is no tick: %w", err)
	}
	if fired, err := time.Parse(time.RFC3339, t.FiredAt); err == nil {
		t.FiredAt = fired.Format("2006-01-02T15:04:05.000Z07:00") // the API leaves out zeros at the end, a message does not
	}
	t.Attempt, t.MaxAttempts, t.LeaseToken = max(t.Attempt, 1), max(t.MaxAttempts, t.Attempt), hidden
	var kept struct{ Payload json.RawMessage }
	if err := json.Unmarshal(record, &kept); err != nil {
		return "", nil, err
	}
	if kept.Payload == nil {
		kept.Payload = json.RawMessage("null")
	}
	body, err = withPayload(t, kept.Payload)
	if len(batch.Ticks) == 1 {
		body = append(append([]byte(`{"ticks":[`), body...), `]}`...)
	}
	return t.TickID, body, err
}

// withPayload returns the tick with its payload byte for byte.
func withPayload(t tick, payload []byte) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(t); err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(out.Bytes(), []byte("}\n"))
	body = append(body, `,"payload":`...)
	return append(append(body, payload...), '}'), nil
}
