package tenants

import (
	"context"
	"errors"

	"github.com/carillonhq/carillon/internal/fault"
)

// authenticate returns the caller that a token names. A token that does not count is 401.
func (v *Verifier) authenticate(ctx context.Context, token string) (Identity, error) {
	who, err := v.Verify(ctx, token)
	if e, ok := errors.AsType[errToken](err); ok {
		return who, invalid(e.reason)
	}
	return who, err
}

type authorityKey struct{}

// authority is the token of a request, and the verifier that accepted it.
type authority struct {
	verifier *Verifier
	token    string
}

// CheckAuthority returns nil while the token of the context's request counts, and afterwards the 401 that a new request
// with it gets: the token expired, its API key was deleted, its issuer was removed or its tenant was suspended. A request
// that runs for long calls it before each step. A context without a request has nothing to check.
func CheckAuthority(ctx context.Context) error {
	a, ok := ctx.Value(authorityKey{}).(authority)
	if !ok {
		return nil
	}
	_, err := a.verifier.authenticate(ctx, a.token)
	return err
}

// invalid returns the 401 of a token that does not count (RFC 6750 section 3).
func invalid(reason string) error {
	return unauthorized("invalid_token", `Bearer error="invalid_token", error_description="`+reason+`"`, reason)
}

// unauthorized returns a 401 with a challenge (RFC 9110 section 11.6.1).
func unauthorized(code, challenge, detail string) error {
	f := fault.New(401, code, "%s", detail)
	f.Header = map[string]string{"WWW-Authenticate": challenge}
	return f
}
