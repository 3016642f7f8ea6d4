//go:build unix

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// endLeftover ends the server of a killed process, if it still runs. It reports whether the last server ended uncleanly. The caller
// holds the folder's lock, so no living process of ours has a server there.
func (h *home) endLeftover(ctx context.Context, log io.Writer) (unclean bool, err error) {
	text, err := os.ReadFile(filepath.Join(h.data(), "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(first)))
	if err != nil || pid <= 0 {
		return true, nil // half written: PostgreSQL handles it
	}
	if !serves(pid, h.data()) {
		for _, orphan := range orphans(h.data()) {
			_ = syscall.Kill(orphan, syscall.SIGQUIT) // it may already have ended
		}
		return true, h.forgetStranger(pid)
	}
	fmt.Fprintf(log, "ending the PostgreSQL that was left running in %s (process %d)\n", h.dir, pid)
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{
		{syscall.SIGINT, 5 * time.Second},
		{syscall.SIGQUIT, 8 * time.Second},
	} {
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return true, fmt.Errorf("a PostgreSQL (process %d) was left running in %s and cannot be ended: %w", pid, h.dir, err)
		}
		if gone(ctx, pid, h.data(), step.wait) {
			return true, nil
		}
	}
	return true, fmt.Errorf("a PostgreSQL (process %d) was left running in %s and does not end: end it, then start again", pid, h.dir)
}

// forgetStranger removes a pid file whose pid now belongs to another program, which happens after a restart of a container.
// PostgreSQL would mistake that program for its predecessor and refuse to start. PostgreSQL itself finds processes of a dead
// postmaster that still use the data, through their shared memory.
func (h *home) forgetStranger(pid int) error {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return os.Remove(filepath.Join(h.data(), "postmaster.pid"))
}

func gone(ctx context.Context, pid int, data string, within time.Duration) bool {
	for deadline := time.Now().Add(within); serves(pid, data); {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}

// serves reports whether a process is a server of this data folder. A zombie has no arguments, so it is not.
func serves(pid int, data string) bool {
	args := arguments(pid)
	at := slices.Index(args, "-D")
	return at >= 0 && at+1 < len(args) && args[at+1] == data
}
