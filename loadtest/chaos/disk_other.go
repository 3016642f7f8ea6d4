//go:build !linux

package chaos

import "errors"

// disk is a file system that can be full. The lab can make one only on Linux.
type disk struct{ dir string }

func openDisk() (*disk, error) {
	return nil, errors.New("a disk that can be full needs Linux")
}

func (*disk) fill() error { return nil }
func (*disk) free() error { return nil }
func (*disk) close()      {}
