package tenants

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

// Identify returns the identity in a token, or that of an API key. It returns a fault 401 for an invalid one.
func (v *Verifier) Identify(ctx context.Context, token string) (Identity, error) {
	if strings.HasPrefix(token, keyPrefix) {
		return v.Tenants.byKey(ctx, token)
	}
	who, err := v.Verify(ctx, token)
	if e, ok := errors.AsType[errToken](err); ok {
		return who, invalid(e.reason)
	}
	return who, err
}

type authorityKey struct{}

// AuthorityEvery is how often a waiting request checks its authority. A revoked key is refused within 5 s: it may be cached for two.
const AuthorityEvery = 2 * time.Second

// authority is a request's token or API key and the verifier that accepted it.
type authority struct {
	verifier *Verifier
	token    string
}

// CheckAuthority returns nil while the token or API key of the request in ctx is valid. Later it returns the fault 401 that a new request
// gets: the token or key has expired, the key was deleted, the issuer was removed, or the tenant was suspended. A long request calls it
// before each step, and every AuthorityEvery while it waits. Without a request in ctx it returns nil.
func CheckAuthority(ctx context.Context) error {
	a, ok := ctx.Value(authorityKey{}).(authority)
	if !ok {
		return nil
	}
	_, err := a.verifier.Identify(ctx, a.token)
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
