//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// offered lists the versions that can be downloaded. The library has no later ones.
var offered = map[string]embeddedpostgres.PostgresVersion{
	"18": embeddedpostgres.V18,
	"17": embeddedpostgres.V17,
	"16": embeddedpostgres.V16,
	"15": embeddedpostgres.V15,
	"14": embeddedpostgres.V14,
}

const newestOffered = "18"

// download returns the programs of a major version, from the cache or from Maven Central. "" means the newest version.
func download(ctx context.Context, cache, major string, log io.Writer) (programs, error) {
	return downloadFrom(ctx, embeddedpostgres.DefaultConfig(), cache, major, log)
}

// downloadWithin bounds one download of about 30 MB.
const downloadWithin = 10 * time.Minute

func downloadFrom(ctx context.Context, source embeddedpostgres.Config, cache, major string, log io.Writer) (programs, error) {
	if major == "" {
		major = newestOffered
	}
	version, ok := offered[major]
	if !ok {
		return programs{}, fmt.Errorf("PostgreSQL %s is not offered for download", major)
	}
	place := filepath.Join(cache, "postgresql-"+major)
	if bin, err := probe(ctx, filepath.Join(place, "bin")); err == nil {
		return bin, nil
	}
	if err := makeFolders(cache); err != nil {
		return programs{}, err
	}
	work, err := os.MkdirTemp(cache, "download-*")
	if err != nil {
		return programs{}, err
	}
	defer os.RemoveAll(work)
	fmt.Fprintf(log, "no PostgreSQL is installed: downloading %s to %s\n", version, place)
	ctx, cancel := context.WithTimeout(ctx, downloadWithin)
	defer cancel()
	if err := extract(ctx, source.Version(version), major, work); err != nil {
		return programs{}, err
	}
	if err := openToAll(filepath.Join(work, "programs")); err != nil {
		return programs{}, err
	}
	// Another process may have downloaded the same version first: its copy is as good.
	if err := os.Rename(filepath.Join(work, "programs"), place); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return programs{}, err
	}
	return probe(ctx, filepath.Join(place, "bin"))
}

// extract lets the library download and unpack the programs into the empty folder work. The library does that only as part of a start.
// A fake data folder keeps it from creating a cluster, so the start always fails; extract checks that the programs exist. The library
// cannot be cancelled: when ctx ends, its goroutine runs on until the process ends.
func extract(ctx context.Context, source embeddedpostgres.Config, major, work string) error {
	data := filepath.Join(work, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major), 0o600); err != nil {
		return err
	}
	library := embeddedpostgres.NewDatabase(source.
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "run")).
		BinariesPath(filepath.Join(work, "programs")).
		DataPath(data).
		Port(0).
		Logger(io.Discard))
	ended := make(chan error, 1)
	go func() { ended <- library.Start() }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-ended:
		if _, absent := probe(ctx, filepath.Join(work, "programs", "bin")); absent == nil {
			return nil
		}
		return fmt.Errorf("PostgreSQL %s was not fetched: %w", major, err)
	}
}

// openToAll lets other accounts run the programs, independent of the umask.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
