package bulk

import (
	"context"
	"testing"
	"testing/synctest"
)

// slowCloser is a body whose Close waits until it is released.
type slowCloser struct{ release chan struct{} }

func (c slowCloser) Close() error {
	<-c.release
	return nil
}

// A request does not end while its body is being closed. The connection then serves another request.
func TestTheEndOfARequestWaitsForTheCloseOfItsBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body := slowCloser{make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		stop, ended := closeAtEnd(ctx, body), make(chan struct{})
		cancel()
		synctest.Wait()
		go func() {
			stop()
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the request has ended before its body was closed")
		default:
		}
		close(body.release)
		<-ended

		ctx, cancel = context.WithCancel(t.Context())
		closeAtEnd(ctx, body)() // a request that ends without a Close does not wait
		cancel()
	})
}
