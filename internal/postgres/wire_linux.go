package postgres

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall names on some architectures only.
const tcpUserTimeout = 0x12

// limitUnacknowledged is for net.Dialer: the kernel closes a TCP connection whose data stays unacknowledged for that
// long, instead of sending it again for a quarter of an hour.
func limitUnacknowledged(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var err error
	if outer := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledgedFor.Milliseconds()))
	}); outer != nil {
		return outer
	}
	return err
}
