package profile

import (
	"errors"
	"fmt"
	"time"

	"github.com/zalando/go-keyring"
)

// service is the name of the program in the keychain.
const service = "carillon"

// patience is how long the keychain may take. A keychain that waits for a dialogue on another screen would block every command.
const patience = 3 * time.Second

// Keychain keeps secrets. The zero value is the keychain of the operating system.
type Keychain struct {
	Off bool // there is none: each call fails
}

var errNoKeychain = errors.New("the keychain is turned off by CARILLON_NO_KEYCHAIN")

// Set stores the secret of an account.
func (k Keychain) Set(account, secret string) error {
	_, err := k.within(func() (string, error) { return "", keyring.Set(service, account, secret) })
	return err
}

// Get returns the secret of an account.
func (k Keychain) Get(account string) (string, error) {
	return k.within(func() (string, error) { return keyring.Get(service, account) })
}

// Delete removes the secret of an account. An account without a secret is no error.
func (k Keychain) Delete(account string) error {
	_, err := k.within(func() (string, error) { return "", keyring.Delete(service, account) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	return err
}

// within calls the keychain, and stops waiting for it after its patience. The library cannot be interrupted: the call is abandoned.
func (k Keychain) within(call func() (string, error)) (string, error) {
	if k.Off {
		return "", errNoKeychain
	}
	type outcome struct {
		secret string
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		secret, err := call()
		done <- outcome{secret, err}
	}()
	select {
	case got := <-done:
		return got.secret, got.err
	case <-time.After(patience):
		return "", fmt.Errorf("the keychain did not answer within %s", patience)
	}
}
