//go:build unix

package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func watchUntilKilled() {
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	if err := watch(sleeper.Process.Pid, syscall.SIGTERM, make(chan struct{})); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(sleeper.Process.Pid)
	select {}
}

func TestTheWatchEndsWhatOutlivesItsParent(t *testing.T) {
	t.Parallel()
	parent, line := child(t, "EMBEDDED_TEST_WATCH=yes")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if args := arguments(pid); len(args) < 2 {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Error("it still runs")
}
