//go:build unix

package embedded

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// watch starts a shell that sends sig to a process when our end of a pipe closes, which happens at any end of this process. The shell
// ends when done closes.
func watch(pid int, sig syscall.Signal, done <-chan struct{}) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	shell := exec.Command("/bin/sh", "-c", `read _; kill -"$1" "$2"`, "sh", strconv.Itoa(int(sig)), strconv.Itoa(pid))
	shell.Stdin = r
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	if err := shell.Start(); err != nil {
		_ = w.Close()
		return err
	}
	go func() {
		<-done
		_ = shell.Process.Kill() // before the pipe closes, because the pid may now belong to another process
		_ = shell.Wait()
		_ = w.Close()
	}()
	return nil
}
