//go:build unix

package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// TestMain is also the program that the crash tests kill.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("EMBEDDED_TEST_SERVE") != "":
		serveUntilKilled(os.Getenv("EMBEDDED_TEST_SERVE"))
	case os.Getenv("EMBEDDED_TEST_WATCH") != "":
		watchUntilKilled()
	default:
		goleak.VerifyTestMain(m)
	}
}

func serveUntilKilled(dir string) {
	ctx := context.Background()
	s, err := Start(ctx, Config{Dir: dir, Log: os.Stderr})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(s.Pid(), s.URL("postgres"))
	select {}
}

// child starts the test binary as another program and returns it with the first line it printed.
func child(t *testing.T, env ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error:") {
		t.Fatalf("the child said %q: %v", line, err)
	}
	return cmd, strings.TrimSpace(line)
}

// folder returns a temporary folder that the server's account may enter. It may not enter t.TempDir.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "embedded-test-*")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, folderMode()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestAnEphemeralServerLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Config{Ephemeral: true, Args: []string{"work_mem=5MB"}})
	if err != nil {
		t.Fatal(err)
	}
	url, err := s.Create(t.Context(), "odd name")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Create(t.Context(), "odd name"); err != nil || again != url {
		t.Errorf("made again: got %s, %v", again, err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{
		"work_mem": "5MB", "TimeZone": "UTC", "server_encoding": "UTF8", "lc_collate": "C", "fsync": "off",
		"dynamic_shared_memory_type": "mmap", "unix_socket_directories": "", "listen_addresses": "127.0.0.1",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %q, want %q (%v)", setting, got, want, err)
		}
	}
	// The connection is left open: a stop must not wait for it.
	dir, pid := s.home.dir, s.Pid()
	stop(t, s)
	stop(t, s)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if serves(pid, filepath.Join(dir, "data")) {
		t.Error("the server still runs")
	}
	if s.Err() != nil {
		t.Errorf("got %v from a server that was stopped", s.Err())
	}
}

func TestARestartKeepsDataPasswordAndPort(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "not", "there", "yet")
	s := start(t, dir)
	url := s.URL("postgres")
	execute(t, url, `CREATE TABLE kept ()`)
	stop(t, s)
	again := start(t, dir)
	if got := again.URL("postgres"); got != url {
		t.Errorf("got %s, want %s", got, url)
	}
	execute(t, url, `SELECT FROM kept`)
}

func TestAnotherProgramOnTheLastPort(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := start(t, dir)
	port := s.port
	stop(t, s)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again := start(t, dir); again.port == port {
		t.Errorf("got port %d, which is taken", port)
	}
}

func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := start(t, dir)
	_, err := Start(t.Context(), Config{Dir: dir})
	want := fmt.Sprintf("%s is in use by another carillon (process %d): stop that one first, or choose another data folder", s.home.dir, os.Getpid())
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	execute(t, s.URL("postgres"), `SELECT 1`)
}

func TestAKilledParent(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	parent, line := child(t, "EMBEDDED_TEST_SERVE="+dir,
		"LC_ALL=xx_YY.UTF-8", "LANG=xx_YY", "TZ=Mars/Phobos", "PGDATA=/nowhere", "PGPORT=1")
	pidText, url, _ := strings.Cut(line, " ")
	pid, err := strconv.Atoi(pidText)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, url, `CREATE TABLE kept AS SELECT generate_series(1, 100000) n`)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // only then the kernel has surely released its lock
	begin := time.Now()
	s := start(t, dir)
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the next start took %s", took)
	}
	if s.Pid() == pid {
		t.Error("the server of the killed parent was kept")
	}
	if serves(pid, s.home.data()) {
		t.Error("the server of the killed parent still runs")
	}
	execute(t, s.URL("postgres"), `SELECT n FROM kept`)
}

