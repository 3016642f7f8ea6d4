package fault

import (
	"errors"
	"fmt"
	"time"
)

const newerCode = "newer_version"

// NewerVersion returns the error of stored defaults of a workflow that this program cannot read: they were checked when they were
// stored, so a newer program wrote them. Another process, or this one after its upgrade, can do what the caller asked for.
func NewerVersion(cause error) error {
	f := Unavailable(newerCode, "a newer version of the service wrote the defaults of a workflow; try again")
	f.RetryAfter = 5 * time.Second
	return fmt.Errorf("%w (%v)", f, cause) // the cause is for the log
}

// IsNewerVersion reports whether err says that a newer program wrote what this one cannot read.
func IsNewerVersion(err error) bool {
	f, ok := errors.AsType[*Error](err)
	return ok && f.Code == newerCode
}
