package fault_test

import (
	"errors"
	"fmt"

	"github.com/carillonhq/carillon/internal/fault"
)

// One answer names all bad fields of a request.
func ExampleJoin() {
	err := fault.Join(
		nil,
		fault.Invalid("/spec/timezone", "%q is not a time zone", "Mars"),
		fault.Invalid("/key", "a key has at most 256 bytes"),
	)
	f, _ := errors.AsType[*fault.Error](err)
	fmt.Println(f.Status, f.Code)
	for _, field := range f.Fields {
		fmt.Println(field.Pointer, field.Detail)
	}
	// Output:
	// 422 invalid
	// /spec/timezone "Mars" is not a time zone
	// /key a key has at most 256 bytes
}
