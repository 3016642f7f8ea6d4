package tenants

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"testing"
)

// Keys that give away a secret, that are for something else, or that anybody can sign for.
func TestParseKeyRefusesWhatAnybodyCanSignWith(t *testing.T) {
	t.Parallel()
	enc := base64.RawURLEncoding.EncodeToString
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	modulus := enc(private.N.Bytes())
	good := m{"kty": "RSA", "kid": "r", "n": modulus, "e": "AQAB"}
	point := m{"kty": "OKP", "crv": "Ed25519", "x": enc(slices.Repeat([]byte{7}, 32))}
	with := func(of m, change m) m {
		all := maps.Clone(of)
		maps.Copy(all, change)
		return all
	}
	for name, k := range map[string]m{"RSA": good, "exponent of 3": with(good, m{"e": "Aw"}), "Ed25519": point, "where its chain lies": with(good, m{"x5u": "http://127.0.0.1:1/"})} {
		raw, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseKey(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	even := new(big.Int).Sub(private.N, big.NewInt(1)).Bytes()
	cases := map[string]m{
		"d":                     with(good, m{"d": "AQAB"}),
		"p":                     with(good, m{"p": "AQAB"}),
		"q":                     with(good, m{"q": "AQAB"}),
		"dp":                    with(good, m{"dp": "AQAB"}),
		"dq":                    with(good, m{"dq": "AQAB"}),
		"qi":                    with(good, m{"qi": "AQAB"}),
		"oth":                   with(good, m{"oth": []m{{"r": "AQAB", "d": "AQAB", "t": "AQAB"}}}),
		"oct":                   {"kty": "oct", "k": "AAAA"},
		"for encryption":        with(good, m{"use": "enc"}),
		"to sign with":          with(good, m{"key_ops": []string{"sign"}}),
		"of another algorithm":  with(good, m{"alg": "RS512"}),
		"of none":               with(good, m{"alg": "none"}),
		"1024 bits":             with(good, m{"n": enc(private.N.Bytes()[:128])}),
		"even modulus":          with(good, m{"n": enc(even)}),
		"no modulus":            with(good, m{"n": ""}),
		"exponent of 0":         with(good, m{"e": "AA"}),
		"exponent of 1":         with(good, m{"e": "AQ"}),
		"exponent of 2":         with(good, m{"e": "Ag"}),
		"exponent of 65539":     with(good, m{"e": "AQAD"}),
		"8192 bits":             with(good, m{"n": enc(slices.Repeat([]byte{0xff}, 1024))}),
		"exponent of 33 bits":   with(good, m{"e": enc([]byte{2, 0, 0, 0, 1})}),
		"exponent of 2 to 64+3": with(good, m{"e": enc([]byte{1, 0, 0, 0, 0, 0, 0, 0, 3})}),
		"short point":           with(point, m{"x": "AQ"}),
		"X25519":                with(point, m{"crv": "X25519"}),
		"P-256 off the curve":   {"kty": "EC", "crv": "P-256", "x": enc(slices.Repeat([]byte{1}, 32)), "y": enc(slices.Repeat([]byte{1}, 32))},
		"P-256 at infinity":     {"kty": "EC", "crv": "P-256", "x": enc(make([]byte, 32)), "y": enc(make([]byte, 32))},
	}
	for _, low := range small {
		b, err := hex.DecodeString(low)
		if err != nil {
			t.Fatal(err)
		}
		cases["small order "+low] = with(point, m{"x": enc(b)})
		signed := slices.Clone(b)
		signed[31] |= 0x80
		cases["small order, signed "+low] = with(point, m{"x": enc(signed)})
	}
	for name, k := range cases {
		raw, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		if key, err := ParseKey(raw); err == nil {
			t.Errorf("%s was taken: %+v", name, key)
		}
	}
}
