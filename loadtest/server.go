package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	program      = "github.com/carillonhq/carillon/cmd/carillon"
	readyWithin  = 2 * time.Minute
	stopWithin   = 15 * time.Second
	pollInterval = 20 * time.Millisecond
)

// workshop is a temporary folder with the built carillon in it.
type workshop struct {
	dir     string
	program string
}

// openWorkshop builds carillon from this checkout, unless the options name a built one.
func openWorkshop(ctx context.Context, o options, p *progress) (_ *workshop, err error) {
	dir, err := openFolder()
	if err != nil {
		return nil, err
	}
	w := &workshop{dir: dir, program: filepath.Join(dir, "carillon")}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if o.program != "" {
		w.program = o.program
		return w, nil
	}
	p.say("building carillon")
	return w, buildCarillon(ctx, w.program)
}

// openFolder makes a temporary folder that PostgreSQL's account can enter.
func openFolder() (string, error) {
	dir, err := os.MkdirTemp("", "carillon-loadtest-*")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// buildCarillon compiles carillon with the flags of the Dockerfile.
func buildCarillon(ctx context.Context, to string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", to, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build carillon: %w\n%s", err, out)
	}
	return nil
}

func (w *workshop) close() { _ = os.RemoveAll(w.dir) } // if it remains, it is in the system's temporary folder

// file returns a path in the workshop.
func (w *workshop) file(name string) string { return filepath.Join(w.dir, name) }

// output runs carillon to its end and returns what it prints.
func (w *workshop) output(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env = environment(env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("carillon %s: %w: %s", args[0], err, bytes.TrimSpace(errs.Bytes()))
	}
	return string(bytes.TrimSpace(out.Bytes())), nil
}

// environment returns our environment without the variables that configure carillon, and with env.
func environment(env []string) []string {
	var list []string
	for _, v := range os.Environ() {
		if !bytes.HasPrefix([]byte(v), []byte("CARILLON_")) && !bytes.HasPrefix([]byte(v), []byte("DATABASE_URL=")) {
			list = append(list, v)
		}
	}
	return append(list, env...)
}

// process is a running carillon.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// start starts carillon. Its output goes to a file of that name in the workshop.
func (w *workshop) start(name string, env []string, args ...string) (*process, error) {
	p := &process{log: w.file(name + ".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	p.cmd = exec.Command(w.program, args...)
	p.cmd.Env = environment(env)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the exit code
		close(p.done)
	}()
	return p, nil
}

// kill kills the process with -9, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it fails if the process has ended
	<-p.done
}

// stop asks the process to end, and kills it after a while.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		p.kill()
	}
}

// await waits for at most within until yes returns true, and reports whether it did. It returns an error if ctx ends, or if the process ends:
// then with the end of its log.
func (p *process) await(ctx context.Context, within time.Duration, yes func() bool) (bool, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	late := time.NewTimer(within)
	defer late.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-p.done:
			return false, fmt.Errorf("carillon ended by itself: %v\n%s", p.cmd.ProcessState, p.tail())
		case <-late.C:
			return false, nil
		case <-tick.C:
		}
	}
	return true, nil
}

// ready waits until the process serves.
func (p *process) ready(ctx context.Context, yes func() bool) error {
	served, err := p.await(ctx, readyWithin, yes)
	if err == nil && !served {
		err = fmt.Errorf("carillon does not serve after %s\n%s", readyWithin, p.tail())
	}
	return err
}

func (p *process) tail() []byte {
	text, _ := os.ReadFile(p.log)
	return bytes.TrimSpace(text[max(0, len(text)-4000):])
}

// announcement is the ready file of `carillon dev`.
type announcement struct {
	URL           string `json:"url"`
	Token         string `json:"token"`
	PlatformToken string `json:"platform_token"`
	DatabaseURL   string `json:"database_url"`
}

// dev starts `carillon dev` on the folder "data" of the workshop and waits until it serves. It changes no setting, because scenarios
// measure the defaults: a longer limit on connecting would delay a failover.
func (w *workshop) dev(ctx context.Context, o options, listen string) (*process, announcement, error) {
	var a announcement
	ready := w.file("ready.json")
	if err := os.RemoveAll(ready); err != nil { // the last process wrote it
		return nil, a, err
	}
	// As JSON, the log would show each tick.
	args := []string{"dev", "--no-demo", "--data", w.file("data"), "--listen", listen, "--ready-file", ready, "--log-format", "text"}
	if o.databaseURL != "" {
		args = append(args, "--yes", "--database-url", o.databaseURL)
	}
	p, err := w.start("dev", nil, args...)
	if err != nil {
		return nil, a, err
	}
	err = p.ready(ctx, func() bool {
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &a) == nil
	})
	if err != nil {
		p.stop()
		return nil, a, err
	}
	return p, a, nil
}

// openDev builds carillon and starts `carillon dev`. The returned function ends both.
func openDev(ctx context.Context, o options, p *progress) (*process, announcement, func(), error) {
	w, err := openWorkshop(ctx, o, p)
	if err != nil {
		return nil, announcement{}, nil, err
	}
	server, at, err := w.dev(ctx, o, "127.0.0.1:0")
	if err != nil {
		w.close()
		return nil, at, nil, err
	}
	return server, at, func() {
		server.stop()
		w.close()
	}, nil
}

// answers reports whether a GET of the URL is answered with 200.
func answers(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := plain.Do(request)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// plain opens a connection for each request, so that none outlives a process.
var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
