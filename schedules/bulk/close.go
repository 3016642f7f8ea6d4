package bulk

import (
	"context"
	"io"
)

// closeAtEnd closes body when ctx ends, which ends a Read that is under way. The caller calls stop once, before the request ends: it waits
// for a Close that has begun, because the connection may serve another request afterwards.
func closeAtEnd(ctx context.Context, body io.Closer) (stop func()) {
	closed := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = body.Close()
	})
	return func() {
		if !undo() {
			<-closed
		}
	}
}
