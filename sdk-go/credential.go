package carillon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// AccessToken is a token that a TokenSource returns.
type AccessToken struct {
	Token string

	// ExpiresAt is when the server stops accepting the token. The client asks for the next one when four fifths of the time until then have
	// passed. Zero: the client uses the token until the server refuses it.
	ExpiresAt time.Time
}

// credential is what a client sends: a fixed text, or the tokens of a source. It calls the source once for all callers.
type credential struct {
	source func(context.Context) (AccessToken, error) // nil: current never changes

	mu        sync.Mutex
	current   AccessToken
	refreshAt time.Time  // when to ask for the next token; zero: not before current is refused
	asking    *tokenCall // nil: nobody asks the source
}

// tokenCall is one call of a token source.
type tokenCall struct {
	done chan struct{}
	err  error
}

// retryToken is the wait between a failed call of the token source and the next call, while the current token is still valid.
const retryToken = 5 * time.Second

// token returns the text to send. It waits for the source only if no token is valid.
func (c *credential) token(ctx context.Context) (string, error) {
	if c.source == nil {
		return c.current.Token, nil
	}
	for {
		c.mu.Lock()
		now := time.Now()
		counts := c.current.Token != "" && (c.current.ExpiresAt.IsZero() || now.Before(c.current.ExpiresAt))
		due := !counts || !c.refreshAt.IsZero() && !now.Before(c.refreshAt)
		token, asking := c.current.Token, c.asking
		if due && asking == nil {
			c.asking = &tokenCall{done: make(chan struct{})}
			asking = c.asking
			c.mu.Unlock()
			err := c.ask(ctx, asking)
			if err != nil && !counts {
				return "", err
			}
			continue // with the new token, or with the old one, which is still valid
		}
		c.mu.Unlock()
		if counts {
			return token, nil
		}
		select {
		case <-asking.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if asking.err != nil && !errors.Is(asking.err, context.Canceled) && !errors.Is(asking.err, context.DeadlineExceeded) {
			return "", asking.err
		} // another caller's context ended: this one asks again
	}
}

// ask calls the source and stores its token.
func (c *credential) ask(ctx context.Context, call *tokenCall) (err error) {
	var next AccessToken
	defer func() { // also if the source panics
		c.mu.Lock()
		defer c.mu.Unlock()
		now := time.Now()
		if err == nil {
			c.current, c.refreshAt = next, time.Time{}
			if !next.ExpiresAt.IsZero() {
				c.refreshAt = now.Add(next.ExpiresAt.Sub(now) / 5 * 4)
			}
		} else {
			c.refreshAt = now.Add(retryToken)
		}
		call.err, c.asking = err, nil
		close(call.done)
	}()
	err = errors.New("the token source did not return")
	next, err = c.source(ctx)
	if err == nil && next.Token == "" {
		err = errors.New("the token source returned no token")
	}
	if err == nil && !next.ExpiresAt.IsZero() && !time.Now().Before(next.ExpiresAt) {
		err = fmt.Errorf("the token source returned a token that expired at %s", next.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return err
}

// refused notes that the server refused a token, and reports whether the next one will be another.
func (c *credential) refused(token string) bool {
	if c.source == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Token == token {
		c.current = AccessToken{}
	}
	return true
}

// refusedBy reports whether err is the server's refusal of the credential.
func refusedBy(err error) bool {
	e, ok := asType[*Error](err)
	return ok && e.Status == http.StatusUnauthorized
}
