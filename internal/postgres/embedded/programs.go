//go:build unix

package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// programs is a folder with PostgreSQL's programs.
type programs struct {
	dir     string
	version string // as the program prints it: 15.18, 17beta1
}

// oldestMajor is the oldest PostgreSQL that the migrations run on.
const oldestMajor = 14

func (p programs) postgres() string { return filepath.Join(p.dir, "postgres") }
func (p programs) initdb() string   { return filepath.Join(p.dir, "initdb") }

func (p programs) major() string {
	end := strings.IndexFunc(p.version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return p.version
	}
	return p.version[:end]
}

// installed lists the folders in which distributions install PostgreSQL's programs. Debian and RPM have one folder for each version,
// outside PATH.
var installed = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/lib/postgresql*/bin",
	"/usr/lib64/postgresql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/opt/homebrew/opt/postgresql/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/usr/local/pgsql/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// search lists the places to search. Tests use other places.
type search struct {
	named   string   // the only folder to use, from CARILLON_POSTGRES_BIN
	path    string   // folders as in PATH
	globs   []string // more folders
	cache   string   // of downloads; "": no download
	fetched func(ctx context.Context, cache, major string, log io.Writer) (programs, error)
}

func findPrograms(ctx context.Context, h *home, log io.Writer) (programs, error) {
	cache, err := cacheDir()
	if err != nil {
		cache = ""
	}
	s := search{
		named:   os.Getenv("CARILLON_POSTGRES_BIN"),
		path:    os.Getenv("PATH"),
		globs:   installed,
		cache:   cache,
		fetched: download,
	}
	return s.find(ctx, h.version, h.dir, log)
}

// Find returns the folder and the version of the PostgreSQL programs that a new server would use. It downloads nothing.
func Find(ctx context.Context) (dir, version string, err error) {
	s := search{named: os.Getenv("CARILLON_POSTGRES_BIN"), path: os.Getenv("PATH"), globs: installed}
	bin, err := s.find(ctx, "", "", io.Discard)
	return bin.dir, bin.version, err
}

// find returns programs of the major version of the data. Without data it prefers the programs on PATH, and then the newest ones
// elsewhere.
func (s search) find(ctx context.Context, major, dir string, log io.Writer) (programs, error) {
	if s.named != "" {
		bin, err := probe(ctx, s.named)
		if err != nil {
			return bin, fmt.Errorf("CARILLON_POSTGRES_BIN is %s, which is not a folder of PostgreSQL's programs: %w", s.named, err)
		}
		if major != "" && bin.major() != major {
			return bin, fmt.Errorf("%s was made by PostgreSQL %s and CARILLON_POSTGRES_BIN is of PostgreSQL %s: unset it, or choose another data folder", dir, major, bin.major())
		}
		return bin, nil
	}
	all := s.installed(ctx)
	for _, bin := range all {
		if major == "" || bin.major() == major {
			return bin, nil
		}
	}
	bin, err := s.fetch(ctx, major, log)
	if err == nil {
		return bin, nil
	}
	if major != "" {
		return bin, fmt.Errorf("%s was made by PostgreSQL %s, whose programs are not installed (%s): install PostgreSQL %s, or choose another data folder", dir, major, found(all), major)
	}
	return bin, fmt.Errorf("no PostgreSQL is installed and none could be downloaded (%w): install one (Debian and Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql@17), or set DATABASE_URL to a server, or CARILLON_POSTGRES_BIN to the folder of its programs", err)
}

func (s search) fetch(ctx context.Context, major string, log io.Writer) (programs, error) {
	if s.cache == "" || s.fetched == nil {
		return programs{}, errors.New("no folder to download to")
	}
	return s.fetched(ctx, s.cache, major, log)
}

// installed lists each folder once: first those on PATH in their order, then the others from the newest version down.
func (s search) installed(ctx context.Context) []programs {
	var all []programs
	seen := map[string]bool{}
	add := func(dirs []string) {
		for _, dir := range dirs {
			bin, err := probe(ctx, dir)
			if err == nil && !seen[bin.dir] {
				seen[bin.dir] = true
				all = append(all, bin)
			}
		}
	}
	add(filepath.SplitList(s.path))
	onPath := len(all)
	for _, pattern := range s.globs {
		dirs, _ := filepath.Glob(pattern) // the patterns are valid
		add(dirs)
	}
	slices.SortStableFunc(all[onPath:], func(a, b programs) int { return cmp.Compare(number(b.major()), number(a.major())) })
	return slices.DeleteFunc(all, func(p programs) bool { return number(p.major()) < oldestMajor })
}

// probe returns the programs in dir. It resolves a link such as /usr/local/bin/postgres to the real folder, because the programs find
// their libraries and templates from there.
func probe(ctx context.Context, dir string) (programs, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return programs{}, err
	}
	if real, err = filepath.Abs(real); err != nil {
		return programs{}, err
	}
	bin := programs{dir: filepath.Dir(real)}
	if _, err := os.Stat(bin.initdb()); err != nil {
		return programs{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin.postgres(), "-V")
	cmd.Env = cleanEnvironment()
	out, err := cmd.Output()
	if err != nil {
		return programs{}, fmt.Errorf("%s -V: %w", bin.postgres(), err)
	}
	words := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian …)
	if len(words) < 3 || words[1] != "(PostgreSQL)" {
		return programs{}, fmt.Errorf("%s -V prints %q", bin.postgres(), strings.TrimSpace(string(out)))
	}
	bin.version = words[2]
	return bin, nil
}

func number(major string) int {
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

func found(all []programs) string {
	if len(all) == 0 {
		return "none are"
	}
	versions := make([]string, len(all))
	for i, bin := range all {
		versions[i] = bin.version
	}
	return "there is " + strings.Join(versions, ", ")
}
