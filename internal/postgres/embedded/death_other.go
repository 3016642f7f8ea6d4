//go:build !linux

package embedded

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func watchUnlessSignalled(pid int, sig syscall.Signal, done <-chan struct{}) error {
	return watch(pid, sig, done)
}

// arguments cuts at spaces, so a folder with a space in its name is not recognized: its server is waited for by
// PostgreSQL's own checks alone.
func arguments(pid int) []string {
	line, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(line))
}

// orphans are not looked for: those of a dead postmaster end by themselves.
func orphans(string) []int { return nil }

// children are not looked for.
func children(int) []int { return nil }
