package carillon_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// Whoever starts a goroutine waits for it: when all tests have run, none of ours is left.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftovers(5 * time.Second); left != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", bytes.Join(left, []byte("\n\n")))
		code = 1
	}
	os.Exit(code)
}

// leftovers are the goroutines but this one that run code of this module, once they have had some time to end.
func leftovers(patience time.Duration) [][]byte {
	over := time.After(patience)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		var left [][]byte
		for _, stack := range bytes.Split(stacks, []byte("\n\n"))[1:] {
			if bytes.Contains(stack, []byte("carillonhq/carillon/sdk-go")) {
				left = append(left, stack)
			}
		}
		if left == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-over:
			return left
		}
	}
}

func asType[E error](err error) (E, bool) {
	var found E
	ok := errors.As(err, &found)
	return found, ok
}
