package postgres

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT. Package syscall defines it on some architectures only.
const tcpUserTimeout = 0x12

// limitUnacknowledged is the Control of a net.Dialer. It makes the kernel close a TCP connection whose data is unacknowledged for
// unacknowledgedFor, instead of retransmitting for a quarter of an hour.
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
