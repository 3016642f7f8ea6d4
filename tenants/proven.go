package tenants

import (
	"crypto"
	"crypto/sha256"

	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"
)

// provenKept is how many signatures are remembered. A client sends the same token until it ends.
const provenKept = 10_000

// proven is a signing method that works out once whether a key has signed a text: that costs more than the rest of a
// request's way to its handler. All else of a token is checked each time, and which keys count too.
type proven struct {
	jwt.SigningMethod
	known *lru.Cache[[32]byte, any] // the key that signed, by what was signed, how, and the signature
}

func newProven() *lru.Cache[[32]byte, any] {
	c, err := lru.New[[32]byte, any](provenKept)
	if err != nil {
		panic(err) // its size is no more than zero
	}
	return c
}

// Verify returns nil where the key has signed the text.
func (p proven) Verify(text string, signature []byte, key any) error {
	said := append([]byte(p.Alg()+"."+text+"."), signature...) // no part but the last may hold a dot more
	id := sha256.Sum256(said)
	if known, ok := p.known.Get(id); ok {
		if k, ok := known.(interface{ Equal(crypto.PublicKey) bool }); ok && k.Equal(key) {
			return nil
		}
	}
	if err := p.SigningMethod.Verify(text, signature, key); err != nil {
		return err
	}
	p.known.Add(id, key)
	return nil
}
