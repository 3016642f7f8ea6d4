package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A second signal ends the program at once, in any state.
func TestASecondSignalEndsItAtOnce(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CARILLON_TEST=stuck")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for _, want := range []string{"running", "stopping"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %s", lines.Text(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	// A signal soon after the first may count as the first.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
				_ = cmd.Process.Signal(syscall.SIGINT)
			}
		}
	}()
	state, err := cmd.Process.Wait()
	if err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("got %v, %v", state, err)
	}
}

// Acknowledged changes survive when the program is killed and restarted at once.
func TestDevSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := dataFolder(t)
	ready := filepath.Join(t.TempDir(), "ready.json")
	cmd := exec.Command(os.Args[0], "dev", "--data", dir, "--no-demo", "--listen", "127.0.0.1:0", "--ready-file", ready)
	cmd.Env = append(os.Environ(), "CARILLON_TEST=main")
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var killed announcement
	for deadline := time.Now().Add(inTime); killed.URL == ""; <-time.After(20 * time.Millisecond) {
		if text, err := os.ReadFile(ready); err == nil {
			if err := json.Unmarshal(text, &killed); err != nil {
				t.Fatal(err)
			}
		} else if time.Now().After(deadline) {
			t.Fatal("it is not ready in time")
		}
	}
	first := time.Since(begin)
	const path = "/v1/workflows/w/schedules/k"
	if status, body := call(t, http.MethodPut, killed.URL+path, killed.Token, `{"spec": {"cron": "0 8 * * *"}}`); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	again := start(t, "--data", dir, "--no-demo")
	// The first start also created the database. The second one does not wait for the first process to count as dead.
	if took := time.Since(begin); took > max(20*time.Second, 4*first) {
		t.Errorf("the next start took %s, the first %s", took, first)
	}
	if again.DatabaseURL != killed.DatabaseURL {
		t.Error("the database is elsewhere")
	}
	if status, body := call(t, http.MethodGet, again.URL+path, killed.Token, ""); status != http.StatusOK {
		t.Errorf("got %d: %s", status, body)
	}
}

func TestDevOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	d := start(t, "--ephemeral")
	d.line(t, `"msg":"tick"`)
	conn, err := pgx.Connect(t.Context(), d.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var dir string
	if err := conn.QueryRow(t.Context(), `SHOW data_directory`).Scan(&dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	postmaster, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := postmaster.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for deadline := killed.Add(inTime); time.Now().Before(deadline); {
		var tick struct {
			Timestamp time.Time `json:"timestamp"`
		}
		if err := json.Unmarshal([]byte(d.line(t, `"msg":"tick"`)), &tick); err != nil {
			t.Fatal(err)
		}
		if tick.Timestamp.After(killed.Add(time.Second)) {
			return
		}
	}
	t.Error("nothing ticks after the database was killed")
}

func TestDevPausesWhatFailsTooOften(t *testing.T) {
	t.Parallel()
	d := start(t, "--ephemeral", "--no-demo")
	const path = "/v1/workflows/w/schedules/k"
	spec := `{"spec": {"intervals": [{"every": "1s"}]}, "policy": {"pause_after_failures": 1}, "delivery": {"max_attempts": 1}}`
	if status, body := call(t, http.MethodPut, d.URL+path, d.Token, spec); status != http.StatusCreated {
		t.Fatalf("got %d: %s", status, body)
	}
	var leased struct {
		Ticks []struct {
			TickID     string `json:"tick_id"`
			LeaseToken string `json:"lease_token"`
		} `json:"ticks"`
	}
	status, body := call(t, http.MethodPost, d.URL+"/v1/ticks/lease", d.Token, `{"workflows": ["w"], "max": 1, "wait": "1m", "worker": "test"}`)
	if err := json.Unmarshal([]byte(body), &leased); err != nil || status != http.StatusOK || len(leased.Ticks) != 1 {
		t.Fatalf("got %d: %s", status, body)
	}
	tick := leased.Ticks[0]
	if status, body := call(t, http.MethodPost, d.URL+"/v1/ticks/"+tick.TickID+"/fail", d.Token, `{"lease_token": "`+tick.LeaseToken+`", "error": "no"}`); status != http.StatusNoContent {
		t.Fatalf("got %d: %s", status, body)
	}
	for deadline := time.Now().Add(inTime); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if _, body := call(t, http.MethodGet, d.URL+path, d.Token, ""); strings.Contains(body, `"status":"paused"`) {
			return
		}
	}
	t.Error("it is not paused")
}
