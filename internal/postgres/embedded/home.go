//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// home is the folder of one server. Its lock is held while the server may run:
//
//	data/       the cluster, or absent
//	password    of the superuser, readable by our account only
//	port        the last port
//	server.log  the server's log; server.log.old is its predecessor
//	lock        holds the pid of its owner
type home struct {
	dir     string // absolute, without symbolic links, as PostgreSQL reports its folder
	version string // the major version of data; "": there is no data
	lock    *os.File
	logFrom int64 // the offset in server.log at the last launch
}

const ephemeralPattern = "carillon-postgres-*"

func openHome(ctx context.Context, cfg Config) (*home, error) {
	if cfg.Ephemeral == (cfg.Dir != "") {
		return nil, errors.New("set either the folder of a server or Ephemeral")
	}
	dir := cfg.Dir
	if cfg.Ephemeral {
		sweepAbandoned(ctx, os.TempDir(), time.Now())
		made, err := os.MkdirTemp("", ephemeralPattern)
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(made, folderMode()); err != nil {
			return nil, err
		}
		dir = made
	}
	h, err := lockHome(ctx, dir)
	if err != nil {
		return nil, err
	}
	if h.version, err = dataVersion(h.data()); err != nil {
		return nil, errors.Join(err, h.unlock())
	}
	return h, nil
}

func lockHome(ctx context.Context, dir string) (*home, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeFolders(dir); err != nil {
		return nil, fmt.Errorf("the data folder cannot be created: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	h := &home{dir: dir}
	if h.lock, err = os.OpenFile(h.path("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("the data folder cannot be locked: %w", err)
	}
	if err := h.holdLock(ctx); err != nil {
		return nil, errors.Join(err, h.lock.Close())
	}
	return h, nil
}

// holdLock takes the lock. It waits up to two seconds, because the kernel needs a moment to release the lock of a killed process.
func (h *home) holdLock(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Second); ; {
		err := syscall.Flock(int(h.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("%s cannot be locked: %w", h.dir, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is in use by another carillon%s: stop that one first, or choose another data folder", h.dir, h.holder())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := h.lock.Truncate(0); err != nil {
		return err
	}
	_, err := h.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func (h *home) holder() string {
	text, err := os.ReadFile(h.path("lock"))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return " (process " + pid + ")"
	}
	return ""
}

func (h *home) unlock() error           { return h.lock.Close() }
func (h *home) erase() error            { return os.RemoveAll(h.dir) }
func (h *home) path(name string) string { return filepath.Join(h.dir, name) }
func (h *home) data() string            { return h.path("data") }
func (h *home) keepPort(port int) error {
	return os.WriteFile(h.path("port"), []byte(strconv.Itoa(port)), 0o600)
}

// lastPort returns the stored port, or 0.
func (h *home) lastPort() int {
	text, err := os.ReadFile(h.path("port"))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	return port
}

// dataVersion returns the major version of a data folder, or "" for an absent or empty one. Any other folder is an error.
func dataVersion(data string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the data folder cannot be read: %w", err)
	}
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("%s is not empty and not a PostgreSQL data folder: choose another data folder", data)
	}
	return "", nil
}

// secret returns the superuser's password. It creates the password together with the data.
func (h *home) secret() (string, error) {
	text, err := os.ReadFile(h.path("password"))
	if err == nil && len(text) > 0 {
		return string(text), nil
	}
	if h.version != "" {
		return "", fmt.Errorf("%s is lost, which holds the password of the data: restore it, or choose another data folder", h.path("password"))
	}
	password := newPassword()
	return password, os.WriteFile(h.path("password"), []byte(password), 0o600)
}

const longestLog = 8 << 20

func (h *home) openLog() (*os.File, error) {
	name := h.path("server.log")
	if info, err := os.Stat(name); err == nil && info.Size() > longestLog {
		if err := os.Rename(name, name+".old"); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	h.logFrom, err = f.Seek(0, io.SeekEnd)
	return f, err
}

// logTail returns the last log lines since the last launch, joined to one line.
func (h *home) logTail() string {
	text, err := os.ReadFile(h.path("server.log"))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text[min(h.logFrom, int64(len(text))):]))
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-4):]
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "; ")
}

// sweepAbandoned removes the temporary folders of killed processes. It skips folders that are locked, belong to another account, or are
// so new that their process may not have locked them yet.
func sweepAbandoned(ctx context.Context, temp string, now time.Time) {
	found, _ := filepath.Glob(filepath.Join(temp, ephemeralPattern)) // the pattern is valid
	for _, dir := range found {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < time.Minute || owner(info) != os.Geteuid() {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			h := &home{dir: dir, lock: lock}
			if _, err := h.endLeftover(ctx, io.Discard); err == nil {
				_ = h.erase() // on an error a later start tries again
			}
		}
		_ = lock.Close()
	}
}
