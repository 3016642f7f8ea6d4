//go:build unix

package embedded

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fake fills a folder with scripts that report the given version of PostgreSQL.
func fake(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (Test)'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestProgramsAreFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	on16 := fake(t, filepath.Join(root, "path", "16"), "16.4")
	off9 := fake(t, filepath.Join(root, "pgsql", "9.6", "bin"), "9.6.24")
	off14 := fake(t, filepath.Join(root, "pgsql", "14", "bin"), "14.9")
	off17 := fake(t, filepath.Join(root, "pgsql", "17", "bin"), "17beta1")
	links := filepath.Join(root, "links")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(off14, "postgres"), filepath.Join(links, "postgres")); err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{filepath.Join(root, "pgsql", "*", "bin")}
	offline := func(context.Context, string, string, io.Writer) (programs, error) {
		return programs{}, errors.New("no network")
	}

	for _, c := range []struct {
		name   string
		search search
		major  string
		want   string
		fault  string
	}{
		{name: "on PATH", search: search{path: root + ":" + on16, globs: elsewhere}, want: on16},
		{name: "off PATH, the newest", search: search{path: root, globs: elsewhere}, want: off17},
		{name: "behind a link", search: search{path: links}, want: off14},
		{name: "of the data's version", search: search{path: on16, globs: elsewhere}, major: "14", want: off14},
		{name: "named", search: search{named: off14, path: on16}, want: off14},
		{
			name: "named, of another version", search: search{named: off14}, major: "16",
			fault: "DIR was made by PostgreSQL 16 and CARILLON_POSTGRES_BIN is of PostgreSQL 14: unset it, or choose another data folder",
		},
		{
			name: "named wrongly", search: search{named: root, path: on16},
			fault: "CARILLON_POSTGRES_BIN is " + root + ", which is not a folder of PostgreSQL's programs",
		},
		{
			name: "too old", search: search{path: off9, cache: root, fetched: offline},
			fault: "no PostgreSQL is installed and none could be downloaded (no network): install one (Debian and Ubuntu: apt-get install postgresql",
		},
		{
			name: "none of the data's version", search: search{path: on16, cache: root, fetched: offline}, major: "15",
			fault: "DIR was made by PostgreSQL 15, whose programs are not installed (there is 16.4): install PostgreSQL 15, or choose another data folder",
		},
	} {
		got, err := c.search.find(t.Context(), c.major, "DIR", io.Discard)
		if c.fault != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.fault) {
				t.Errorf("%s: got %v, want %s", c.name, err, c.fault)
			}
			continue
		}
		if err != nil || got.dir != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.name, got.dir, err, c.want)
		}
	}
}

// archive is a .txz of bin/postgres, bin/initdb and bin/pg_ctl, each a shell script; testdata/remake.sh makes it.
//
//go:embed testdata/programs.txz
var archive []byte

// mirror serves the archive in the place of Maven Central, and records the requested paths.
func mirror(t *testing.T) (config embeddedpostgres.Config, asked *[]string) {
	t.Helper()
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	w, err := z.Create("postgres-linux-x86_64.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	asked = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		*asked = append(*asked, r.URL.Path)
		_, _ = w.Write(jar.Bytes())
	}))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return embeddedpostgres.DefaultConfig().BinaryRepositoryURL(s.URL), asked
}

func TestDownloadFillsAFolderOfItsOwn(t *testing.T) {
	t.Parallel()
	config, asked := mirror(t)
	cache := filepath.Join(t.TempDir(), "cache")
	for range 2 {
		bin, err := downloadFrom(t.Context(), config, cache, "", io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(cache, "postgresql-18", "bin"); bin.dir != want || bin.major() != "18" {
			t.Errorf("got %s of %s, want 18 of %s", bin.version, bin.dir, want)
		}
	}
	if len(*asked) != 1 || !strings.Contains((*asked)[0], "18.") {
		t.Errorf("asked for %q, want version 18 once", *asked)
	}
	left, err := os.ReadDir(cache)
	if err != nil || len(left) != 1 {
		t.Errorf("the cache holds %v, %v, want one folder", left, err)
	}
}

func TestDownloadOfferedOnly(t *testing.T) {
	t.Parallel()
	config, asked := mirror(t)
	_, err := downloadFrom(t.Context(), config, t.TempDir(), "13", io.Discard)
	if err == nil || err.Error() != "PostgreSQL 13 is not offered for download" || len(*asked) != 0 {
		t.Errorf("got %v after %q", err, *asked)
	}
}

func TestDownloadWithoutNetwork(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	cache := t.TempDir()
	_, err := downloadFrom(t.Context(), embeddedpostgres.DefaultConfig().BinaryRepositoryURL(s.URL), cache, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "unable to connect to "+s.URL) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) != 0 {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}
