package tenants

import (
	"crypto/ed25519"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func TestAProvenSignatureIsGoodForItsKeyAndTextAlone(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	m := cachedMethod{jwt.SigningMethodEdDSA, newSignatureCache()}
	signature, err := m.Sign("head.claims", private)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Verify("head.claims", signature, public); err != nil {
			t.Error(err)
		}
		if m.Verify("head.claims", signature, other) == nil || m.Verify("head.claimz", signature, public) == nil || m.Verify("head.claims", signature[:63], public) == nil {
			t.Error("another key, text or signature is accepted from the cache")
		}
	}
}

func TestThreeParts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"a.b.c": true, "A0_.-z.9": true, "": false, "a.b": false, "a..c": false, ".b.c": false, "a.b.": false, "a.b.c.d": false, "a.b.c=": false, "a.b.ü": false, "a.b.c\n": false} {
		if got := threeParts(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
