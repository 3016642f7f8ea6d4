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

// Build compiles carillon with its crash points, and with its deliberate bugs where the tags say so. With clocks it is a
// program whose clock can be wrong; all of it, the standard library too, has then to be compiled anew.
func Build(ctx context.Context, dir, tags string, clocks bool) (string, error) {
	return build(ctx, dir, "carillon", "", tags, clocks)
}

// build compiles the source that is in a folder, "" being where we are.
func build(ctx context.Context, dir, name, source, tags string, clocks bool) (string, error) {
	file := filepath.Join(dir, name)
	args := []string{"build", "-tags", tags, "-o", file}
	if clocks {
		overlay, err := wrongClocks(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, program)...)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build carillon: %w\n%s", err, out)
	}
	return file, nil
}

// Oldest is for BuildAt the first of the commits that have the tables of this one.
const Oldest = "oldest"

var errNoOlder = errors.New("no earlier commit has the tables of this one")

// BuildAt compiles carillon as it was at a commit of this repository, which is to have the same tables.
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

// oldest is the earliest commit since the tables are what they are.
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
