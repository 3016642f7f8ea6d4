package message

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strings"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/varint"
	"github.com/carillonhq/carillon/tenants"
)

// Token is the fencing token of one attempt: its holder can end that attempt and no other. Lease is 0 if the attempt was pushed.
type Token struct {
	Lease   int64
	Slot    int16
	Attempt int16
}

const macSize = 12 // bytes of the MAC that a token carries

// Seal returns a signed token for a tick of a tenant. Unseal accepts it for that tick only.
func (s *Messages) Seal(tenant tenants.ID, k ident.TickKey, t Token) string {
	b := binary.AppendUvarint(nil, uint64(t.Lease))
	b = binary.AppendUvarint(b, uint64(t.Slot))
	b = binary.AppendUvarint(b, uint64(t.Attempt))
	return base64.RawURLEncoding.EncodeToString(append(b, s.mac(tenant, k, b)...))
}

func (s *Messages) mac(tenant tenants.ID, k ident.TickKey, body []byte) []byte {
	h, _ := s.macs.Get().(hash.Hash)
	if h == nil {
		h = hmac.New(sha256.New, s.LeaseKey)
	}
	defer s.macs.Put(h)
	h.Reset()
	var id [24]byte
	binary.BigEndian.PutUint32(id[:], uint32(tenant))
	binary.BigEndian.PutUint64(id[4:], uint64(k.Schedule))
	binary.BigEndian.PutUint64(id[12:], uint64(k.At.Unix()))
	binary.BigEndian.PutUint32(id[20:], uint32(k.Seq))
	_, _ = h.Write(id[:])
	_, _ = h.Write(body)
	return h.Sum(nil)[:macSize]
}

// Unseal returns the token that Seal made for that tick. ok is false for any other text.
func (s *Messages) Unseal(tenant tenants.ID, k ident.TickKey, sealed string) (t Token, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(raw) <= macSize || strings.ContainsAny(sealed, "\r\n") { // the decoder ignores line ends
		return t, false
	}
	body := raw[:len(raw)-macSize]
	if !hmac.Equal(s.mac(tenant, k, body), raw[len(body):]) {
		return t, false
	}
	r := varint.NewReader(body)
	t = Token{Lease: int64(r.Next()), Slot: int16(r.Next()), Attempt: int16(r.Next())}
	return t, !r.Broken()
}
