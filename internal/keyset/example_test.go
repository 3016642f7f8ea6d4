package keyset_test

import (
	"fmt"

	"github.com/carillonhq/carillon/internal/keyset"
)

// After a rotation the new key encrypts. The old key still decrypts.
func ExampleKeyset() {
	keys, err := keyset.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	sealed, _ := keys.Seal([]byte("a signing secret"), []byte("tenant 1"))
	rotated, _ := keys.Rotated()
	plain, err := rotated.Open(sealed, []byte("tenant 1"))
	fmt.Println(string(plain), err)

	_, err = rotated.Open(sealed, []byte("tenant 2"))
	fmt.Println("as another tenant's:", err != nil)
	// Output:
	// a signing secret <nil>
	// as another tenant's: true
}
