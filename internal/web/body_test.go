package web

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

type lines []string

// UnmarshalJSON takes one line or several, as cron does.
func (l *lines) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		*l = make(lines, 1)
		return json.Unmarshal(b, &(*l)[0])
	}
	var several []string
	if err := Unmarshal(b, &several); err != nil {
		return err
	}
	*l = several
	return nil
}

type common struct {
	Note string `json:"note" validate:"max=5"`
}

type order struct {
	common
	Name    string            `json:"name" validate:"omitempty,name"`
	Count   int               `json:"count" validate:"max=10"`
	Big     int64             `json:"big"`
	Ratio   float64           `json:"ratio"`
	On      *bool             `json:"on"`
	Cron    lines             `json:"cron"`
	From    *time.Time        `json:"from"`
	Items   []item            `json:"items" validate:"dive"`
	Labels  map[string]string `json:"labels"`
	Payload json.RawMessage   `json:"payload"`
	Result  Raw               `json:"result"`
}

type item struct {
	SKU string `json:"sku" validate:"required"`
}

func unmarshal(t *testing.T, in string) (order, *fault.Error) {
	t.Helper()
	var o order
	err := Unmarshal([]byte(in), &o)
	if err == nil {
		return o, nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("%s: %v is no fault", in, err)
	}
	return o, f
}

func TestUnmarshalLocatesEachFault(t *testing.T) {
	t.Parallel()
	cases := []struct {
		in     string
		status int
		at     []string // pointer and code
	}{
		{`{"Name":"a"}`, 400, []string{"/Name unknown_field"}},
		{`{"nam":"a","items":[{"sku":"1","x":1}]}`, 400, []string{"/nam unknown_field", "/items/0/x unknown_field"}},
		{`{"name":1,"count":"x"}`, 422, []string{"/name wrong_type", "/count wrong_type"}},
		{`{"count":1.0}`, 422, []string{"/count wrong_type"}},
		{`{"big":9223372036854775808}`, 422, []string{"/big out_of_range"}},
		{`{"ratio":1e400}`, 422, []string{"/ratio out_of_range"}},
		{`{"items":{}}`, 422, []string{"/items wrong_type"}},
		{`{"items":[{},{"sku":"x"},{"sku":""}]}`, 422, []string{"/items/0/sku required", "/items/2/sku required"}},
		{`{"labels":{"a":1}}`, 422, []string{"/labels/a wrong_type"}},
		{`{"cron":["a",1]}`, 422, []string{"/cron/1 wrong_type"}},
		{`{"from":"yesterday"}`, 422, []string{"/from invalid"}},
		{`{"from":"9999-12-31T23:59:59-00:01"}`, 422, []string{"/from out_of_range"}},
		{`{"from":"0000-01-01T00:00:00+00:01"}`, 422, []string{"/from out_of_range"}},
		{`{"count":11,"note":"too long"}`, 422, []string{"/note out_of_range", "/count out_of_range"}},
		{`{"name":"a/b"}`, 422, []string{"/name invalid"}},
		{`{"payload":{"a":{"b":"\u0000"}}}`, 422, []string{"/payload/a/b nul"}},
		{`{"payload":{"a":1,"a":1}}`, 400, []string{"/payload/a duplicate_member"}},
		{`[]`, 422, []string{" wrong_type"}},
		{`"x"`, 422, []string{" wrong_type"}},
		{`null`, 422, []string{" wrong_type"}},
		{` `, 400, nil},
	}
	for _, c := range cases {
		_, f := unmarshal(t, c.in)
		if f == nil {
			t.Errorf("%s: was let pass", c.in)
			continue
		}
		var at []string
		for _, field := range f.Fields {
			at = append(at, field.Pointer+" "+field.Code)
		}
		if f.Status != c.status || !cmp.Equal(at, c.at) {
			t.Errorf("%s: got %d %v, want %d %v", c.in, f.Status, at, c.status, c.at)
		}
	}
}

