package policy_test

import (
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/policy"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "A-z_0.9": true, strings.Repeat("x", 128): true, ".": true,
		"": false, strings.Repeat("x", 129): false, "a b": false, "a/b": false, "é": false, "a\n": false, "a,b": false,
	} {
		if got := policy.ValidName(name); got != want {
			t.Errorf("name %q: got %t", name, got)
		}
	}
	for key, want := range map[string]bool{
		"a": true, "a/b c%,é日\U0010FFFF": true, strings.Repeat("x", 256): true, strings.Repeat("é", 128): true, "..": true,
		"": false, strings.Repeat("x", 257): false, strings.Repeat("é", 129): false, "\x00": false, "a\n": false, "\u0085": false, "\xff": false, "\xed\xa0\x80": false,
	} {
		if got := policy.ValidKey(key); got != want {
			t.Errorf("key %q: got %t", key, got)
		}
	}
}
