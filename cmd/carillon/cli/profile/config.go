package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// Config is the content of the file.
type Config struct {
	Current  string             `json:"current,omitempty"` // the profile that commands use without --profile
	Profiles map[string]Profile `json:"profiles"`
}

// Profile is one server, and how to sign in to it.
type Profile struct {
	URL      string `json:"url"`
	Tenant   string `json:"tenant,omitempty"` // shown in lists; the server decides by the credential
	SignIn   SignIn `json:"sign_in,omitempty"`
	APIKey   string `json:"api_key,omitempty"`  // only if there is no keychain
	Program  string `json:"program,omitempty"`  // of SignInProgram: the command that prints a token
	Keychain string `json:"keychain,omitempty"` // the account in the keychain that has the API key
}

// SignIn says where the credential of a profile comes from.
type SignIn string

// The ways to sign in.
const (
	SignedOut     SignIn = ""
	SignInKey     SignIn = "api_key" // in the keychain or in the file
	SignInProgram SignIn = "program" // a program prints a token
	SignInDev     SignIn = "dev"     // a carillon dev on this machine mints tokens
)

var validName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// CheckName returns an error if a profile cannot have the name.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("a profile's name is 1 to 64 of A-Z a-z 0-9 . _ -, not %q", name)
	}
	return nil
}

// Path returns the path of the file. It is below XDG_CONFIG_HOME on every system, or in the system's own place if that is not set.
func Path(getenv func(string) string) (string, error) {
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "carillon", "config.json"), nil
}

// Load reads the file. A file that does not exist is an empty config.
func Load(path string) (Config, error) {
	c := Config{Profiles: map[string]Profile{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && path == "" {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%s is no valid JSON (%w): correct it, or delete it and sign in again", path, err)
	}
	if c.Profiles == nil {
		c.Profiles = map[string]Profile{}
	}
	return c, nil
}

// Change changes the file under a lock, so that two programs never lose each other's change.
func Change(path string, change func(*Config) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	c, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(&c); err != nil {
		return err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return replace(path, append(text, '\n'))
}

// replace writes a file that only the user can read. A reader sees the old content or the new one.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".config-*") // it has the mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
