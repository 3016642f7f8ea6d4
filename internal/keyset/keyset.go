// Package keyset encrypts what lies in the database and is of use to whoever reads it: with keys that are not there.
package keyset

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// Keyset is a few keys for authenticated encryption: one that seals, and all of which open. It is a keyset of Tink, and
// safe for use by several goroutines.
type Keyset struct {
	handle *keyset.Handle
	aead   tink.AEAD
}

// New makes a keyset of one new key, AES-256-GCM.
func New() (*Keyset, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return of(handle)
}

// Parse reads what Text wrote, or another keyset for AEAD in Tink's JSON that is not itself encrypted. Its error shows
// nothing of the text.
func Parse(text string) (*Keyset, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(text)))
	if err != nil {
		return nil, errors.New("is not a keyset in the JSON of Tink") // its own error may quote the key
	}
	k, err := of(handle)
	if err != nil {
		return nil, errors.New("is not a keyset for AEAD")
	}
	return k, nil
}

func of(handle *keyset.Handle) (*Keyset, error) {
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("use a keyset: %w", err)
	}
	return &Keyset{handle, primitive}, nil
}

// Rotated is the keyset with a new key that seals from here on; the others open what they sealed.
func (k *Keyset) Rotated() (*Keyset, error) {
	manager := keyset.NewManagerFromHandle(k.handle)
	id, err := manager.Add(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("add a key: %w", err)
	}
	if err := manager.SetPrimary(id); err != nil {
		return nil, fmt.Errorf("put a key first: %w", err)
	}
	handle, err := manager.Handle()
	if err != nil {
		return nil, fmt.Errorf("add a key: %w", err)
	}
	return of(handle)
}

// Text is the keyset in one line, with its keys in the clear.
func (k *Keyset) Text() (string, error) {
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(k.handle, keyset.NewJSONWriter(&b)); err != nil {
		return "", fmt.Errorf("write a keyset: %w", err)
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", ""), nil
}

// Seal encrypts plain, so that it opens with the same place only: what it belongs to.
func (k *Keyset) Seal(plain, place []byte) ([]byte, error) { return k.aead.Encrypt(plain, place) }

// Open decrypts what Seal made of any of the keys. It is an error where the key is not in the set, the place is another
// or a bit was changed.
func (k *Keyset) Open(sealed, place []byte) ([]byte, error) { return k.aead.Decrypt(sealed, place) }
