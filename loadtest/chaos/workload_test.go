package chaos

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
)

// The patch that replacing returns, merged into any stored spec, gives exactly the new spec.
func TestAPatchReplacesAllOfASpec(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		before, after := draw(r, time.Now(), true, 1, "1"), draw(r, time.Now(), true, 1, "1")
		var was, patch, want map[string]any
		for _, one := range []struct {
			text string
			into *map[string]any
		}{{before.spec(), &was}, {after.replacing(), &patch}, {after.spec(), &want}} {
			if err := json.Unmarshal([]byte(one.text), one.into); err != nil {
				t.Fatalf("%v: %s", err, one.text)
			}
		}
		merge(was, patch)
		got, _ := json.Marshal(was)
		wanted, _ := json.Marshal(want)
		if string(got) != string(wanted) {
			t.Fatalf("%s patched with %s is %s, want %s", before.spec(), after.replacing(), got, wanted)
		}
	}
}

// merge is RFC 7396.
func merge(into, patch map[string]any) {
	for name, value := range patch {
		inner, nested := value.(map[string]any)
		switch was, there := into[name].(map[string]any); {
		case value == nil:
			delete(into, name)
		case nested:
			if !there {
				was = map[string]any{}
			}
			merge(was, inner)
			into[name] = was
		default:
			into[name] = value
		}
	}
}
