package carillon

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrSignature is a webhook whose headers do not prove that it comes from Carillon, now.
var ErrSignature = errors.New("carillon: the webhook's signature does not verify")

// Verifier checks the signatures of webhooks (Standard Webhooks 1.0, symmetric): ticks, and the events that an endpoint
// asked for.
type Verifier struct {
	keys      [][]byte
	tolerance time.Duration
}

// NewVerifier returns a verifier that accepts what any of the secrets signed; give two while one replaces the other. A
// secret reads "whsec_" and base64. Timestamps may be off by tolerance; zero is 5 minutes.
func NewVerifier(secrets []string, tolerance time.Duration) (*Verifier, error) {
	if len(secrets) == 0 {
		return nil, errors.New("carillon: a webhook needs a secret")
	}
	if tolerance <= 0 {
		tolerance = 5 * time.Minute
	}
	v := &Verifier{tolerance: tolerance}
	for i, secret := range secrets {
		text, ok := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("carillon: webhook secret %d is not whsec_ and base64 of 24 to 64 bytes", i+1)
		}
		v.keys = append(v.keys, key)
	}
	return v, nil
}

// Verify returns an error that is [ErrSignature] unless header signs exactly body, within the tolerance of now. It takes
// the same time whichever byte of a signature is wrong.
func (v *Verifier) Verify(header http.Header, body []byte, now time.Time) error {
	id, stamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	if id == "" || stamp == "" {
		return fmt.Errorf("%w: webhook-id or webhook-timestamp is absent", ErrSignature)
	}
	unix, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: webhook-timestamp is not seconds since 1970", ErrSignature)
	}
	if off := now.Sub(time.Unix(unix, 0)); off > v.tolerance || off < -v.tolerance {
		return fmt.Errorf("%w: webhook-timestamp is not within %s of now", ErrSignature, v.tolerance)
	}
	good := false
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) {
		text, ok := strings.CutPrefix(signature, "v1,")
		given, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			continue // another version's, or nobody's
		}
		for _, key := range v.keys {
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.", id, stamp)
			mac.Write(body)
			good = hmac.Equal(given, mac.Sum(nil)) || good
		}
	}
	if !good {
		return ErrSignature
	}
	return nil
}
