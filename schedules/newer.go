package schedules

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
)

const (
	newerCode = "newer_version"
	newerWait = time.Minute // before the next step of an operation
)

// newerVersion returns the error of stored defaults of a workflow that this program cannot read: they were checked when they were
// stored, so a newer program wrote them. Another process, or this one after its upgrade, can do what the caller asked for.
func newerVersion(cause error) error {
	f := fault.Unavailable(newerCode, "a newer version of the service wrote the defaults of a workflow; try again")
	f.RetryAfter = 5 * time.Second
	return fmt.Errorf("%w (%v)", f, cause) // the cause is for the log
}

// NewerVersion reports whether err says that a newer program wrote what this one cannot read.
func NewerVersion(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Code == newerCode
}
