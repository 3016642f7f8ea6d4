package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
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

// openWorkshop builds carillon as it is in this checkout, unless it is told of one that is built.
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

// openFolder makes a temporary folder that PostgreSQL's account may enter.
func openFolder() (string, error) {
	dir, err := os.MkdirTemp("", "carillon-loadtest-*")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

func buildCarillon(ctx context.Context, to string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", to, program)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build carillon: %w\n%s", err, out)
	}
	return nil
}

func (w *workshop) close() { _ = os.RemoveAll(w.dir) } // in the system's temporary folder, should it stay

// file is a path in the workshop.
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

// environment is ours without what would configure carillon, and with env.
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
	done chan struct{} // closed once it has ended
}

// start starts carillon. What it writes goes to a file of that name in the workshop.
func (w *workshop) start(name string, env []string, args ...string) (*process, error) {
	p := &process{log: w.file(name + ".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	p.cmd = exec.Command(w.program, args...)
	p.cmd.Env = environment(env)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState says how it ended
		close(p.done)
	}()
	return p, nil
}

// kill is kill -9. It returns when the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // one that has ended needs none
	<-p.done
}

// stop asks the process to end, and insists after a while.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		p.kill()
	}
}

// await waits until the answer is yes, at most that long, and tells whether it was. An error is the end of the process,
// with the end of its log, or of ctx.
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

// ready waits until the process says that it serves.
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

// announcement is what `carillon dev` writes once it is ready.
type announcement struct {
	URL           string `json:"url"`
	Token         string `json:"token"`
	PlatformToken string `json:"platform_token"`
	DatabaseURL   string `json:"database_url"`
}

// dev starts `carillon dev` on the folder "data" of the workshop and waits until it serves.
func (w *workshop) dev(ctx context.Context, o options, listen string) (*process, announcement, error) {
	var a announcement
	ready := w.file("ready.json")
	if err := os.RemoveAll(ready); err != nil { // what the last process wrote says nothing of this one
		return nil, a, err
	}
	args := []string{"dev", "--no-demo", "--data", w.file("data"), "--listen", listen, "--ready-file", ready, "--log-format", "text"} // as JSON it would tell of each tick
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

// openDev builds carillon and starts `carillon dev`. What it returns last ends both.
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

// freeAddress is one on loopback that nobody listened on a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// answers tells whether a GET of the URL is answered with 200.
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

// plain makes a connection a request, so that none outlives a process.
var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
