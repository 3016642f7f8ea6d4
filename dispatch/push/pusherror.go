package push

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
	"github.com/carillonhq/carillon/dispatch/finish"
)

// ownError is a failure of this installation that kept a request from being made. Its text is for the log only. It spends no
// attempt, and does not count against the endpoint.
type ownError struct{ error }

func (e *ownError) Unwrap() error { return e.error }

// After an ownError, ticks wait for a quarter of the time since the first of a row of such errors, within these bounds. So a process
// whose pushes fail for hours seldom writes the ticks that wait.
const (
	ownWait        = time.Second
	longestOwnWait = time.Minute
)

// ownFailures remembers since when every push of this process has ended with an ownError. It is safe for concurrent use.
type ownFailures struct{ since atomic.Int64 } // 0: the last push did not end with an ownError

// wait records an ownError, and returns how long its ticks wait.
func (f *ownFailures) wait(now time.Time) time.Duration {
	f.since.CompareAndSwap(0, now.UnixNano())
	return max(ownWait, min(now.Sub(time.Unix(0, f.since.Load()))/4, longestOwnWait))
}

// end records that a request was made.
func (f *ownFailures) end() {
	if f.since.Load() != 0 {
		f.since.Store(0)
	}
}

// shortages are the errors of a machine that has no more files, ports or memory for another connection.
var shortages = []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM}

// requestError returns the error of a request as the tenant may read it: without the URL, which may hold a secret, and without the
// addresses and name servers of our own network. An error that is not the endpoint's is an ownError.
func requestError(err error) error {
	for _, shortage := range shortages {
		if errors.Is(err, shortage) {
			return &ownError{err}
		}
	}
	if _, none := errors.AsType[x509.SystemRootsError](err); none {
		return &ownError{err}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New(dnsText(dns))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrProhibitedNetwork) {
		return errors.New("the address of the endpoint is not a public one")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Op == "proxyconnect" { // the proxy is this installation's
			return &ownError{err}
		}
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the endpoint closed the connection before the end of its answer")
	}
	if inner := errors.Unwrap(err); inner != nil { // of the url.Error of net/http
		return inner
	}
	return err
}

// dnsText returns the text of a DNS error without the names of our name servers.
func dnsText(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return fmt.Sprintf("look up %s: no such host", err.Name)
	case err.IsTimeout:
		return fmt.Sprintf("look up %s: no answer in time", err.Name)
	}
	return fmt.Sprintf("look up %s: no usable answer", err.Name)
}

// failedOutcome is the outcome of an attempt whose request failed.
func failedOutcome(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return finish.TimedOut
	}
	return finish.Failed
}
