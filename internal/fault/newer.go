package fault

import (
	"errors"
	"fmt"
	"time"
)

const newerCode = "newer_version"

// NewerVersion returns the fault for stored workflow defaults that this program cannot read. They were valid when they were stored,
// so a newer program wrote them. An upgraded process can serve the same request.
func NewerVersion(cause error) error {
	f := Unavailable(newerCode, "a newer version of the service wrote the defaults of a workflow; try again")
	f.RetryAfter = 5 * time.Second
	return fmt.Errorf("%w (%v)", f, cause) // the cause is for the log
}

// IsNewerVersion reports whether err is a fault of NewerVersion.
func IsNewerVersion(err error) bool {
	f, ok := errors.AsType[*Error](err)
	return ok && f.Code == newerCode
}
