//go:build unix

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the OS account that runs the server, because PostgreSQL refuses root. A nil credential means the current account.
type account struct {
	name       string
	credential *syscall.Credential
}

// serverAccount returns the current account, unless it is root. For root it returns the owner of existing data, because PostgreSQL
// serves only its own data; otherwise postgres or nobody.
func serverAccount(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{name: "this account"}, nil
	}
	if info, err := os.Stat(data); err == nil && owner(info) > 0 {
		stat := info.Sys().(*syscall.Stat_t)
		name := strconv.Itoa(int(stat.Uid))
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		return account{name: name, credential: &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr != nil || gidErr != nil || uid == 0 {
			continue
		}
		return account{name: name, credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and neither account postgres nor nobody exists: create one, or start as another user")
}

func (a account) own(paths ...string) error {
	if a.credential == nil {
		return nil
	}
	for _, p := range paths {
		if err := os.Chown(p, int(a.credential.Uid), int(a.credential.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// canEnter checks that the account can run the server's program in its folder. The error names the closed folder.
func (a account) canEnter(dir string, bin programs) error {
	if a.credential == nil {
		return nil
	}
	cmd := exec.Command(bin.postgres(), "-V")
	cmd.Dir, cmd.Env = dir, cleanEnvironment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	for _, path := range []string{dir, bin.dir} {
		if closed := a.closedFolder(path); closed != "" {
			return fmt.Errorf("PostgreSQL runs as %s, because it does not run as root, and %s cannot enter %s, which is above %s: choose a folder outside it, such as one below /var/lib", a.name, a.name, closed, path)
		}
	}
	return fmt.Errorf("PostgreSQL runs as %s, because it does not run as root, and that account cannot run %s in %s: %w", a.name, bin.postgres(), dir, err)
}

// closedFolder returns the first folder on the way to path that the account may not enter, or "".
func (a account) closedFolder(path string) string {
	var closed string
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err == nil && !a.mayPass(info) {
			closed = p
		}
		if p == filepath.Dir(p) {
			return closed
		}
	}
}

func (a account) mayPass(info fs.FileInfo) bool {
	stat := info.Sys().(*syscall.Stat_t)
	switch {
	case stat.Uid == a.credential.Uid:
		return info.Mode()&0o100 != 0
	case stat.Gid == a.credential.Gid:
		return info.Mode()&0o010 != 0
	}
	return info.Mode()&0o001 != 0
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// folderMode returns the mode of new folders. If we are root, the server's other account must be able to enter them; each file has
// its own protection.
func folderMode() fs.FileMode {
	if os.Geteuid() == 0 {
		return 0o755
	}
	return 0o700
}

// makeFolders is os.MkdirAll that ignores the umask. The umask of root may otherwise lock out the server's account.
func makeFolders(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := makeFolders(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, folderMode()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, folderMode())
}

// DefaultDir returns the default data folder: below /var/lib for root, because PostgreSQL then runs as an account that cannot enter
// /root, and otherwise in the XDG state folder.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/carillon/dev", nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "carillon", "dev"), nil
	}
	userHome, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no default data folder (%w): name one", err)
	}
	return filepath.Join(userHome, ".local", "state", "carillon", "dev"), nil
}

func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/carillon", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "carillon"), nil
}
