package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const program = "github.com/carillonhq/carillon/cmd/carillon"

// Build compiles carillon with build tags, such as those of crash points and deliberate bugs, and returns the program. With clocks the
// program's clock can be wrong, and the standard library is compiled, too.
func Build(ctx context.Context, dir, tags string, clocks bool) (string, error) {
	return build(ctx, dir, "carillon", "", tags, clocks)
}

// build compiles the source in a folder, or in the current folder if source is "", with the flags of the Dockerfile.
func build(ctx context.Context, dir, name, source, tags string, clocks bool) (string, error) {
	file := filepath.Join(dir, name)
	args := []string{"build", "-trimpath", "-tags", tags, "-o", file}
	if clocks {
		overlay, err := wrongClocks(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, program)...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build carillon: %w\n%s", err, out)
	}
	return file, nil
}

// Oldest names, for BuildAt, the first commit with the same tables as this one.
const Oldest = "oldest"

var errNoOlder = errors.New("no earlier commit has the tables of this one")

// BuildAt compiles carillon at a commit of this repository, which must have the same tables.
func BuildAt(ctx context.Context, dir, commit, tags string, clocks bool) (file, at string, err error) {
	if commit == Oldest {
		if commit, err = oldest(ctx); err != nil {
			return "", "", err
		}
	}
	source, archive := filepath.Join(dir, "old"), filepath.Join(dir, "old.tar")
	if err := os.Mkdir(source, 0o700); err != nil {
		return "", "", err
	}
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", "", err
	}
	if _, err := git(ctx, "-C", root, "archive", "--output", archive, commit); err != nil {
		return "", "", err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", source).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("unpack %s: %w\n%s", commit, err, out)
	}
	file, err = build(ctx, dir, "carillon-old", source, tags, clocks)
	return file, commit, err
}

// oldest returns the earliest commit with the present tables.
func oldest(ctx context.Context) (string, error) {
	list, err := git(ctx, "log", "--first-parent", "--format=%H")
	if err != nil {
		return "", err
	}
	tables, found := "", ""
	for i, commit := range strings.Fields(list) {
		has, err := git(ctx, "rev-parse", commit+":migrations/sql")
		if err != nil || i > 0 && has != tables {
			break
		}
		if tables = has; i > 0 {
			found = commit
		}
	}
	if found == "" {
		return "", errNoOlder
	}
	return found, nil
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
