package carillon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// BulkLine is one schedule of a bulk upsert: its workflow, key and params. IfMatch and IfAbsent must be zero.
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
	Code   string  `json:"code"`
	Detail string  `json:"detail"`
	Errors []Field `json:"errors,omitempty"`
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
}

// ErrCut reports an answer to Bulk that ended before its summary. The lines that it reported are stored; sending all
// lines again finishes the rest. If the server named the reason, such as an expired token, the error wraps an [*Error] too.
var ErrCut = errors.New("carillon: the answer was cut")

const longestAnswer = 4 << 20 // of one line

// Bulk puts up to 1,000,000 schedules in one request, in constant memory: it takes a line when it can send it. A bad line
// does not affect the others and returns no error: the summary counts it. If lines close to each other have the same
// workflow and key, the last one counts. Bulk sends the request once, without a timeout of its own, and returns when ctx
// ends, even while lines is blocked.
func (c *Client) Bulk(ctx context.Context, lines iter.Seq[BulkLine], p BulkParams) (BulkSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	token, err := c.token(ctx)
	if err != nil {
		return BulkSummary{}, fmt.Errorf("carillon: token: %w", err)
	}
	body, out := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path("schedules", "bulk"), body)
	if err != nil {
		return BulkSummary{}, fmt.Errorf("carillon: %w", err)
	}
	if p.ErrorsOnly {
		req.URL.RawQuery = "results=errors"
	}
	req.Header.Set("User-Agent", c.userAgent)
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Accept", "application/x-ndjson")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	sent := make(chan error, 1)
	go func() {
		err := sendLines(out, lines)
		_ = out.CloseWithError(err) // it never fails
		sent <- err
	}()
	sum, err := c.bulk(req, p)
	_ = body.Close() // the remaining lines are not sent
	select {
	case sendErr := <-sent:
		if sendErr != nil && !errors.Is(sendErr, io.ErrClosedPipe) {
			err = sendErr
		}
	case <-ctx.Done(): // lines may be blocked: what sends them ends with the next line
	}
	return sum, err
}

// sendLines writes lines until the reader closes.
func sendLines(out io.Writer, lines iter.Seq[BulkLine]) error {
	w := bufio.NewWriterSize(out, 64<<10)
	for line := range lines {
		if line.IfMatch != 0 || line.IfAbsent {
			return fmt.Errorf("carillon: the line of %s/%s has a condition, which bulk does not take", line.Workflow, line.Key)
		}
		payload, err := raw(line.Payload)
		if err != nil {
			return err
		}
		line.Payload = nil
		text, err := encode(line)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(with(text, "payload", oneLine(payload)), '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
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

func (c *Client) bulk(req *http.Request, p BulkParams) (BulkSummary, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return BulkSummary{}, fmt.Errorf("carillon: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer))
		if err != nil {
			return BulkSummary{}, fmt.Errorf("carillon: bulk: read the answer: %w", err)
		}
		return BulkSummary{}, refusal(resp, text, time.Now())
	}
	answers := bufio.NewScanner(resp.Body)
	answers.Buffer(make([]byte, 0, 64<<10), longestAnswer)
	for answers.Scan() {
		var line struct {
			BulkResult
			Summary *BulkSummary `json:"summary"`
		}
		if err := json.Unmarshal(answers.Bytes(), &line); err != nil {
			return BulkSummary{}, fmt.Errorf("%w: %w", ErrCut, err)
		}
		if line.Summary != nil {
			return *line.Summary, nil
		}
		if line.Line == 0 && line.Error != nil {
			f := line.Error
			return BulkSummary{}, fmt.Errorf("%w: %w", ErrCut, &Error{Status: f.Status, Code: f.Code, Detail: f.Detail, Fields: f.Errors, RequestID: resp.Header.Get("X-Request-Id")})
		}
		if p.Each != nil {
			p.Each(line.BulkResult)
		}
	}
	if err := answers.Err(); err != nil {
		return BulkSummary{}, fmt.Errorf("%w: %w", ErrCut, err)
	}
	return BulkSummary{}, ErrCut
}
