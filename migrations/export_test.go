package migrations

import (
	"context"
	"io/fs"
)

// Baseline is the greatest version of the baseline.
const Baseline = isolationVersion

// UpWith is Up with the migrations of a folder.
func UpWith(ctx context.Context, url string, dir fs.FS) (applied int, err error) {
	return up(ctx, url, Options{}, dir)
}
