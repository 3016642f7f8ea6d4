package version_test

import (
	"testing"

	"errors"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		pre    version.Precondition
		absent bool // with nothing stored
		third  bool // with version 3 stored
	}{
		{"nothing", version.Precondition{}, true, true},
		{"match any", version.Precondition{IfMatch: version.Any()}, false, true},
		{"match it", version.Precondition{IfMatch: version.Of(2, 3)}, false, true},
		{"match others", version.Precondition{IfMatch: version.Of(0, 2)}, false, false},
		{"match none", version.Precondition{IfMatch: version.Of()}, false, false},
		{"not any", version.Precondition{IfNoneMatch: version.Any()}, true, false},
		{"not it", version.Precondition{IfNoneMatch: version.Of(2, 3)}, true, false},
		{"not others", version.Precondition{IfNoneMatch: version.Of(0, 2)}, true, true},
		{"both", version.Precondition{IfMatch: version.Of(3), IfNoneMatch: version.Of(4)}, false, true},
	} {
		for exists, holds := range map[bool]bool{false: c.absent, true: c.third} {
			err := c.pre.Check(exists, map[bool]int64{true: 3}[exists])
			if f, mismatch := errors.AsType[*fault.Error](err); holds != (err == nil) || !holds && (!mismatch || f.Status != 412) {
				t.Errorf("%s, exists %v: got %v", c.name, exists, err)
			}
		}
	}
}
