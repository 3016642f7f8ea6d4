//go:build unix

package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	draw "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Server is a running PostgreSQL.
type Server struct {
	home     *home
	user     account
	bin      programs
	password string
	port     int
	held     bool // the port must not change: clients know it
	settings []string
	remove   bool
	graceful syscall.Signal
	process  process
}

// process is the postmaster that was started last.
type process struct {
	cmd     *exec.Cmd
	done    chan struct{}
	ended   error       // of cmd; valid after done is closed
	stopped atomic.Bool // on request
}

// role is the superuser of every embedded server.
const role = "carillon"

// readyWithin bounds a start with its crash recovery, without a download.
const readyWithin = 2 * time.Minute

// Start returns a server that accepts connections. It takes the programs from CARILLON_POSTGRES_BIN, from PATH or from the folders of
// Linux distributions, or downloads them. An error is one sentence, and says what the user can do.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	h, err := openHome(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{home: h, settings: settings(cfg), remove: cfg.Ephemeral, graceful: syscall.SIGINT}
	if cfg.Ephemeral {
		s.graceful = syscall.SIGQUIT // its data is removed, so it need not write a checkpoint
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if s.user, err = serverAccount(h.data()); err != nil {
		return nil, err
	}
	if s.bin, err = findPrograms(ctx, h, cfg.Log); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := s.user.canEnter(h.dir, s.bin); err != nil {
		return nil, err
	}
	unclean, err := h.endLeftover(ctx, cfg.Log)
	if err != nil {
		return nil, err
	}
	if cfg.Standby != nil && h.version == "" {
		if err := s.copyOf(ctx, cfg.Standby); err != nil {
			return nil, err
		}
	}
	if s.password, err = h.secret(); err != nil {
		return nil, err
	}
	if err := s.initialize(ctx, cfg.Ephemeral); err != nil {
		return nil, err
	}
	if err := s.run(ctx, unclean); err != nil {
		return nil, err
	}
	return s, nil
}

// settings returns the settings that differ from PostgreSQL's defaults. Shared memory uses anonymous maps and files, so that a small
// /dev/shm is enough. Huge pages are off, because a container may forbid them. The data of an ephemeral server survives a crash of the
// server, but not of the machine.
func settings(cfg Config) []string {
	list := []string{
		"listen_addresses=127.0.0.1",
		"unix_socket_directories=",
		"timezone=UTC",
		"log_timezone=UTC",
		"lc_messages=C",
		"logging_collector=off",
		"log_destination=stderr",
		"max_connections=200",
		"shared_memory_type=mmap",
		"dynamic_shared_memory_type=mmap",
		"huge_pages=off",
		"jit=off",
	}
	if cfg.Ephemeral {
		list = append(list, "fsync=off", "full_page_writes=off", "max_wal_size=256MB")
	}
	return append(list, cfg.Args...)
}

// lingerFor is how long a start waits for the processes of a dead postmaster to release its shared memory.
const lingerFor = 20 * time.Second

// run starts the server and waits until it answers. It tries again on another port if another program has taken the port. After a crash
// it also tries again while processes of the last server hold its shared memory.
func (s *Server) run(ctx context.Context, unclean bool) error {
	begin := time.Now()
	for try := 1; ; try++ {
		if err := s.choosePort(ctx, try); err != nil {
			return err
		}
		err := s.launch()
		if err != nil {
			return err
		}
		if err = s.waitReady(ctx); err == nil {
			return s.home.keepPort(s.port)
		}
		s.signal(s.graceful)
		<-s.process.done
		again := unclean && time.Since(begin) < lingerFor || try < 4 && taken(s.port)
		if !again || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// choosePort prefers the last port, so that old clients find the server again.
func (s *Server) choosePort(ctx context.Context, try int) error {
	if s.held {
		return s.awaitPort(ctx)
	}
	if last := s.home.lastPort(); try == 1 && last > 0 && !taken(last) {
		s.port = last
		return nil
	}
	for range 100 {
		if port := firstPort + draw.IntN(ports); !taken(port) {
			s.port = port
			return nil
		}
	}
	return fmt.Errorf("no port from %d to %d is free on 127.0.0.1", firstPort, firstPort+ports-1)
}

// The port range is below the ephemeral ports of outgoing connections (from 32768 on Linux, 49152 elsewhere). Otherwise a client that
// dials the port of a stopped server could get that port as its own, and connect to itself.
const (
	firstPort = 20_000
	ports     = 12_000
)

// awaitPort waits until the port is free, because the processes of a killed server may hold it for a moment.
func (s *Server) awaitPort(ctx context.Context) error {
	for taken(s.port) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("port %d was taken while PostgreSQL of %s was down", s.port, s.home.dir)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func taken(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return true
	}
	return l.Close() != nil
}

// launch starts the postmaster in its own process group, because Ctrl-C must not stop it while we drain work.
func (s *Server) launch() error {
	log, err := s.home.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-D", s.home.data(), "-p", strconv.Itoa(s.port)}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(s.bin.postgres(), args...)
	cmd.Dir, cmd.Env = s.home.data(), cleanEnvironment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user.credential, Setpgid: true}
	dieWithParent(cmd.SysProcAttr, s.graceful)

	s.process.cmd, s.process.done, s.process.ended = cmd, make(chan struct{}), nil
	started := make(chan error)
	done := s.process.done
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: Linux sends the death signal when the thread ends, not the process
		err := cmd.Start()
		started <- err
		if err == nil {
			s.process.ended = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-s.process.done
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	return watchUnlessSignalled(cmd.Process.Pid, s.graceful, done)
}

// waitReady returns when the server accepts connections. It checks that the server on the port uses our folder, because another
// server may have taken the port.
func (s *Server) waitReady(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			defer conn.Close(context.WithoutCancel(ctx))
			var dir string
			if err := conn.QueryRow(ctx, `SHOW data_directory`).Scan(&dir); err != nil {
				return err
			}
			if dir != s.home.data() {
				return fmt.Errorf("port %d is served from %s, not from %s", s.port, dir, s.home.data())
			}
			return nil
		}
		// 57P03 means that the server is still starting or recovering. Any other error is final.
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code != "57P03" {
			return fmt.Errorf("PostgreSQL of %s refuses us: %s (%s)", s.home.dir, e.Message, e.Code)
		}
		select {
		case <-s.process.done:
			return fmt.Errorf("PostgreSQL of %s ended while starting (%v): %s", s.home.dir, s.process.ended, s.home.logTail())
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL of %s does not answer (%w): %s", s.home.dir, ctx.Err(), s.home.logTail())
		case <-time.After(15 * time.Millisecond):
		}
	}
}

