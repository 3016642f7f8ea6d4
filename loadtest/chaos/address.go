package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// given has the addresses that FreeAddress has returned.
var given sync.Map

// FreeAddress returns an address on loopback on which no process listened a moment ago, and never the same one twice. Its port is outside
// the range that systems use for outgoing connections, because it must be free again whenever its process restarts.
func FreeAddress() (string, error) {
	failed := errors.New("all were given before")
	for range 100 {
		at := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000))
		if _, again := given.LoadOrStore(at, true); again {
			continue
		}
		l, err := net.Listen("tcp", at)
		if err == nil {
			return at, l.Close()
		}
		failed = err
	}
	return "", fmt.Errorf("no port from 10000 to 19999 is free: %w", failed)
}
