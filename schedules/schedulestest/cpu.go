package schedulestest

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// CPUTime returns the CPU time that fn takes in its goroutine, to 10 ms. Other work on the machine does not change it. It returns 0 on a
// system other than Linux.
func (h *Fixture) CPUTime(fn func()) time.Duration {
	h.T.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := func() time.Duration {
		stat, err := os.ReadFile("/proc/thread-self/stat")
		if err != nil {
			return 0 // this is no Linux
		}
		return h.CPUOf(stat)
	}
	before := thread()
	fn()
	return thread() - before
}

// CPUOf returns the CPU time of a process or a thread from its stat file in /proc.
func (h *Fixture) CPUOf(stat []byte) (sum time.Duration) {
	h.T.Helper()
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on
	for _, ticks := range fields[11:13] {                                     // utime and stime
		n, err := strconv.Atoi(ticks)
		if err != nil {
			h.T.Fatal(err)
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum
}
