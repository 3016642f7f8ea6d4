package apitest

import (
	"bytes"
	"io"
	"net/http"
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

// RoundTrip sends the request, reads the answer to its end and checks it.
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
