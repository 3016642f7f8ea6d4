package mergepatch_test

import (
	"testing"

	"github.com/carillonhq/carillon/internal/mergepatch"
)

// The cases are those of RFC 7396, appendix A, and texts that must stay as they are.
func TestApply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"n":123456789012345678901234567890.10,"h":"<b>&"}`, `{"a": 1.00}`, `{"a":1.00,"h":"<b>&","n":123456789012345678901234567890.10}`},
	} {
		if got, err := mergepatch.Apply([]byte(c.value), []byte(c.patch)); err != nil || string(got) != c.want {
			t.Errorf("%s with %s: got %s, %v, want %s", c.value, c.patch, got, err, c.want)
		}
	}
}
