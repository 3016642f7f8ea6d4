package embedded

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent makes the kernel send sig to the child when the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr, sig syscall.Signal) { a.Pdeathsig = sig }

// watchUnlessSignalled does nothing, because the kernel sends the signal.
func watchUnlessSignalled(int, syscall.Signal, <-chan struct{}) error { return nil }

func arguments(pid int) []string {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
}

// orphans returns the processes of a server whose postmaster has died; a long statement keeps them from noticing it. It finds them by
// their working directory, which is the data folder. Processes that we may not inspect end by themselves.
func orphans(data string) []int {
	var found []int
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is valid
	for _, link := range links {
		dir, err := os.Readlink(link)
		if err != nil || dir != data {
			continue
		}
		name, err := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
		if err != nil || strings.TrimSpace(string(name)) != "postgres" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// children returns the processes that a postmaster has started. Each has its own process group.
func children(pid int) []int {
	name := strconv.Itoa(pid)
	list, err := os.ReadFile(filepath.Join("/proc", name, "task", name, "children"))
	if err != nil {
		return nil
	}
	var found []int
	for _, field := range strings.Fields(string(list)) {
		if child, err := strconv.Atoi(field); err == nil {
			found = append(found, child)
		}
	}
	return found
}
