package calendar

import (
	"fmt"
	"strings"
)

// Fault is one thing wrong with a spec. Pointer is a JSON pointer relative to the spec, such as "/cron/0"; Code is stable and
// snake_case; Position is the byte of the text that Pointer names at which the fault lies, -1 where none is meant.
type Fault struct {
	Pointer  string
	Code     string
	Detail   string
	Position int
}

// Error says where and what.
func (f Fault) Error() string { return f.Pointer + ": " + f.Detail }

// Faults are all the faults of a spec, in its order: a person mends them at once.
type Faults []Fault

// Error says every fault.
func (f Faults) Error() string {
	parts := make([]string, len(f))
	for i, one := range f {
		parts[i] = one.Error()
	}
	return strings.Join(parts, "; ")
}

func (f *Faults) add(pointer, code, format string, args ...any) {
	*f = append(*f, Fault{Pointer: pointer, Code: code, Detail: fmt.Sprintf(format, args...), Position: -1})
}

// at adds the faults of a text under the pointer of the member that holds it.
func (f *Faults) at(pointer string, faults []Fault) {
	for _, one := range faults {
		one.Pointer = pointer + one.Pointer
		*f = append(*f, one)
	}
}

func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}
