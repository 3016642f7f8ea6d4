package carillon

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
)

// BulkLine is one schedule of PutAll, Sync or Export: its workflow, key and params. IfMatch and IfAbsent must be zero.
type BulkLine struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key,omitempty"` // empty is "global"
	Params
}

// BulkResult is the result of one line. Lines count from 1.
type BulkResult struct {
	Line       int        `json:"line"`
	Result     string     `json:"result"`   // "inserted", "updated", "unchanged", "duplicate" or "error"
	Workflow   string     `json:"workflow"` // empty if the line does not name it; so is the key
	Key        string     `json:"key"`
	ScheduleID string     `json:"schedule_id,omitempty"`
	Error      *BulkFault `json:"error,omitempty"`
}

// BulkFault is the error of a line: the one with which the server would refuse a Put of it.
type BulkFault struct {
	Status int     `json:"status"`
	Code   Code    `json:"code"`
	Detail string  `json:"detail"`
	Errors []Field `json:"errors,omitempty"`
}

// asError returns the fault as the error of a call.
func (f *BulkFault) asError(answer *http.Response) *Error {
	return &Error{Status: f.Status, Code: f.Code, Detail: f.Detail, Fields: f.Errors, RequestID: answer.Header.Get("X-Request-Id")}
}

// BulkReport is the end of an answer of lines.
type BulkReport struct {
	BulkSummary `json:"summary"`
	Warnings    []Warning `json:"warnings"`
}

// BulkSummary counts lines by their result.
type BulkSummary struct {
	Inserted   int `json:"inserted"`
	Updated    int `json:"updated"`
	Unchanged  int `json:"unchanged"`
	Duplicates int `json:"duplicates"`
	Errors     int `json:"errors"`
}

// BulkParams select the results and receive them.
type BulkParams struct {
	Each       func(BulkResult) // called with each result, in the order of the lines, while more lines are sent
	ErrorsOnly bool             // the server answers only lines with errors
	DryRun     bool             // store nothing, and answer what storing would do, batch by batch
}

// PutAll puts up to 1,000,000 schedules in one request, in constant memory: it takes a line when it can send it. A bad line
// does not affect the others and returns no error: the summary counts it. If lines close to each other have the same
// workflow and key, the last one counts. PutAll sends the request once, without a timeout of its own, and returns when ctx
// ends, even while lines is blocked.
func (s Schedules) PutAll(ctx context.Context, lines iter.Seq[BulkLine], p BulkParams) (BulkReport, error) {
	q := query{}
	q.results(p.ErrorsOnly)
	q.flag("dry_run", p.DryRun)
	var report BulkReport
	err := upload[BulkLine, BulkResult]{path("schedules", "bulk"), q, lines, scheduleLine, p.Each}.send(ctx, s.c, &report)
	return report, err
}

// Export iterates over all schedules, or those of one workflow if it is not empty, as lines that PutAll takes: the same schedules in
// another tenant, or unchanged ones in this. An error comes once and ends the loop.
func (s Schedules) Export(ctx context.Context, workflow string) iter.Seq2[BulkLine, error] {
	q := query{}
	q.text("workflow", workflow)
	return func(yield func(BulkLine, error) bool) {
		for l, err := range download[exportedLine](ctx, s.c, path("schedules", "export"), q) {
			l.BulkLine.Payload = nil
			if l.Payload != nil {
				l.BulkLine.Payload = l.Payload
			}
			if !yield(l.BulkLine, err) {
				return
			}
		}
	}
}

// exportedLine reads a line with its payload byte for byte.
type exportedLine struct {
	BulkLine
	Payload json.RawMessage `json:"payload"`
}

// results asks for the answers to bad lines only.
func (q query) results(errorsOnly bool) {
	if errorsOnly {
		q.text("results", "errors")
	}
}

// scheduleLine returns the JSON of a line without line breaks.
func scheduleLine(line BulkLine) ([]byte, error) {
	if line.IfMatch != 0 || line.IfAbsent {
		return nil, fmt.Errorf("carillon: the line of %s/%s has a condition, which bulk does not take", line.Workflow, line.Key)
	}
	payload, err := raw(line.Payload)
	if err != nil {
		return nil, err
	}
	line.Payload = nil
	text, err := encode(line)
	if err != nil {
		return nil, err
	}
	return with(text, "payload", oneLine(payload)), nil
}

// oneLine returns JSON without line breaks: they have no meaning between tokens, and a JSON string contains none.
func oneLine(text json.RawMessage) json.RawMessage {
	out := make(json.RawMessage, len(text))
	for i, b := range text {
		if b == '\n' || b == '\r' {
			b = ' '
		}
		out[i] = b
	}
	return out
}
