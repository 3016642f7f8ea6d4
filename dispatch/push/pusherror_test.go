package push

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// What a tenant reads of a failed request names neither an address of our network, nor a name server, nor the URL.
func TestErrorsOfRequestsDoNotNameOurNetwork(t *testing.T) {
	t.Parallel()
	ours, theirs := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 4242}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 443}
	broken := func(op string, err error) error {
		return &net.OpError{Op: op, Net: "tcp", Source: ours, Addr: theirs, Err: err}
	}
	asked := func(err error) error { return &url.Error{Op: "Post", URL: "https://example.com/?secret=10", Err: err} }
	lookup := func(dns net.DNSError) error {
		dns.Name, dns.Server = "example.com", "10.0.0.2:53"
		return asked(&net.OpError{Op: "dial", Net: "tcp", Err: &dns})
	}
	ourNetwork := regexp.MustCompile(`\b10\b|secret|53`)
	for err, want := range map[error]string{
		asked(broken("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED))):           "dial: connect: connection refused",
		asked(broken("read", os.NewSyscallError("read", syscall.ECONNRESET))):                "read: read: connection reset by peer",
		asked(fmt.Errorf("transport connection broken: %w", broken("write", syscall.EPIPE))): "write: broken pipe",
		broken("read", os.NewSyscallError("read", syscall.ECONNRESET)):                       "read: read: connection reset by peer",
		asked(io.EOF): "the endpoint closed the connection before the end of its answer",
		asked(fmt.Errorf("reading: %w", context.DeadlineExceeded)):                                     "context deadline exceeded",
		lookup(net.DNSError{Err: "no such host", IsNotFound: true}):                                    "look up example.com: no such host",
		lookup(net.DNSError{Err: "read udp 10.0.0.7:4242->10.0.0.2:53: i/o timeout", IsTimeout: true}): "look up example.com: no answer in time",
		lookup(net.DNSError{Err: "read udp 10.0.0.7:4242->10.0.0.2:53: connection refused"}):           "look up example.com: no usable answer",
	} {
		got := requestError(err)
		if got.Error() != want || ourNetwork.MatchString(got.Error()) {
			t.Errorf("of %q: got %q, want %q", err, got, want)
		}
		if _, ours := errors.AsType[*ownError](got); ours {
			t.Errorf("%q counts as our own", err)
		}
	}
	if _, own := errors.AsType[*ownError](requestError(asked(broken("proxyconnect", broken("dial", syscall.ECONNREFUSED))))); !own {
		t.Error("an error of our proxy does not count as our own")
	}
	if _, own := errors.AsType[*ownError](requestError(asked(x509.SystemRootsError{Err: os.ErrPermission}))); !own {
		t.Error("a machine without certificate authorities does not count as our own failure")
	}
	for _, err := range []error{syscall.EMFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		if _, own := errors.AsType[*ownError](requestError(asked(broken("dial", os.NewSyscallError("socket", err))))); !own {
			t.Errorf("%q does not count as our own", err)
		}
	}
}

// While every push fails for a reason of ours, ticks wait longer and longer. The first push that is made ends that.
func TestTicksWaitLongerWhileWeFail(t *testing.T) {
	t.Parallel()
	var failing ownFailures
	began := time.Unix(1_800_000_000, 0)
	for _, one := range []struct{ after, want time.Duration }{
		{0, time.Second}, {500 * time.Millisecond, time.Second}, {28 * time.Second, 7 * time.Second}, {time.Hour, time.Minute},
	} {
		if got := failing.wait(began.Add(one.after)); got != one.want {
			t.Errorf("after %s: they wait %s, want %s", one.after, got, one.want)
		}
	}
	failing.end()
	if got := failing.wait(began.Add(2 * time.Hour)); got != time.Second {
		t.Errorf("after a push that was made: they wait %s", got)
	}
}
