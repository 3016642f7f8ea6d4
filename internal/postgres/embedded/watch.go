package embedded

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// watch starts a shell that sends sig to a process once our end of a pipe closes, however this process ends. The shell
// goes when done closes.
func watch(pid int, sig syscall.Signal, done <-chan struct{}) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	shell := exec.Command("/bin/sh", "-c", `read _; kill -"$1" "$2"`, "sh", strconv.Itoa(int(sig)), strconv.Itoa(pid))
	shell.Stdin = r
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of reach of Ctrl-C
	if err := shell.Start(); err != nil {
		_ = w.Close()
		return err
	}
	go func() {
		<-done
		_ = shell.Process.Kill() // before the pipe closes: the pid may be another's by now
		_ = shell.Wait()
		_ = w.Close()
	}()
	return nil
}
