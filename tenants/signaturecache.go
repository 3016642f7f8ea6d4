package tenants

import (
	"crypto"
	"crypto/sha256"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"
)

// signaturesMax is the size of the cache. A client sends the same token until it expires.
const signaturesMax = 10_000

// cachedMethod is a signing method that caches verified signatures, because a verification costs more CPU than the rest of a request
// before its handler. The verifier still checks everything else for each request, including the list of valid keys.
type cachedMethod struct {
	jwt.SigningMethod
	verified *lru.Cache[[32]byte, any] // the signer's key, by a hash of algorithm, text and signature
}

func newSignatureCache() *lru.Cache[[32]byte, any] {
	c, err := lru.New[[32]byte, any](signaturesMax)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return c
}

// Verify returns nil if the key has signed the text.
func (m cachedMethod) Verify(text string, signature []byte, key any) error {
	all := append([]byte(m.Alg()+"."+text+"."), signature...) // unambiguous: the text has exactly one dot
	id := sha256.Sum256(all)
	if known, ok := m.verified.Get(id); ok {
		if k, ok := known.(interface{ Equal(crypto.PublicKey) bool }); ok && k.Equal(key) {
			return nil
		}
	}
	if err := m.SigningMethod.Verify(text, signature, key); err != nil {
		return err
	}
	m.verified.Add(id, key)
	return nil
}
