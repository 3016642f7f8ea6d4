package web_test

import (
	"testing"

	"github.com/carillonhq/carillon/internal/web"
)

func TestAMergePatchIsApplied(t *testing.T) {
	t.Parallel()
	type inner struct {
		A int `json:"a,omitempty"`
		B int `json:"b,omitempty"`
	}
	type doc struct {
		Name string `json:"name,omitempty"`
		List []int  `json:"list,omitempty"`
		In   *inner `json:"in,omitempty"`
	}
	before := doc{Name: "n", List: []int{1, 2}, In: &inner{A: 1, B: 2}}
	for patch, want := range map[string]string{
		`{}`:                          `{"name":"n","list":[1,2],"in":{"a":1,"b":2}}`,
		`{"name": null, "list": [3]}`: `{"list":[3],"in":{"a":1,"b":2}}`,
		`{"in": {"a": null, "b": 7}}`: `{"name":"n","list":[1,2],"in":{"b":7}}`,
		`{"in": null}`:                `{"name":"n","list":[1,2]}`,
	} {
		got, err := web.Merged[doc, doc](before, []byte(patch))
		text, _ := web.Marshal(got)
		if err != nil || string(text) != want {
			t.Errorf("%s: got %s, %v", patch, text, err)
		}
	}
	for _, bad := range []string{`null`, `[]`, `1`, `{"colour": null}`, `{"in": {"c": null}}`, `{"name": 1}`, `{`, ``} {
		if got, err := web.Merged[doc, doc](before, []byte(bad)); err == nil {
			t.Errorf("%s: got %+v", bad, got)
		}
	}
}
