package carillontest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// reply is an answer that is not 200 with JSON.
type reply struct {
	status int
	body   any // nil: none
}

// lines is an answer in NDJSON.
type lines []any

// kept is the answer to a request with an Idempotency-Key.
type kept struct {
	sent    string
	status  int
	content []byte
	header  http.Header
}

// ServeHTTP answers as the API does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", "carillontest")
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		write(w, nil, fault.Malformed("malformed_body", "the body could not be read to its end"))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(sent))
	key := r.Header.Get("Idempotency-Key")
	defer s.runDue()
	if key == "" || r.Method != http.MethodPost {
		answer, err := s.serve(r)
		write(w, answer, err)
		return
	}
	key += " " + r.URL.EscapedPath()
	s.mu.Lock()
	before := s.answers[key]
	s.mu.Unlock()
	switch {
	case before != nil && before.sent != string(sent):
		write(w, nil, fault.New(http.StatusUnprocessableEntity, "idempotency_key_reused", "the Idempotency-Key was used for another body"))
		return
	case before != nil:
		for name, values := range before.header {
			w.Header()[name] = values
		}
		w.Header().Set("Idempotency-Replayed", "true")
		w.WriteHeader(before.status)
		w.Write(before.content)
		return
	}
	answer, err := s.serve(r)
	status, content := render(w.Header(), answer, err)
	if err == nil {
		s.mu.Lock()
		s.answers[key] = &kept{string(sent), status, content, w.Header().Clone()}
		s.mu.Unlock()
	}
	w.WriteHeader(status)
	w.Write(content)
}

func write(w http.ResponseWriter, answer any, err error) {
	status, content := render(w.Header(), answer, err)
	w.WriteHeader(status)
	w.Write(content)
}

// render sets the headers of an answer, and returns its status and content.
func render(header http.Header, answer any, err error) (status int, content []byte) {
	status = http.StatusOK
	if f, is := errors.AsType[*fault.Error](err); is {
		header.Set("Content-Type", "application/problem+json")
		return f.Status, encoded(problemOf(f))
	}
	if err != nil {
		panic(err) // every error of a handler is a fault
	}
	if r, is := answer.(reply); is {
		status, answer = r.status, r.body
	}
	switch a := answer.(type) {
	case nil:
		return status, nil
	case tagged:
		header.Set("ETag", tag(a.etag()))
	case carillon.Schedule:
		header.Set("ETag", tag(a.Version))
	case lines:
		header.Set("Content-Type", "application/x-ndjson")
		for _, one := range a {
			content = append(content, encoded(one)...)
		}
		return status, content
	}
	header.Set("Content-Type", "application/json")
	return status, encoded(answer)
}

// tagged is an answer with a version that is not a schedule.
type tagged interface{ etag() int64 }

// encoded returns a value as JSON, with a line feed.
func encoded(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // every answer is JSON
	}
	return b.Bytes()
}

// problem is a problem document (RFC 9457).
type problem struct {
	Type     string        `json:"type"`
	Title    string        `json:"title"`
	Status   int           `json:"status"`
	Detail   string        `json:"detail"`
	Instance string        `json:"instance"`
	Code     string        `json:"code"`
	Errors   []fault.Field `json:"errors,omitempty"`
	Summary  any           `json:"summary,omitempty"` // of a sync
}

func problemOf(f *fault.Error) problem {
	return problem{
		Type: "about:blank", Title: http.StatusText(f.Status), Status: f.Status,
		Detail: f.Detail, Instance: "carillontest", Code: f.Code, Errors: f.Fields, Summary: f.Extra["summary"],
	}
}

// unsupported is the fault of a feature that the package lacks.
func unsupported(feature string) *fault.Error {
	return fault.New(http.StatusNotImplemented, "not_in_carillontest", "carillontest has no %s: test it against `carillon dev`", feature)
}

// read decodes a JSON body into into, and refuses unknown members. An empty body is like {}.
func read(r *http.Request, into any) error {
	text, err := io.ReadAll(r.Body)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return err
	}
	return decode(text, into)
}

func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("more text follows the JSON value")
	}
	if f, is := errors.AsType[*fault.Error](err); is {
		return f
	}
	if err != nil {
		return fault.Malformed("invalid_json", "%s", err)
	}
	return nil
}

// rawJSON keeps a value byte for byte.
type rawJSON string

func (j *rawJSON) UnmarshalJSON(b []byte) error {
	*j = rawJSON(b)
	return nil
}

func (j rawJSON) MarshalJSON() ([]byte, error) {
	if j == "" {
		return []byte("null"), nil
	}
	return []byte(j), nil
}

// decodedPath returns the path's segments below /v1. Each is decoded by itself, so that a key can have a slash.
func decodedPath(r *http.Request) ([]string, error) {
	segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/"), "/")
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			return nil, fault.Malformed("malformed_path", "the path has a bad percent-encoding")
		}
		segments[i] = decoded
	}
	return segments, nil
}
