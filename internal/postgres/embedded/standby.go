//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// copyOf copies a running primary with pg_basebackup. The server then follows it under the name of its folder, with the primary's
// password.
func (s *Server) copyOf(ctx context.Context, primary *Server) error {
	if err := os.WriteFile(s.home.path("password"), []byte(primary.password), 0o600); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(s.home.dir, "data.new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) // absent after the rename
	if err := s.user.own(fresh); err != nil {
		return err
	}
	source := primary.URL("postgres") + "&application_name=" + s.Name()
	out, err := runAs(ctx, s.user, fresh, filepath.Join(s.bin.dir, "pg_basebackup"),
		"--pgdata", fresh, "--dbname", source, "--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast", "--no-sync")
	if err != nil {
		return fmt.Errorf("pg_basebackup to %s: %w: %s", s.home.dir, err, lastLines(string(out)))
	}
	if err := os.Rename(fresh, s.home.data()); err != nil {
		return err
	}
	s.home.version = s.bin.major()
	return nil
}

// Name returns the application_name of a standby at its primary, for synchronous_standby_names.
func (s *Server) Name() string { return filepath.Base(s.home.dir) }

// Promote makes a standby a primary, and returns when it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var promoted bool
	if err := conn.QueryRow(ctx, `SELECT pg_promote(true, 60)`).Scan(&promoted); err != nil {
		return err
	}
	if !promoted {
		return fmt.Errorf("PostgreSQL of %s was not promoted in time: %s", s.home.dir, s.home.logTail())
	}
	return nil
}

// Port returns the server's port on loopback.
func (s *Server) Port() int { return s.port }

// Signal sends a signal to the postmaster and its processes, to simulate a failing machine. SIGKILL ends them. SIGSTOP silences them
// with their connections open, and SIGCONT wakes them.
func (s *Server) Signal(sig syscall.Signal) error {
	err := s.process.cmd.Process.Signal(sig) // first, so that it starts no new process
	for _, pid := range children(s.Pid()) {
		if gone := syscall.Kill(pid, sig); !errors.Is(gone, syscall.ESRCH) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
