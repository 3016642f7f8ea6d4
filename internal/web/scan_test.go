package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carillonhq/carillon/internal/fault"
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := func(last string) string {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, `"m%d":0,`, i)
		}
		return "{" + b.String() + last + ":0}"
	}
	cases := []struct {
		in      string
		code    string // "" where it is good
		pointer string
	}{
		{in: `null`}, {in: ` [1, -0.5e+10, "a\u00e9\ud83d\ude00é", true, false, null, {}, []] `},
		{in: `123456789012345678901234567890`}, {in: deep(128)}, {in: many(`"x"`)}, {in: `{"a":{"b":1},"b":{"a":1}}`},
		{in: ``, code: "invalid_json"}, {in: `{`, code: "invalid_json"}, {in: `{"a":1,}`, code: "invalid_json"},
		{in: `[1,]`, code: "invalid_json", pointer: "/1"}, {in: `01`, code: "invalid_json"}, {in: `1.`, code: "invalid_json"},
		{in: `-`, code: "invalid_json"}, {in: `1e`, code: "invalid_json"}, {in: `.5`, code: "invalid_json"}, {in: `+1`, code: "invalid_json"},
		{in: `nul`, code: "invalid_json"}, {in: `NaN`, code: "invalid_json"}, {in: `'a'`, code: "invalid_json"},
		{in: "\"\n\"", code: "invalid_json"}, {in: `"\x"`, code: "invalid_json"}, {in: `"\u12g4"`, code: "invalid_json"},
		{in: `"abc`, code: "invalid_json"}, {in: `"\`, code: "invalid_json"}, {in: "\ufeff{}", code: "invalid_json"},
		{in: `{} {}`, code: "invalid_json"}, {in: `{}x`, code: "invalid_json"}, {in: "{}\x00", code: "invalid_json"},
		{in: `{"a":1,"a":2}`, code: "duplicate_member", pointer: "/a"},
		{in: `{"x":[{"a~/":1,"\u0061~/":2}]}`, code: "duplicate_member", pointer: "/x/0/a~0~1"},
		{in: many(`"m3"`), code: "duplicate_member", pointer: "/m3"}, {in: many(`"m39"`), code: "duplicate_member", pointer: "/m39"},
		{in: `["\ud800"]`, code: "lone_surrogate", pointer: "/0"}, {in: `"\ude00\ud83d"`, code: "lone_surrogate"},
		{in: `"\ud800\u0041"`, code: "lone_surrogate"}, {in: `{"\ud800":1}`, code: "lone_surrogate"},
		{in: "[\"a\xff\"]", code: "invalid_utf8", pointer: "/0"}, {in: "\"\xed\xa0\x80\"", code: "invalid_utf8"}, {in: "\"\xc0\x80\"", code: "invalid_utf8"},
		{in: `{"a":["x\u0000"]}`, code: "nul", pointer: "/a/0"}, {in: `{"\u0000":1}`, code: "nul"},
		{in: deep(129), code: "too_deep", pointer: strings.Repeat("/0", 128)},
		{in: strings.Repeat(`{"a":`, 1000000), code: "too_deep", pointer: strings.Repeat("/a", 128)},
	}
	for _, c := range cases {
		err := CheckJSON([]byte(c.in))
		if c.code == "" {
			if err != nil {
				t.Errorf("%.60q: got %v, want it to be good", c.in, err)
			}
			continue
		}
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Code != c.code || len(f.Fields) != 1 || f.Fields[0].Pointer != c.pointer {
			t.Errorf("%.60q: got %+v, want code %s at %q", c.in, err, c.code, c.pointer)
			continue
		}
		want := 400
		if c.code == "nul" {
			want = 422
		}
		if f.Status != want {
			t.Errorf("%.60q: got status %d, want %d", c.in, f.Status, want)
		}
	}
}

// FuzzCheckJSON compares the scanner with encoding/json. A text that the scanner accepts must be valid there. If the scanner refuses a
// text that is valid there, the reason must be one of the scanner's own rules, and an independent check must confirm it.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"x\u00e9\n",true,null]}`, `{"a":1,"a":2}`, `"\ud800"`, `"\ud83d\ude00"`, `"\u0000"`, `[[[[]]]]`, ` 1 `, "\"\xff\"", `{"b":{"":{}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := CheckJSON(b)
		valid := json.Valid(b)
		if err == nil {
			if !valid || !utf8.Valid(b) || twiceByTokens(t, b) {
				t.Fatalf("let %q pass", b)
			}
			return
		}
		fe, ok := errors.AsType[*fault.Error](err)
		if !ok {
			t.Fatalf("%q: %v is no fault", b, err)
		}
		if !utf8.ValidString(fe.Error()) {
			t.Fatalf("%q: the text of its fault is not UTF-8", b)
		}
		if !valid {
			return
		}
		switch fe.Code {
		case "invalid_utf8":
			ok = !utf8.Valid(b)
		case "duplicate_member":
			ok = twiceByTokens(t, b)
		case "lone_surrogate":
			ok = bytes.Contains(bytes.ToLower(b), []byte(`\ud`))
		case "nul", "invalid": // one or several
			ok = bytes.Contains(b, []byte(`\u0000`))
		case "too_deep":
			ok = bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) > maxDepth
		default:
			ok = false
		}
		if !ok {
			t.Fatalf("refused %q for %v", b, fe)
		}
	})
}

// twiceByTokens reports whether an object in b has two members with the same name, according to encoding/json.
func twiceByTokens(t *testing.T, b []byte) bool {
	t.Helper()
	type level struct {
		names map[string]bool // nil in an array
		value bool            // a value is next, not a name
	}
	var open []*level
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return false
		}
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		var in *level
		if len(open) > 0 {
			in = open[len(open)-1]
		}
		if s, isText := tok.(string); isText && in != nil && in.names != nil && !in.value {
			if in.names[s] {
				return true
			}
			in.names[s], in.value = true, true
			continue
		}
		switch tok {
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
			continue
		}
		if in != nil {
			in.value = false
		}
		switch tok {
		case json.Delim('{'):
			open = append(open, &level{names: map[string]bool{}})
		case json.Delim('['):
			open = append(open, &level{})
		}
	}
}

func BenchmarkCheckJSON(b *testing.B) {
	doc := []byte(`{"spec":{"timezone":"America/New_York","cron":["0 8 * * 1-5"]},"payload":{"a":[1,2,3,{"b":"some text that is not short"}]},"labels":{"plan":"pro"}}`)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckJSON(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	doc := []byte(`{"name":"a","count":3,"cron":"0 8 * * 1-5","items":[{"sku":"1"}],"labels":{"a":"b"},"payload":{"a":[1,2,3]},"from":"2026-01-01T00:00:00Z"}`)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		var o order
		if err := Unmarshal(doc, &o); err != nil {
			b.Fatal(err)
		}
	}
}
