package profile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
)

// Programs that change the file at once lose none of the changes, and only the user can read it.
func TestChangesAreNotLost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "carillon", "config.json")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			err := profile.Change(path, func(c *profile.Config) error {
				c.Profiles[fmt.Sprint(i)] = profile.Profile{URL: "http://x"}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c, err := profile.Load(path)
	if err != nil || len(c.Profiles) != 8 {
		t.Errorf("got %d profiles, %v", len(c.Profiles), err)
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("files are left over: %v, %v", entries, err)
	}
}

// Without a keychain the key is kept in the profile, and the caller can warn.
func TestAKeyWithoutAKeychain(t *testing.T) {
	t.Parallel()
	none := profile.Keychain{Off: true}
	stored, warning := none.Store("work", profile.Profile{URL: "http://x"}, "secret")
	if warning == nil || stored.APIKey != "secret" || stored.Keychain != "" {
		t.Errorf("got %+v, %v", stored, warning)
	}
	if key, err := none.Key(stored); err != nil || key != "secret" {
		t.Errorf("got %q, %v", key, err)
	}
	if forgotten, err := none.Forget(stored); err != nil || forgotten.APIKey != "" || forgotten.SignIn != profile.SignedOut {
		t.Errorf("got %+v, %v", forgotten, err)
	}
}
