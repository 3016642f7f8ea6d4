//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// initdb creates the cluster in a temporary folder and renames it, so that data is always complete. Each run uses a new temporary
// folder, because an initdb whose parent was killed may still write to the last one.
func (h *home) initdb(ctx context.Context, bin programs, user account, password string, args []string) error {
	last, _ := filepath.Glob(h.path("data.new-*")) // the pattern is valid
	for _, dir := range append(last, h.path("templates")) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	fresh, err := os.MkdirTemp(h.dir, "data.new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) // absent after the rename
	templates := h.path("templates")
	defer os.RemoveAll(templates)
	secret := h.path("password.initdb") // a copy, because the server's account may not read our password file
	defer os.Remove(secret)
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	if err := user.own(fresh, secret); err != nil {
		return err
	}
	args = append([]string{"-D", fresh, "--pwfile=" + secret}, args...)
	if err := copyTemplates(ctx, bin, user, fresh, templates); err == nil {
		args = append(args, "-L", templates)
	}
	if out, err := runAs(ctx, user, fresh, bin.initdb(), args...); err != nil {
		return fmt.Errorf("initdb of %s: %w: %s", h.dir, err, lastLines(string(out)))
	}
	if err := os.Rename(fresh, h.data()); err != nil {
		return err
	}
	h.version = bin.major()
	return nil
}

// copyTemplates makes a copy of initdb's template folder whose configuration keeps shared memory in files. Otherwise the servers that
// initdb starts use /dev/shm, which can be tiny in a container; before PostgreSQL 16 no option changes that. If copyTemplates fails,
// initdb uses its own templates.
func copyTemplates(ctx context.Context, bin programs, user account, data, to string) error {
	shown, err := runAs(ctx, user, data, bin.initdb(), "--show", "-D", data)
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(string(shown), "share_path=")
	from, _, _ := strings.Cut(rest, "\n")
	if !found || !filepath.IsAbs(from) {
		return errors.New("initdb does not print the folder of its templates")
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := makeFolders(to); err != nil {
		return err
	}
	const sample = "postgresql.conf.sample"
	for _, entry := range entries {
		if entry.Name() == sample {
			continue
		}
		if err := os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	configuration, err := os.ReadFile(filepath.Join(from, sample))
	if err != nil {
		return err
	}
	configuration = append(configuration, "\ndynamic_shared_memory_type = mmap\nhuge_pages = off\n"...)
	own := filepath.Join(to, sample)
	return errors.Join(os.WriteFile(own, configuration, 0o600), user.own(own))
}

// runAs runs a program under the server's account, in its own process group so that Ctrl-C does not reach it. It returns the output.
func runAs(ctx context.Context, user account, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, cleanEnvironment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user.credential, Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	dieWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	runtime.LockOSThread() // Linux sends the death signal when the thread ends, not the process
	defer runtime.UnlockOSThread()
	return cmd.CombinedOutput()
}
