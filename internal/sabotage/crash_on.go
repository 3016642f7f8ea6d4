//go:build fault

package sabotage

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// armed is the crash point in CARILLON_CRASH, and how many passes are left until it kills the process: "point:3".
type armed struct {
	point string
	left  atomic.Int64
}

var state = sync.OnceValue(func() *armed {
	point, count, _ := strings.Cut(os.Getenv("CARILLON_CRASH"), ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		n = 1
	}
	a := &armed{point: point}
	a.left.Store(n)
	return a
})

// Crash kills the process, as kill -9 does, at the last pass of the point that CARILLON_CRASH names.
func Crash(point string) {
	if a := state(); point == a.point && a.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

// Loopback reports whether endpoints may be on this machine: CARILLON_LOOPBACK is set.
func Loopback() bool { return os.Getenv("CARILLON_LOOPBACK") != "" }