// URL returns the URL of a database of the server. It contains the superuser's password.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Create creates a database unless it exists, and returns its URL.
func (s *Server) Create(ctx context.Context, database string) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, database).Scan(&exists)
	if err != nil {
		return "", err
	}
	if !exists {
		if _, err := conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{database}.Sanitize()); err != nil {
			return "", err
		}
	}
	return s.URL(database), nil
}

// Version returns the version of the server's programs, such as "15.18".
func (s *Server) Version() string { return s.bin.version }

// Pid returns the process id of the postmaster.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }

// Done returns a channel that is closed when the server has ended for any reason.
func (s *Server) Done() <-chan struct{} { return s.process.done }

// Err returns why the server ended unexpectedly. It returns nil while the server runs and after Stop.
func (s *Server) Err() error {
	select {
	case <-s.process.done:
	default:
		return nil
	}
	if s.process.stopped.Load() {
		return nil
	}
	return fmt.Errorf("PostgreSQL of %s ended by itself (%v): %s", s.home.dir, s.process.ended, s.home.logTail())
}

// Restart starts a server again that has ended unexpectedly, with the same data and address. No other method may run at the same time.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	select {
	case <-s.process.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := s.home.endLeftover(ctx, io.Discard); err != nil {
		return err
	}
	s.held = true
	return s.run(ctx, true)
}

// Stop ends the server and its connections, and waits for its end. It shuts down cleanly until ctx ends, and then immediately; the next
// start recovers the data. Further calls do nothing.
func (s *Server) Stop(ctx context.Context) error {
	if s.process.stopped.Swap(true) {
		<-s.process.done
		return nil
	}
	s.signal(s.graceful)
	select {
	case <-s.process.done:
	case <-ctx.Done():
		s.signal(syscall.SIGQUIT)
		<-s.process.done
	}
	return s.release()
}

// signal sends a signal to the postmaster. It ignores the error of a server that has ended.
func (s *Server) signal(sig syscall.Signal) { _ = s.process.cmd.Process.Signal(sig) }

func (s *Server) release() error {
	if s.remove {
		return errors.Join(s.home.erase(), s.home.unlock())
	}
	return s.home.unlock()
}

func (s *Server) initialize(ctx context.Context, ephemeral bool) error {
	if s.home.version != "" {
		return nil
	}
	args := []string{"-U", role, "-E", "UTF8", "--locale=C"}
	if ephemeral {
		// The server listens on loopback only, and its data ends with it. SCRAM derives a key from the password for each connection, which
		// takes longer than many tests do.
		args = append(args, "-A", "password", "--no-sync")
	} else {
		args = append(args, "-A", "scram-sha-256")
	}
	return s.home.initdb(ctx, s.bin, s.user, s.password, args)
}

func newPassword() string { return strings.ToLower(rand.Text()) }

// cleanEnvironment returns a minimal environment: an unknown LC_ALL breaks initdb, and PGDATA and similar variables mislead it.
func cleanEnvironment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + filepath.FromSlash("/")}
}
