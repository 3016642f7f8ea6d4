package keyset_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/internal/keyset"
)

func made(t *testing.T, make func() (*keyset.Keyset, error)) *keyset.Keyset {
	t.Helper()
	k, err := make()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func reread(t *testing.T, k *keyset.Keyset) *keyset.Keyset {
	t.Helper()
	text, err := k.Text()
	if err != nil || strings.ContainsAny(text, "\n'") {
		t.Fatalf("got %q, %v", text, err)
	}
	return made(t, func() (*keyset.Keyset, error) { return keyset.Parse(text) })
}

func TestWhatIsSealedOpensInItsPlaceOnly(t *testing.T) {
	t.Parallel()
	k := made(t, keyset.New)
	sealed, err := k.Seal([]byte("secret"), []byte("here"))
	if err != nil || bytes.Contains(sealed, []byte("secret")) {
		t.Fatalf("got %q, %v", sealed, err)
	}
	if plain, err := reread(t, k).Open(sealed, []byte("here")); err != nil || string(plain) != "secret" {
		t.Errorf("got %q, %v", plain, err)
	}
	if plain, err := k.Open(sealed, []byte("there")); err == nil {
		t.Errorf("in another place it is %q", plain)
	}
	if plain, err := made(t, keyset.New).Open(sealed, []byte("here")); err == nil {
		t.Errorf("with another key it is %q", plain)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := k.Open(changed, []byte("here")); err == nil {
			t.Errorf("it opens with byte %d changed", i)
		}
	}
}

func TestARotatedKeysetReadsWhatTheOldOneSealed(t *testing.T) {
	t.Parallel()
	old := made(t, keyset.New)
	fresh := reread(t, made(t, old.Rotated))
	before, err := old.Seal([]byte("a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := fresh.Open(before, nil); err != nil || string(plain) != "a" {
		t.Errorf("got %q, %v", plain, err)
	}
	after, err := fresh.Seal([]byte("b"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Open(after, nil); err == nil {
		t.Error("the new key does not seal")
	}
}

func TestWhatIsNoKeysetIsRefusedUnseen(t *testing.T) {
	t.Parallel()
	const signing = `{"primaryKeyId":1,"key":[{"keyData":{"typeUrl":"type.googleapis.com/google.crypto.tink.HmacKey","value":"EgQIAxAgGiAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==","keyMaterialType":"SYMMETRIC"},"status":"ENABLED","keyId":1,"outputPrefixType":"TINK"}]}`
	for _, text := range []string{"", "{}", "[]", "topsecret", `{"key":["topsecret"]}`, `{"primaryKeyId":1,"key":[]}`, signing} {
		if _, err := keyset.Parse(text); err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
