package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// abandoned is the age after which a lock belongs to a program that was killed: a change takes milliseconds.
const abandoned = 10 * time.Second

// lock creates a file that no other program can create until it is removed. This works in the same way on every system.
func lock(path string) (unlock func(), err error) {
	for deadline := time.Now().Add(2 * abandoned); ; {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			return func() { os.Remove(path) }, f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > abandoned {
			os.Remove(path) // an error does not matter: the next attempt shows whether the lock is gone
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another program is changing the profiles: if none is running, remove %s", path)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
