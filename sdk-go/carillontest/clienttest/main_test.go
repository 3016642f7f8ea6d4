package clienttest

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
)

// Whoever starts a goroutine waits for it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errCut = errors.New("connection reset by peer")
)

func ptr[T any](v T) *T { return &v }

// Digest is the payload of a tick of daily-digest.
type Digest struct {
	Email string `json:"email"`
}
