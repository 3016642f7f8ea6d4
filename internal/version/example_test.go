package version_test

import (
	"fmt"

	"github.com/carillonhq/carillon/internal/version"
)

// A client that has read version 3 changes that version only.
func ExamplePrecondition() {
	update := version.Precondition{IfMatch: version.Of(3)}
	fmt.Println(update.Check(true, 3))
	fmt.Println(update.Check(true, 4))

	create := version.Precondition{IfNoneMatch: version.Any()}
	fmt.Println(create.Check(false, 0))
	// Output:
	// <nil>
	// the current version is 4
	// <nil>
}