func TestAKilledServer(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := start(t, dir)
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	// This statement is too busy to notice that its postmaster has died, so its process keeps the shared memory in use.
	busy := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), `SELECT count(*) FROM generate_series(1, 30000000) a`)
		busy <- err
	}()
	execute(t, s.URL("postgres"), `CREATE TABLE kept ()`)
	if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if s.Err() == nil || !strings.Contains(s.Err().Error(), "ended by itself (signal: killed)") {
		t.Errorf("got %v", s.Err())
	}
	stop(t, s)
	again := start(t, dir)
	execute(t, again.URL("postgres"), `SELECT FROM kept`)
	<-busy // the second start has ended the process of the statement
	_ = conn.Close(context.WithoutCancel(t.Context()))
}

func TestAKilledServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Config{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	url := s.URL("postgres")
	for range 2 {
		execute(t, url, `CREATE TABLE IF NOT EXISTS kept ()`)
		if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.Done()
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		execute(t, url, `SELECT FROM kept`)
	}
	if s.Err() != nil {
		t.Errorf("got %v of a server that runs", s.Err())
	}
}

func TestThePidOfAStranger(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := start(t, dir)
	pidFile, user := filepath.Join(s.home.data(), "postmaster.pid"), s.user
	content, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	stranger := exec.Command("/bin/sh", "-c", "read _")
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: user.credential}
	in, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = stranger.Wait() }()
	_, rest, _ := strings.Cut(string(content), "\n")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(stranger.Process.Pid)+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := user.own(pidFile); err != nil {
		t.Fatal(err)
	}
	execute(t, start(t, dir).URL("postgres"), `SELECT 1`)
}

func TestDataOfAnotherMajor(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	version := filepath.Join(dir, "data", "PG_VERSION")
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(version, []byte("9.6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), dir+" was made by PostgreSQL 9.6, whose programs are not installed") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(version); err != nil || string(text) != "9.6\n" {
		t.Errorf("the data was touched: %q, %v", text, err)
	}
}

func TestAFolderThatIsSomethingElse(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := os.MkdirAll(filepath.Join(dir, "data", "photos"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "is not empty and not a PostgreSQL data folder") {
		t.Errorf("got %v", err)
	}
}

func TestAFolderTheServerCannotEnter(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Config{Dir: filepath.Join(closed, "data")})
	if os.Geteuid() != 0 {
		if err != nil {
			t.Fatal(err)
		}
		stop(t, s)
		return
	}
	if err == nil || !strings.Contains(err.Error(), "cannot enter "+closed+", which is above "+closed+"/data: choose a folder outside it") {
		t.Errorf("got %v", err)
	}
}

func TestSweepRemovesWhatWasAbandoned(t *testing.T) {
	t.Parallel()
	temp := folder(t)
	abandoned, used := filepath.Join(temp, "carillon-postgres-1"), filepath.Join(temp, "carillon-postgres-2")
	foreign := filepath.Join(temp, "carillon-other")
	for _, dir := range []string{abandoned, used, foreign} {
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h, err := lockHome(t.Context(), used)
	if err != nil {
		t.Fatal(err)
	}
	defer h.unlock()
	sweepAbandoned(t.Context(), temp, time.Now())
	if _, err := os.Stat(abandoned); err != nil {
		t.Errorf("a young folder was removed: %v", err)
	}
	sweepAbandoned(t.Context(), temp, time.Now().Add(time.Hour))
	if _, err := os.Stat(abandoned); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an abandoned folder is still there: %v", err)
	}
	for _, dir := range []string{used, foreign} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}

func TestAParentKilledWhileItMakesTheData(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "EMBEDDED_TEST_SERVE="+dir)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	begun := func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "data.new-*", "PG_VERSION"))
		return len(found) > 0
	}
	for deadline := time.Now().Add(2 * time.Minute); !begun() && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	s := start(t, dir)
	execute(t, s.URL("postgres"), `SELECT 1`)
	if left, _ := filepath.Glob(filepath.Join(dir, "data.new-*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}
