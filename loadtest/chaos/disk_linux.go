package chaos

import (
	"fmt"
	"os"
	"syscall"
)

// disk is a file system in memory whose size can be reduced.
type disk struct{ dir string }

const (
	diskSize  = 8 << 30 // of memory; only written blocks use it
	diskCrumb = 64 << 10
)

// openDisk mounts a disk. It needs a privileged account.
func openDisk() (*disk, error) {
	dir, err := os.MkdirTemp("", "carillon-disk-*")
	if err != nil {
		return nil, err
	}
	d := &disk{dir}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=0755,size=%d", int64(diskSize))); err != nil {
		return nil, fmt.Errorf("mount a disk that can be full: %w", err)
	}
	return d, nil
}

// fill reduces the size to little more than the content: further writes fail with "no space left on device".
func (d *disk) fill() error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		return err
	}
	return d.resize(int64(s.Blocks-s.Bfree)*s.Bsize + diskCrumb)
}

// free restores the size.
func (d *disk) free() error { return d.resize(diskSize) }

func (d *disk) resize(to int64) error {
	for try := 0; ; try++ {
		err := syscall.Mount("tmpfs", d.dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("mode=0755,size=%d", to))
		if err == nil || try == 20 {
			return err
		}
		to += 4 << 20 // more was written meanwhile than the new size allows
	}
}

func (d *disk) close() {
	_ = syscall.Unmount(d.dir, 0) // if a process still uses it, it stays mounted
	_ = os.Remove(d.dir)
}
