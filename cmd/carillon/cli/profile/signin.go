package profile

import (
	"fmt"
)

// Store keeps an API key for a profile and returns the profile with a reference to it. If the keychain fails, the key is kept in the
// file, and warning says so.
func (k Keychain) Store(name string, p Profile, key string) (stored Profile, warning error) {
	p.SignIn, p.APIKey, p.Program, p.Keychain = SignInKey, "", "", name+" "+p.URL
	if err := k.Set(p.Keychain, key); err != nil {
		p.Keychain, p.APIKey = "", key
		return p, err
	}
	return p, nil
}

// Forget removes the credential of a profile.
func (k Keychain) Forget(p Profile) (Profile, error) {
	var err error
	if p.Keychain != "" {
		err = k.Delete(p.Keychain)
	}
	p.SignIn, p.APIKey, p.Program, p.Keychain = SignedOut, "", "", ""
	return p, err
}

// Key returns the API key of a profile that signs in with one.
func (k Keychain) Key(p Profile) (string, error) {
	if p.Keychain == "" {
		return p.APIKey, nil
	}
	key, err := k.Get(p.Keychain)
	if err != nil {
		return "", fmt.Errorf("read the API key from the keychain: %w", err)
	}
	return key, nil
}
