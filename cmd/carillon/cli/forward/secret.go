package forward

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Secret returns the signing secret in a file, and makes both if the file does not exist. Two programs that make it together get the same.
func Secret(path string) (string, error) {
	secret, err := read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-*") // it has the mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	var key [24]byte
	rand.Read(key[:]) // it never returns an error
	_, err = f.WriteString("whsec_" + base64.StdEncoding.EncodeToString(key[:]) + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) { // unlike a rename it replaces nothing
		return "", err
	}
	return read(path)
}

func read(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if _, err := standardwebhooks.NewWebhook(secret); err != nil || !strings.HasPrefix(secret, "whsec_") {
		return "", fmt.Errorf("%s has no signing secret such as whsec_…: delete the file to get a new one", path)
	}
	return secret, nil
}
