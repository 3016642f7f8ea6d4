package schedules

import (
	"errors"
	"fmt"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
)

// specFault is what is wrong with a spec as the caller is told it: below /spec, with the place in the text.
func specFault(err error) error {
	faults, ok := errors.AsType[calendar.Faults](err)
	if !ok {
		return err
	}
	fields := make([]fault.Field, len(faults))
	for i, f := range faults {
		fields[i] = fault.Field{Pointer: "/spec" + f.Pointer, Code: f.Code, Detail: f.Detail}
		if f.Position >= 0 {
			fields[i].Detail += fmt.Sprintf(" (at byte %d)", f.Position)
		}
	}
	return fault.Fields(fields...)
}