func TestUnmarshalKeepsPayloadsByteForByte(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`123456789012345678901234567890.10`, `{ "b" : 1e400,  "a":"\u00e9<&>\/" }`, "[ 1 ,\n2 ]", `null`, `"x"`,
		strings.Repeat("[", 128) + strings.Repeat("]", 128),
	} {
		o, f := unmarshal(t, `{"payload": `+payload+` , "result":`+payload+`}`)
		if f != nil {
			t.Fatalf("%s: %v", payload, f)
		}
		if string(o.Payload) != payload || string(o.Result) != payload {
			t.Errorf("got %s and %s, want %s", o.Payload, o.Result, payload)
		}
		b, err := Marshal(map[string]any{"n": "<&>", "result": []Raw{o.Result, nil, o.Result}})
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"n":"<&>","result":[` + payload + `,null,` + payload + `]}`; string(b) != want {
			t.Errorf("got %s, want %s", b, want)
		}
	}
}

// FuzzUnmarshal checks that encoding/json reads the same value from every text that Unmarshal accepts, and that no text causes a panic.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"name":"a","count":3,"cron":"x","items":[{"sku":"1"}],"labels":{"a":"b"},"payload":[1],"from":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"on":null,"ratio":1.5,"note":"n","big":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, want order
		if err := Unmarshal(b, &got); err != nil {
			if _, ok := errors.AsType[*fault.Error](err); !ok {
				t.Fatalf("%q: %v is no fault", b, err)
			}
			return
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("let %q pass: %v", b, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(order{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

func bodyRouter(t *testing.T) *echo.Echo {
	t.Helper()
	e := New(Options{Log: quiet(), BodyLimit: 1000})
	e.POST("/strict", func(c echo.Context) error {
		o, err := Body[order](c)
		if err != nil {
			return err
		}
		return Answer(c, 200, o.Name)
	})
	e.POST("/optional", func(c echo.Context) error {
		_, sent, err := OptionalBody[order](c)
		if err != nil {
			return err
		}
		return Answer(c, 200, sent)
	})
	e.POST("/large", func(c echo.Context) error {
		b, err := Bytes(c)
		if err != nil {
			return err
		}
		return Answer(c, 200, len(b))
	}, BodyLimit(100_000))
	e.POST("/endless", func(c echo.Context) error {
		n, err := io.Copy(io.Discard, c.Request().Body)
		if err != nil {
			return err
		}
		return Answer(c, 200, n)
	}, BodyLimit(-1))
	return e
}

func packed(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A request that has the header twice is refused, even if one of the two values is valid.
func TestABodyIsOfOneKind(t *testing.T) {
	t.Parallel()
	e := bodyRouter(t)
	for header, values := range map[string][]string{"Content-Type": {"application/json", "text/plain"}, "Content-Encoding": {"gzip", "gzip"}} {
		r := httptest.NewRequest(http.MethodPost, "/strict", strings.NewReader(packed(t, `{}`)))
		r.Header = http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
		r.Header[header] = values
		w := httptest.NewRecorder()
		if e.ServeHTTP(w, r); w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%s %v: got %d %s", header, values, w.Code, w.Body)
		}
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	e := bodyRouter(t)
	big := `{"payload":"` + strings.Repeat("x", 1000) + `"}`
	cases := []struct {
		path, body, media, encoding string
		status                      int
		code                        string
	}{
		{"/strict", `{"name":"a"}`, "application/json", "", 200, ""},
		{"/strict", `{"name":"a"}`, "application/json; charset=UTF-8", "", 200, ""},
		{"/strict", `{"name":"a"}`, "application/merge-patch+json", "", 200, ""},
		{"/strict", `{"name":"a"}`, "application/json; charset=latin1", "", 415, "unsupported_media_type"},
		{"/strict", `{"name":"a"}`, "text/plain", "", 415, "unsupported_media_type"},
		{"/strict", `{"name":"a"}`, "", "", 415, "unsupported_media_type"},
		{"/strict", ``, "application/json", "", 400, "invalid_json"},
		{"/strict", `{"name":"a"} 1`, "application/json", "", 400, "invalid_json"},
		{"/strict", big, "application/json", "", 413, "body_too_large"},
		{"/strict", packed(t, `{"name":"a"}`), "application/json", "gzip", 200, ""},
		{"/strict", packed(t, big), "application/json", "gzip", 413, "body_too_large"},
		{"/strict", packed(t, strings.Repeat(" ", 2<<20)), "application/json", "gzip", 413, "body_too_large"},
		{"/strict", `{"name":"a"}`, "application/json", "gzip", 400, "malformed_body"},
		{"/strict", packed(t, `{"name":"a"}`)[:20], "application/json", "gzip", 400, "malformed_body"},
		{"/strict", `{"name":"a"}`, "application/json", "br", 415, "unsupported_encoding"},
		{"/strict", packed(t, packed(t, `{"name":"a"}`)), "application/json", "gzip, gzip", 415, "unsupported_encoding"},
		{"/endless", strings.Repeat(" ", 20<<20), "", "", 200, ""},
		{"/endless", packed(t, strings.Repeat(" ", 10<<20)), "", "gzip", 200, ""},
		{"/endless", packed(t, strings.Repeat(" ", 20<<20)), "", "gzip", 413, "body_too_large"},
		{"/optional", ``, "", "", 200, ""},
		{"/optional", `{}`, "application/json", "", 200, ""},
		{"/optional", `{}`, "text/plain", "", 415, "unsupported_media_type"},
		{"/large", strings.Repeat("x", 100_000), "", "", 200, ""},
		{"/large", strings.Repeat("x", 100_001), "", "", 413, "body_too_large"},
	}
	for _, c := range cases {
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		if c.media != "" {
			r.Header.Set("Content-Type", c.media)
		}
		if c.encoding != "" {
			r.Header.Set("Content-Encoding", c.encoding)
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		var p struct{ Code string }
		if c.code != "" {
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Errorf("%s: %v", w.Body, err)
			}
		}
		if w.Code != c.status || p.Code != c.code {
			t.Errorf("%s %.40q %s %s: got %d %s, want %d %s", c.path, c.body, c.media, c.encoding, w.Code, w.Body, c.status, c.code)
		}
	}
}
