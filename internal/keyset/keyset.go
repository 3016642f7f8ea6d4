// Package keyset encrypts the secrets that are stored in the database, with keys that are not in the database. A caller passes the
// plain bytes and the name of their place, and gets bytes to store. The operator supplies the keys as one line of text; without them
// the stored secrets are lost. The package uses no table and no lock.
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

// Keyset is a set of Tink keys for authenticated encryption (AEAD). The primary key encrypts, and every key decrypts. It is safe for
// concurrent use.
type Keyset struct {
	handle *keyset.Handle
	aead   tink.AEAD
}

// New returns a keyset with one new AES-256-GCM key.
func New() (*Keyset, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return of(handle)
}

// Parse reads an unencrypted AEAD keyset in Tink's JSON, such as Text returns. Its error never contains a part of the text.
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

// Rotated returns a keyset with a new primary key and all keys of k. The new key encrypts; the old keys still decrypt.
func (k *Keyset) Rotated() (*Keyset, error) {
	manager := keyset.NewManagerFromHandle(k.handle)
	id, err := manager.Add(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("add a key: %w", err)
	}
	if err := manager.SetPrimary(id); err != nil {
		return nil, fmt.Errorf("make a key primary: %w", err)
	}
	handle, err := manager.Handle()
	if err != nil {
		return nil, fmt.Errorf("add a key: %w", err)
	}
	return of(handle)
}

// Text returns the keyset as one line of JSON. Its keys are not encrypted.
func (k *Keyset) Text() (string, error) {
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(k.handle, keyset.NewJSONWriter(&b)); err != nil {
		return "", fmt.Errorf("write a keyset: %w", err)
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", ""), nil
}

// Seal encrypts plain. place names its owner, such as a tenant and a column: Open needs the same place (associated data of AEAD).
func (k *Keyset) Seal(plain, place []byte) ([]byte, error) { return k.aead.Encrypt(plain, place) }

// Open decrypts bytes that Seal returned for any key of the set. It returns an error if the key is not in the set, the place differs,
// or a bit was changed.
func (k *Keyset) Open(sealed, place []byte) ([]byte, error) { return k.aead.Decrypt(sealed, place) }
