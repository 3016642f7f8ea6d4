package version_test

import (
	"fmt"

	"github.com/carillonhq/carillon/internal/version"
)

// A client has read version 3 and changes only that version.
func ExamplePrecondition() {
	demand := version.Precondition{IfMatch: version.Of(3)}
	fmt.Println(demand.Check(true, 3))
	fmt.Println(demand.Check(true, 4))

	create := version.Precondition{IfNoneMatch: version.Any()}
	fmt.Println(create.Check(false, 0))
	// Output:
	// <nil>
	// the version is 4 by now
	// <nil>
}
