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

// armed is the point that CARILLON_CRASH names, and how often it is passed before it ends the process: "point:3".
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

// Crash ends the process as kill -9 does where the point is armed, once it has been passed often enough.
func Crash(point string) {
	if a := state(); point == a.point && a.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it has come
	}
}

// Loopback tells whether endpoints may be on this machine: where CARILLON_LOOPBACK says so.
func Loopback() bool { return os.Getenv("CARILLON_LOOPBACK") != "" }
