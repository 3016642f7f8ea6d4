package web

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/carillonhq/carillon/internal/fault"
)

// Cursor encrypts positions in lists, so that they are opaque to clients. A position decrypts only for the same tenant and filter, and
// under the same key.
type Cursor struct {
	aead cipher.AEAD
}

// NewCursor returns a Cursor for a secret of at least 16 bytes. All processes of an installation share the secret.
func NewCursor(secret []byte) (*Cursor, error) {
	if len(secret) < 16 {
		return nil, fmt.Errorf("the secret of cursors has %d bytes, and needs 16", len(secret))
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "carillon cursor v1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Cursor{aead}, nil
}

// Seal encrypts a position, which is any value that JSON can encode. The filter identifies the list: its route and its parameters.
func (c *Cursor) Seal(tenant int32, filter string, position any) (string, error) {
	b, err := json.Marshal(position)
	if err != nil {
		return "", fmt.Errorf("seal a cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, b, bound(tenant, filter))), nil
}

// Open decrypts a position. It returns a fault 422 if the cursor is broken, or belongs to another tenant or filter.
func (c *Cursor) Open(tenant int32, filter, sealed string, position any) error {
	foreign := fault.Fields(fault.Field{Pointer: "/cursor", Code: "invalid_cursor", Detail: "the cursor does not belong to this list"})
	b, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return foreign
	}
	plain, err := c.aead.Open(nil, nil, b, bound(tenant, filter))
	if err != nil {
		return foreign
	}
	if err := json.Unmarshal(plain, position); err != nil {
		return foreign
	}
	return nil
}

func bound(tenant int32, filter string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(tenant)), filter...)
}
