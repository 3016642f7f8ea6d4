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
	"net/url"
	"strings"
	"time"
)

// ErrCut reports an answer of lines that ended before its end. What it reported is stored; sending all lines again finishes the rest. If the
// server named the reason, such as an expired token, the error wraps an [*Error] too.
var ErrCut = errors.New("carillon: the answer was cut")

const (
	longestLine = 4 << 20 // of an answer
	ndjson      = "application/x-ndjson"
)

// upload is a request whose body and answer are lines (NDJSON). It is sent once, without a timeout of its own.
type upload[L, R any] struct {
	path  string
	query query
	lines iter.Seq[L]
	line  func(L) ([]byte, error) // the JSON of a line, without line breaks
	each  func(R)                 // takes the answer to each line; nil drops it
}

// send sends the lines, one when the connection takes it, and decodes the summary of the answer into end. It returns when ctx ends, even
// while lines is blocked.
func (u upload[L, R]) send(ctx context.Context, c *Client, end any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, out := io.Pipe()
	req, err := c.request(ctx, http.MethodPost, u.path, url.Values(u.query), body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", ndjson)
	req.Header.Set("Accept", ndjson)
	// When ctx ends, the body fails with its error. Without this net/http would wait for the next line before it returns.
	defer context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })() // it never fails
	sent := make(chan error, 1)
	go func() {
		err := u.write(out)
		_ = out.CloseWithError(err) // it never fails
		sent <- err
	}()
	err = u.receive(c, req, end)
	_ = body.Close() // the remaining lines are not sent
	select {
	case sendErr := <-sent:
		if sendErr != nil && !errors.Is(sendErr, io.ErrClosedPipe) {
			err = sendErr
		}
	case <-ctx.Done(): // lines may be blocked: the goroutine that sends them ends at the next line
	}
	return err
}

// write writes the lines until the reader closes.
func (u upload[L, R]) write(out io.Writer) error {
	w := bufio.NewWriterSize(out, 64<<10)
	for line := range u.lines {
		text, err := u.line(line)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (u upload[L, R]) receive(c *Client, req *http.Request, end any) error {
	answer, err := c.open(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for text, err := range textLines(answer.Body) {
		if err != nil {
			return err
		}
		var line struct {
			Line    int             `json:"line"`
			Summary json.RawMessage `json:"summary"`
			Error   *BulkFault      `json:"error"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		switch {
		case line.Summary != nil:
			return decode(text, end)
		case line.Line == 0 && line.Error != nil:
			return fmt.Errorf("%w: %w", ErrCut, line.Error.asError(answer))
		case u.each != nil:
			var result R
			if err := decode(text, &result); err != nil {
				return err
			}
			u.each(result)
		}
	}
	return ErrCut
}

// download iterates over the lines of an answer. An error comes once, with a zero T, and ends the loop. The request is sent once, without
// a timeout of its own.
func download[T any](ctx context.Context, c *Client, path string, q query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		req, err := c.request(ctx, http.MethodGet, path, url.Values(q), http.NoBody)
		if err != nil {
			yield(none, err)
			return
		}
		req.Header.Set("Accept", ndjson)
		answer, err := c.open(req)
		if err != nil {
			yield(none, err)
			return
		}
		defer answer.Body.Close()
		for text, err := range textLines(answer.Body) {
			var line T
			if err == nil {
				err = decode(text, &line)
			}
			if err != nil {
				yield(none, err)
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// open sends a request whose answer is read as it comes. The caller closes its body.
func (c *Client) open(req *http.Request) (*http.Response, error) {
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, longestLine))
	if err != nil {
		return nil, fmt.Errorf("carillon: %s %s: read the answer: %w", req.Method, req.URL.Path, err)
	}
	refused := refusal(answer, text, time.Now())
	if refusedBy(refused) {
		c.credential.refused(strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	}
	return nil, refused
}

// textLines iterates over the lines of an answer. Its error is ErrCut if the answer ended before its last chunk.
func textLines(body io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(make([]byte, 0, 64<<10), longestLine)
		for lines.Scan() {
			if !yield(lines.Bytes(), nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, fmt.Errorf("%w: %w", ErrCut, err))
		}
	}
}

// decode decodes a line of an answer.
func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("carillon: decode a line of the answer: %w", err)
	}
	return nil
}
