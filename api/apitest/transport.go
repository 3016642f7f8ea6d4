package apitest

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

type transport struct {
	t        testing.TB
	base     http.RoundTripper
	contract *Contract
}

// Transport returns a client's transport that checks each answer against the document and reports to t what it does not
// allow. A nil base is http.DefaultTransport. Requests and answers are held in memory.
func Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{t, base, New(t)}
}

// RoundTrip sends the request, reads the answer to its end and checks it. Of a stream of events it reads and checks the first event.
func (r transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Body != nil {
		var err error
		sent, err = io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	out := req.Clone(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		out.Body = io.NopCloser(bytes.NewReader(sent))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(sent)), nil }
	}
	resp, err := r.base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if IsEventStream(resp.Header) {
		whole := bufio.NewReader(resp.Body)
		first, err := FirstEvent(whole)
		resp.Body = stream{io.MultiReader(bytes.NewReader(first), whole), resp.Body}
		if err == nil {
			r.contract.Check(r.t, req, sent, resp, first)
		}
		return resp, nil
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil { // cut or given up: the caller sees the same error where it reads
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(got), failing{err}))
		return resp, nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(got))
	r.contract.Check(r.t, req, sent, resp, got)
	return resp, nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// stream is a body whose beginning has been read already.
type stream struct {
	io.Reader
	io.Closer
}

// IsEventStream reports whether an answer with this header is a stream of server-sent events, which does not end by itself.
func IsEventStream(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

// FirstEvent reads a stream of server-sent events up to the empty line that ends its first event.
func FirstEvent(r *bufio.Reader) (event []byte, err error) {
	for {
		line, err := r.ReadBytes('\n')
		event = append(event, line...)
		if err != nil || len(bytes.TrimSpace(line)) == 0 {
			return event, err
		}
	}
}
