//go:build unix

package embedded

import (
	"testing"
	"time"
)

// A start waits for a lock that is released soon, as the kernel releases that of a killed process.
func TestALockThatIsReleasedSoonIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	var err error
	for range 5 { // the release may be late
		before, failed := lockHome(t.Context(), dir)
		if failed != nil {
			t.Fatal(failed)
		}
		released := make(chan error, 1)
		time.AfterFunc(200*time.Millisecond, func() { released <- before.unlock() })
		var after *home
		after, err = lockHome(t.Context(), dir)
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		if err == nil {
			if err := after.unlock(); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Error(err)
}
