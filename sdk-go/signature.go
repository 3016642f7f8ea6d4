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

// ErrSignature says that the headers of a webhook do not prove that Carillon sent it recently.
var ErrSignature = errors.New("carillon: the webhook's signature does not verify")

// Verifier checks the signatures of webhooks (Standard Webhooks 1.0, symmetric): of ticks and of events.
type Verifier struct {
	keys      [][]byte
	tolerance time.Duration
}

// NewVerifier returns a verifier that accepts a signature by any of the secrets; pass two while one replaces the other. A secret is "whsec_"
// followed by base64. Timestamps may be off by tolerance; zero is 5 minutes.
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

// mostSignatures is the number of signatures of a header that are compared. Carillon sends at most two, while a secret is replaced.
const mostSignatures = 16

// Verify returns an error that is [ErrSignature] unless header signs exactly body, within the tolerance of now. It takes
// the same time whichever byte of a signature is wrong. It hashes the body once for each secret, and compares only the first 16 signatures
// of the header.
func (v *Verifier) Verify(header http.Header, body []byte, now time.Time) error {
	c, err := v.claim(header, now)
	if err != nil {
		return err
	}
	return v.prove(c, body)
}

// claim is the content of a webhook's headers, which only the body can prove.
type claim struct {
	id, stamp  string
	signatures [][]byte // each of the length of a SHA-256
}

// claim reads the headers of a webhook and checks everything that does not need the body.
func (v *Verifier) claim(header http.Header, now time.Time) (claim, error) {
	c := claim{id: header.Get("webhook-id"), stamp: header.Get("webhook-timestamp")}
	if c.id == "" || c.stamp == "" {
		return c, fmt.Errorf("%w: webhook-id or webhook-timestamp is absent", ErrSignature)
	}
	unix, err := strconv.ParseInt(c.stamp, 10, 64)
	if err != nil {
		return c, fmt.Errorf("%w: webhook-timestamp is not seconds since 1970", ErrSignature)
	}
	if off := now.Sub(time.Unix(unix, 0)); off > v.tolerance || off < -v.tolerance {
		return c, fmt.Errorf("%w: webhook-timestamp is not within %s of now", ErrSignature, v.tolerance)
	}
	seen := 0
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) {
		if seen++; seen > mostSignatures {
			break
		}
		text, ok := strings.CutPrefix(signature, "v1,")
		if !ok || len(text) != base64.StdEncoding.EncodedLen(sha256.Size) {
			continue // a signature of another version, or none
		}
		if given, err := base64.StdEncoding.DecodeString(text); err == nil && len(given) == sha256.Size {
			c.signatures = append(c.signatures, given)
		}
	}
	if len(c.signatures) == 0 {
		return c, fmt.Errorf("%w: webhook-signature has no signature of version v1", ErrSignature)
	}
	return c, nil
}

// prove compares the signature that each secret makes of the body with those of the claim.
func (v *Verifier) prove(c claim, body []byte) error {
	good := false
	for _, key := range v.keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", c.id, c.stamp)
		mac.Write(body)
		want := mac.Sum(nil)
		for _, given := range c.signatures {
			good = hmac.Equal(given, want) || good
		}
	}
	if !good {
		return ErrSignature
	}
	return nil
}
