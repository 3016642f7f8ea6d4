package chaos

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/carillonhq/carillon/internal/postgres/silent"
)

// node is one process of carillon serve, with its own way to the database.
type node struct {
	lab     *Lab
	role    string
	binary  string
	other   string // the binary of another version, for the next start; "": none
	listen  string
	metrics string
	log     string
	*link
	host *silent.Proxy // in front of the link: it can fall silent

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

func (l *Lab) newNode(ctx context.Context, binary, name, role string) (n *node, err error) {
	n = &node{lab: l, role: role, binary: binary, log: filepath.Join(l.dir, name+".log")}
	if n.listen, err = FreeAddress(); err != nil {
		return nil, err
	}
	if n.metrics, err = FreeAddress(); err != nil {
		return nil, err
	}
	at, err := url.Parse(l.database)
	if err != nil {
		return nil, err
	}
	if n.link, err = l.newLink(name, at.Host); err != nil {
		return nil, err
	}
	n.host, err = silent.New(ctx, n.proxy.Listen)
	return n, err
}

// start starts the process. armed names a crash point that ends it, or is empty.
func (n *node) start(armed string) error {
	at, err := url.Parse(n.lab.database)
	if err != nil {
		return err
	}
	at.Host = n.host.Address()
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own descriptor
	cmd := exec.Command(n.binary, "serve", "--role", n.role, "--listen", n.listen, "--metrics-listen", n.metrics)
	cmd.Env = append(clean(), append(n.lab.env, "DATABASE_URL="+at.String(), "CARILLON_CRASH="+armed, "CARILLON_CLOCK="+clocks[n.name])...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // ProcessState has the exit code
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd, n.done = cmd, done
	return nil
}

// pid returns the id of the running process.
func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.Process.Pid
}

// ended returns a channel that is closed when the running process has ended.
func (n *node) ended() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.done
}

func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(s) // it fails if the process has ended
	}
}

// kill kills the process with -9, and returns when it has ended.
func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	if done := n.ended(); done != nil {
		<-done
	}
}

// stop asks the process to end, and waits until it has.
func (n *node) stop(ctx context.Context) {
	n.signal(syscall.SIGTERM)
	select {
	case <-n.ended():
	case <-time.After(20 * time.Second):
		n.kill()
	case <-ctx.Done():
		n.kill()
	}
}

// ready waits until the process serves. It restarts a process that ended by itself, because the database may have been away.
func (n *node) ready(ctx context.Context, within time.Duration) error {
	late := time.Now().Add(within)
	for !n.answers(ctx) {
		select {
		case <-n.ended():
			if err := n.start(""); err != nil {
				return err
			}
		default:
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s does not serve after %s: %s", n.name, within, n.tail())
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

var probe = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (n *node) answers(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.listen+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := probe.Do(request)
	return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

func (n *node) tail() string {
	text, _ := os.ReadFile(n.log)
	return string(bytes.TrimSpace(text[max(0, len(text)-1500):]))
}
