package tenants

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/MicahParks/jwkset"
)

// The allowed signature algorithms of tokens.
const (
	es256 = "ES256"
	edDSA = "EdDSA"
	rs256 = "RS256"
)

func algorithms() []string { return []string{es256, edDSA, rs256} }

// The bounds of an RSA key. A modulus has at least 2,048 bits (RFC 7518 section 3.3). The upper bounds limit the CPU time of checking a
// forged signature, because the tenant chooses the key.
const (
	smallestRSA     = 2048
	largestRSA      = 4096
	largestExponent = 1<<16 + 1
)

// Key is a public key that verifies tokens of one algorithm.
type Key struct {
	ID        string // kid; "": the key has none
	Algorithm string
	Public    crypto.PublicKey
}

// ParseKey parses a public key for signatures from a JWK (RFC 7517): Ed25519, P-256, or RSA of 2048 to 4096 bits.
func ParseKey(raw []byte) (Key, error) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(raw, &m); err != nil {
		return Key{}, fmt.Errorf("is not a JSON Web Key")
	}
	if m.D != "" || m.K != "" || m.P != "" || m.Q != "" || m.DP != "" || m.DQ != "" || m.QI != "" || len(m.OTH) > 0 {
		return Key{}, fmt.Errorf("contains a private key: send public keys only")
	}
	if m.USE != "" && m.USE != "sig" {
		return Key{}, fmt.Errorf("is not for signatures: its use is %q", m.USE)
	}
	if len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) {
		return Key{}, fmt.Errorf("is not for verifying: see its key_ops")
	}
	m.X5U, m.X5C, m.X5T, m.X5TS256 = "", nil, "", "" // ignore certificates, and never fetch their address
	options := jwkset.JWKValidateOptions{SkipAll: true}
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, options)
	if err != nil {
		return Key{}, fmt.Errorf("is not a public key of a known kind")
	}
	k := Key{ID: m.KID, Public: jwk.Key()}
	if public, ok := k.Public.(*rsa.PublicKey); ok && !exponentIs(m.E, public.E) {
		return Key{}, fmt.Errorf("is an RSA key whose exponent is too large")
	}
	if k.Algorithm, err = algorithmOf(k.Public); err != nil {
		return Key{}, err
	}
	if m.ALG != "" && string(m.ALG) != k.Algorithm {
		return Key{}, fmt.Errorf("is for %s, not for one of %v", m.ALG, algorithms())
	}
	return k, nil
}

// NewKey returns a Key with an id.
func NewKey(id string, public crypto.PublicKey) (Key, error) {
	algorithm, err := algorithmOf(public)
	return Key{ID: id, Algorithm: algorithm, Public: public}, err
}

func algorithmOf(public crypto.PublicKey) (string, error) {
	switch k := public.(type) {
	case ed25519.PublicKey:
		if len(k) != ed25519.PublicKeySize {
			return "", fmt.Errorf("is an Ed25519 key of %d bytes", len(k))
		}
		if smallOrder(k) {
			return "", fmt.Errorf("is a point of small order: anyone can forge its signatures")
		}
		return edDSA, nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return "", fmt.Errorf("is on the curve %s, not on P-256", k.Curve.Params().Name)
		}
		if _, err := k.ECDH(); err != nil {
			return "", fmt.Errorf("is not a point on P-256")
		}
		return es256, nil
	case *rsa.PublicKey:
		if k.N.BitLen() < smallestRSA || k.N.BitLen() > largestRSA {
			return "", fmt.Errorf("is an RSA key of %d bits, not of %d to %d", k.N.BitLen(), smallestRSA, largestRSA)
		}
		if k.E > largestExponent {
			return "", fmt.Errorf("is an RSA key whose exponent is larger than %d", largestExponent)
		}
		if k.N.Bit(0) == 0 || k.E < 3 || k.E%2 == 0 {
			return "", fmt.Errorf("is an RSA key whose modulus or exponent is not valid")
		}
		return rs256, nil
	}
	return "", fmt.Errorf("is not a public key for one of %v", algorithms())
}

// exponentIs reports whether the exponent in a JWK equals e. The library's parser keeps the last 64 bits only, so e may be truncated.
func exponentIs(sent string, e int) bool {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(sent, "="))
	return err == nil && new(big.Int).SetBytes(b).Cmp(big.NewInt(int64(e))) == 0
}

// small lists the points of Ed25519 of order 8 or less, in all encodings that parsers accept, without the sign bit. RFC 8032 section 8.9
// lets verifiers accept them. A valid signature for such a key can be computed without a private key.
var small = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

func smallOrder(k ed25519.PublicKey) bool {
	unsigned := slices.Clone(k)
	unsigned[len(unsigned)-1] &= 0x7f
	return slices.Contains(small, hex.EncodeToString(unsigned))
}

// mostCandidates is the maximum number of keys that a token is checked against. A kid should name one key (RFC 7517 section 4.5). A set
// without kids has few keys: the current, the next and the previous one.
const mostCandidates = 3

// candidates returns the keys that may have signed a token, at most the first three. They have the token's algorithm and, if any key has
// a kid, the token's kid.
func candidates(keys []Key, algorithm, id string, hasID bool) []Key {
	named := slices.ContainsFunc(keys, func(k Key) bool { return k.ID != "" })
	var fit []Key
	for _, k := range keys {
		if k.Algorithm == algorithm && (!named || hasID && k.ID == id) && len(fit) < mostCandidates {
			fit = append(fit, k)
		}
	}
	return fit
}
