package chaos_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/carillonhq/carillon/loadtest/chaos"
)

// Two processes that have not started yet never get the same address.
func TestAFreeAddressIsGivenOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 500 {
		at, err := chaos.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		if seen[at] {
			t.Errorf("%s is given twice", at)
		}
		seen[at] = true
		_, text, err := net.SplitHostPort(at)
		if port, wrong := strconv.Atoi(text); err != nil || wrong != nil || port >= 20_000 {
			t.Errorf("got %s, want a port below 20000: %v", at, err)
		}
	}
}
