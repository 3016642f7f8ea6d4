//go:build unix && !linux

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

// arguments splits at spaces, so it does not recognize the server of a folder with a space in its name. PostgreSQL's own checks
// protect such a folder.
func arguments(pid int) []string {
	line, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(line))
}

// orphans returns none: the processes of a dead postmaster end by themselves.
func orphans(string) []int { return nil }

// children returns none.
func children(int) []int { return nil }
