package tenants

import (
	"context"
	"errors"

	"github.com/carillonhq/carillon/internal/fault"
)

// authenticate returns the identity in a token. It returns a fault 401 for an invalid token.
func (v *Verifier) authenticate(ctx context.Context, token string) (Identity, error) {
	who, err := v.Verify(ctx, token)
	if e, ok := errors.AsType[errToken](err); ok {
		return who, invalid(e.reason)
	}
	return who, err
}

type authorityKey struct{}

// authority is a request's token and the verifier that accepted it.
type authority struct {
	verifier *Verifier
	token    string
}

// CheckAuthority returns nil while the token of the request in ctx is valid. Later it returns the fault 401 that a new request with the
// token gets: the token has expired, its API key was deleted, its issuer was removed, or its tenant was suspended. A long request calls
// it before each step. Without a request in ctx it returns nil.
func CheckAuthority(ctx context.Context) error {
	a, ok := ctx.Value(authorityKey{}).(authority)
	if !ok {
		return nil
	}
	_, err := a.verifier.authenticate(ctx, a.token)
	return err
}

// invalid returns the fault 401 of an invalid token (RFC 6750 section 3).
func invalid(reason string) error {
	return unauthorized("invalid_token", `Bearer error="invalid_token", error_description="`+reason+`"`, reason)
}

// unauthorized returns a fault 401 with a challenge (RFC 9110 section 11.6.1).
func unauthorized(code, challenge, detail string) error {
	f := fault.New(401, code, "%s", detail)
	f.Header = map[string]string{"WWW-Authenticate": challenge}
	return f
}
