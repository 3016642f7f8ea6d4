package calendar

import (
	"fmt"
	"strings"
)

// Fault is one error in a spec. Pointer is a JSON pointer relative to the spec, such as "/cron/0". Code is stable and in snake_case.
// Position is the byte offset of the error in the text at Pointer, or -1.
type Fault struct {
	Pointer  string
	Code     string
	Detail   string
	Position int
}

// Error returns the pointer and the detail.
func (f Fault) Error() string { return f.Pointer + ": " + f.Detail }

// Faults are all errors of a spec, in the spec's order, so that its author can correct them together.
type Faults []Fault

// Error returns the texts of all faults.
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

// at adds the faults of a member's text, under the member's pointer.
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
