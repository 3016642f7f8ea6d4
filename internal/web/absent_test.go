package web

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/internal/fault"
)

type visit struct {
	Zone  string            `json:"zone,omitempty"`
	Why   string            `json:"why,omitempty" empty:"yes"`
	Note  *string           `json:"note,omitempty" null:"yes"`
	Count *int              `json:"count,omitempty"`
	When  lines             `json:"when,omitempty"`
	Stops []item            `json:"stops,omitempty"`
	Tags  map[string]string `json:"tags,omitempty"`
	Inner *visit            `json:"inner,omitempty"`
	Raw   Raw               `json:"raw,omitempty"`
}

// null and "" do not count as absent: the tags of a field say whether it may have them.
func TestNullAndEmptyAreNotLeftOut(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		`{"note":null,"raw":null,"why":"","tags":{"a":""},"stops":[]}`: nil,
		`{"note":""}`:                       nil,
		`{"zone":""}`:                       {"/zone invalid"},
		`{"inner":{"zone":"","note":null}}`: {"/inner/zone invalid"},
		`{"zone":null,"count":null,"when":null,"stops":null,"tags":null}`: {"/zone wrong_type", "/count wrong_type", "/when wrong_type", "/stops wrong_type", "/tags wrong_type"},
		`{"inner":null,"why":null}`:                                       {"/inner wrong_type", "/why wrong_type"},
		`{"stops":[null,{"sku":"a"}],"tags":{"a":null,"b":"c"}}`:          {"/stops/0 wrong_type", "/tags/a wrong_type"},
		`{"raw":{"zone":null,"zones":[null,""]},"stops":[{"sku":null}]}`:  {"/stops/0/sku wrong_type"},
	} {
		var v visit
		if diff := cmp.Diff(want, located(t, Unmarshal([]byte(in), &v))); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
		if diff := cmp.Diff(want, located(t, Members[visit]([]byte(in), func(_, _ []byte) {}))); diff != "" {
			t.Errorf("the members of %s: %s", in, diff)
		}
	}
	for in, want := range map[string][]string{
		`{"zone":null,"count":null,"stops":null,"tags":{"a":null},"inner":{"zone":null}}`: nil,
		`{"stops":[null],"inner":{"zone":""}}`:                                            {"/stops/0 wrong_type", "/inner/zone invalid"},
		`null`:                                                                            {" wrong_type"},
	} {
		var v visit
		if diff := cmp.Diff(want, located(t, UnmarshalPatch([]byte(in), &v))); diff != "" {
			t.Errorf("the patch %s: %s", in, diff)
		}
	}
}

// located returns the pointer and the code of each field of a fault.
func located(t *testing.T, err error) (at []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Status != 422 {
		t.Fatalf("got %v", err)
	}
	for _, field := range f.Fields {
		at = append(at, field.Pointer+" "+field.Code)
	}
	return at
}
