//go:build !linux

package chaos

import "errors"

// disk is one of its own that can be full, which is known how to make on Linux alone.
type disk struct{ dir string }

func openDisk() (*disk, error) {
	return nil, errors.New("a disk that can be full is mounted on Linux only")
}

func (*disk) fill() error { return nil }
func (*disk) free() error { return nil }
func (*disk) close()      {}
