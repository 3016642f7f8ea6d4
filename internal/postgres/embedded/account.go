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

// account is whom the server runs as: PostgreSQL refuses root. A nil credential is ourselves.
type account struct {
	name       string
	credential *syscall.Credential
}

// serverAccount keeps to the owner of data that exists: PostgreSQL serves no other's.
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
	return account{}, errors.New("PostgreSQL does not run as root, and there is no account postgres or nobody to run it as: make one, or start as another user")
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

// canEnter tries what the server will do, as whom it will: run its program in its folder. The sentence names the folder
// in the way.
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

// closedFolder is the first folder on the way to path that the account may not pass through, "" when there is none.
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

// folderMode lets the server's account through where it is not ours. Each file in there guards itself.
func folderMode() fs.FileMode {
	if os.Geteuid() == 0 {
		return 0o755
	}
	return 0o700
}

// makeFolders is os.MkdirAll whatever the umask, which for root may keep the server's account out.
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

// DefaultDir is where a data folder is kept when nobody says where: below /var/lib for root, since PostgreSQL then runs
// as an account that cannot enter /root, and in the XDG state folder for others.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/carillon/dev", nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "carillon", "dev"), nil
	}
	userHome, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder is known for data (%w): name one", err)
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
